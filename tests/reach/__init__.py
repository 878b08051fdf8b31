"""All platforms at once under kills: ``python -m tests.reach``."""
