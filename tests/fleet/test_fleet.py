from __future__ import annotations

from pathlib import Path

import pytest

from tests.fleet.database import WheelDatabase
from tests.fleet.drill import Drill, DrillPlan
from tests.fleet.report import report

pytestmark = pytest.mark.anyio


@pytest.mark.timeout(400)
async def test_g06_g07_a_fleet_loses_nothing_while_workers_are_killed_frozen_and_drained(
    tmp_path: Path, postgres_url: str
) -> None:
    """The short version of ``scripts/fleet``: a small balancer instead of HAProxy, and a short lease."""
    plan = DrillPlan(
        faults=["kill", "freeze", "drain"], sessions=6, rest_s=0.3, quiet_s=1.0, lease_s=3.0, balancer="small"
    )
    drill = Drill(plan, tmp_path, WheelDatabase(postgres_url))
    await drill.run()
    assert [fault.name for fault in drill.faults] == list(plan.faults)
    assert drill.seen.turns >= plan.sessions
    assert drill.seen.resumed > 0  # some were under way when their worker was killed
    assert len(drill.claims) >= len(drill.workers)  # each took turns
    assert "| freeze | SIGSTOP" in report(drill)
