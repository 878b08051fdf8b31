"""Projects may lie in each other: a command in the outer one can put a link where the inner one was.

The inner session must not follow it: the person agreed to a folder, not to where a link leads later.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from everturn.domain.errors import Invalid
from everturn.domain.messages import Outcome
from everturn.domain.sessions import NewSession, SessionPatch
from everturn.testing.harness import open_harness
from everturn.tools.paths import FolderHandle
from everturn.tools.policy.guarded import GuardedMount
from everturn.tools.sandbox.sandbox import Sandbox
from everturn.tools.sandbox.view import SandboxView
from everturn.tools.workspaces import Workspaces
from tests.unit.tools.kit import OWNER, SESSION, Kit

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
SECRET = "the-bait-4711"


@pytest.fixture
def inner(tmp_path: Path) -> Path:
    """A project in a project, and a folder of the owner's that belongs to neither."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text(SECRET)
    folder = tmp_path / "outer" / "packages" / "inner"
    folder.mkdir(parents=True)
    return folder


def swap(inner: Path, name: str) -> None:
    """What a command in the outer project does: a link in place of the inner one or of a folder above it."""
    outside = inner.parents[2] / "outside"
    if name == "inner":
        inner.rename(inner.with_name("moved"))
        inner.symlink_to(outside)
    else:
        inner.parent.rename(inner.parent.with_name("moved"))
        (outside / "inner").mkdir()
        (outside / "inner" / "secret").write_text(SECRET)
        inner.parent.symlink_to(outside)


@pytest.mark.parametrize("name", ["inner", "packages"])
async def test_a_project_that_became_a_link_is_refused(kit: Kit, inner: Path, name: str) -> None:
    assert await kit.toolbox.workspace(OWNER, SESSION, str(inner)) == inner
    swap(inner, name)
    with pytest.raises(Invalid, match="link"):
        await kit.toolbox.workspace(OWNER, SESSION, str(inner))


@pytest.mark.parametrize("name", ["inner", "packages"])
async def test_a_link_put_there_after_the_check_shows_nothing(kit: Kit, inner: Path, name: str) -> None:
    workspace = {"workspace": await kit.toolbox.workspace(OWNER, SESSION, str(inner))}
    swap(inner, name)
    for tool, arguments in (
        ("terminal", {"command": "cat secret; echo x > made"}),
        ("python", {"code": "print(open('secret').read())"}),
        ("read_file", {"path": "secret"}),
        ("search_files", {"pattern": "bait"}),
        ("list_files", {}),
        ("write_file", {"path": "made", "content": "x"}),
    ):
        try:
            said = (await kit.run(tool, workspace, **arguments)).text
        except OSError as error:
            said = str(error)
        assert SECRET not in said, tool
        assert "secret" not in said or tool != "list_files"
    assert not list((inner.parents[2] / "outside").rglob("made"))


async def test_a_link_put_there_while_the_sandbox_is_built_ends_the_call(
    kit: Kit, inner: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Sandbox.seen_folders

    def look_then_swap(sandbox: Sandbox, view: SandboxView) -> tuple[GuardedMount, ...]:
        seen = look(sandbox, view)
        swap(inner, "packages")
        return seen

    monkeypatch.setattr(Sandbox, "seen_folders", look_then_swap)
    result = await kit.run("terminal", {"workspace": inner}, command="cat secret; echo x > made")
    assert result.outcome is Outcome.ERROR
    assert SECRET not in result.text
    assert not list((inner.parents[2] / "outside").rglob("made"))


async def test_a_handle_is_of_a_folder_without_links_on_its_path(inner: Path) -> None:
    swap(inner, "packages")
    with pytest.raises(OSError, match="link"):
        FolderHandle(inner)


async def test_a_session_keeps_the_real_path_of_the_folder_that_was_named(store, clock, inner: Path) -> None:
    link = inner.parents[2] / "link"
    link.symlink_to(inner)
    async with open_harness(store, clock=clock) as h:
        session = await h.engine.create_session(OWNER, NewSession(project=str(link)))
        assert session.project == str(inner)
        patch = SessionPatch(project=str(link))
        changed = await h.engine.change_session(OWNER, session.id, patch)
        assert changed.project == str(inner)


async def test_a_project_is_kept_by_its_name_with_two_dots(tmp_path: Path, inner: Path) -> None:
    """Not every name that differs from the real one has a link in it."""
    assert Workspaces(tmp_path / "home").of_project(f"{inner}/../inner/") == inner
