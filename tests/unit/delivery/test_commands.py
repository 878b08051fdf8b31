"""Commands of a chat: what its help lists."""

from __future__ import annotations

import re

import pytest

from everturn.delivery.commands import HELP, help_for
from everturn.domain.delivery import SenderRole


@pytest.mark.parametrize(
    ("role", "named"),
    [
        (SenderRole.MEMBER, {"stop", "queue", "status"}),
        (
            SenderRole.GUEST,
            {"new", "sessions", "switch", "undo", "redo", "retry", "stop", "queue", "status"},
        ),
    ],
)
def test_help_lists_what_this_person_may_do(role: SenderRole, named: set[str]) -> None:
    assert set(re.findall(r"`/(\w+)", help_for(role))) == named


def test_the_owner_sees_all_of_it() -> None:
    assert help_for(SenderRole.OWNER) == HELP
