"""Everturn: a self-hosted AI agent that never loses a turn."""

__version__ = "0.1.0"
