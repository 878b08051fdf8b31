"""A process is killed while it imports or trusts skills: each skill is whole afterwards, what was trusted is in use,
and doing it again completes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from everturn.domain.probe import Moment, Probe
from everturn.skills import SkillScope
from everturn.store import open_store
from tests.crash.skill_work import NEW, OLD, OWNER, built, work
from tests.crash.test_kill import KILLED

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("what", "moment"),
    [("import", Moment.BLOB_WRITTEN), ("import", Moment.SKILL_STORED), ("trust", Moment.SKILL_STORED)],
)
async def test_a_killed_import_or_decision_leaves_whole_skills(
    what: str, moment: Moment, store_url: str, data_dir: Path
) -> None:
    async with open_store(store_url, data_dir=data_dir) as store:
        book = built(store, data_dir, Probe()).book
        await book.add(OWNER, [OLD], SkillScope.USER, "page")
        await book.trust(OWNER, "user.photos", OLD.digest)
        if what == "trust":
            await book.add(OWNER, [NEW], SkillScope.USER, "page")
    command = [sys.executable, "-m", "tests.crash.skill_work", store_url, str(data_dir), what, moment]
    killed = await anyio.to_thread.run_sync(
        lambda: subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    )
    assert killed.returncode == KILLED, killed.stderr
    async with open_store(store_url, data_dir=data_dir) as store:
        book = built(store, data_dir, Probe()).book
        for skill in await book.list(OWNER):
            for version in (skill.found, skill.trusted, *skill.earlier):
                if version is not None:
                    assert set(await book.load(version)) == {file.path for file in version.files}
        photos = await book.get(OWNER, "user.photos")
        assert photos.trusted is not None
        assert photos.trusted.digest == OLD.digest, "nobody was told that the new one is trusted"
        await work(store, data_dir, what, Probe())
        photos = await book.get(OWNER, "user.photos")
        assert photos.found is not None
        assert photos.found.digest == NEW.digest
        expected = {"user.photos", "user.receipts"} if what == "import" else {"user.photos"}
        assert {skill.id for skill in await book.list(OWNER)} == expected
