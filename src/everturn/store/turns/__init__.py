"""Turns: accepted, claimed, run by a worker, held by asks, ended."""
