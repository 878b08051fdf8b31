"""Breaks the lines that keep the contracts, one at a time, and sees whether the contract's tests notice."""
