"""Implements ``domain.secrets``: as a file, or as encrypted rows. Start with ``secrets.py``."""
