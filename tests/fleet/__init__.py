"""The fleet drill: several workers behind a balancer, faults in the middle of answers, a check from outside.

``scripts/fleet`` is the long version, with HAProxy; ``test_fleet.py`` a short one that needs no Debian package. Start with
``drill.py``.
"""
