"""The lab: faults on purpose, and a check from outside of what was promised. Anyone can run it.

Owns the campaigns (`crash/`: lives that are cut off; `service/`: simulated users of a real server) and their
report. May import the rooms above it, and `testing/`. Called by `everturn lab` and by the tests. Start with
`campaign.py`.
"""

from everturn.lab.campaign import Campaign, Plan
from everturn.lab.report import write_report
from everturn.lab.trial import Trial

__all__ = ["Campaign", "Plan", "Trial", "write_report"]
