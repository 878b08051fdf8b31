"""Skills and prompts by name in chats: the owner's are for the owner, and a missing value is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from everturn.delivery import AccountService
from everturn.domain.clock import SystemClock
from everturn.domain.ids import Ids
from everturn.domain.probe import Probe
from everturn.domain.runtime import Runtime
from everturn.skills import SkillScope, build_skills
from everturn.store import Store
from everturn.testing.harness import OWNER, open_harness
from everturn.testing.platform import FakePlatform
from tests.serving import FAST, admit, arrived, services_of, serving
from tests.unit.skills.kit import content_of

pytestmark = pytest.mark.anyio


async def test_prompts_and_skills_are_named_in_a_chat(store: Store, data_dir: Path) -> None:
    clock = SystemClock()
    skills = build_skills(store, data_dir, Runtime(clock, Ids(clock), Probe()), owner=OWNER)
    content = content_of("restic-care")
    await skills.book.add(OWNER, [content], SkillScope.USER, "page")
    await skills.book.trust(OWNER, "user.restic-care", content.digest)
    await skills.prompts.save(OWNER, "weekly", "Sum up {{team}}.", "The week")
    platform = FakePlatform()
    script: tuple[Any, ...] = ("done", "done for bob")
    async with open_harness(store, *script, clock=clock) as h:
        services = msgspec.structs.replace(services_of(h), slash=skills.slash)
        async with serving(AccountService(platform.account, platform, admit, FAST, services)):
            platform.say("u1", "/skills")
            (listed,) = await arrived(platform, 1)
            assert "/restic-care" in listed
            assert "/weekly" in listed
            platform.say("u2", "/weekly")
            assert "needs team" in (await arrived(platform, 2))[1]
            platform.say("u3", "/weekly infra")
            await arrived(platform, 3)
            assert h.model.requests[0].messages[-1].text == "Sum up infra."
            platform.say("u4", "/weekly infra", sender="bob")
            await arrived(platform, 4)
            assert "/weekly infra" in h.model.requests[1].messages[-1].text
