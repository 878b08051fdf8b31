"""Soak: a real server used by many people for a long time, killed and stopped again and again.

``python -m tests.soak --minutes 30`` prints what it sees, draws it, and ends with 1 if anything was lost,
repeated or grew. The short version is an ordinary test.
"""
