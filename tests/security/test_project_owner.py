"""From a project's folder to its owner's account: what the owner's Git, shell and editor pick up by themselves."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from everturn.domain.messages import Outcome
from everturn.domain.tool import ToolResult, Verdict
from everturn.tools.policy.guarded import ProjectGuard
from everturn.tools.policy.repositories import Repositories
from tests.unit.tools.kit import Kit

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

IDENTITY = {
    "GIT_AUTHOR_NAME": "o",
    "GIT_AUTHOR_EMAIL": "o@x",
    "GIT_COMMITTER_NAME": "o",
    "GIT_COMMITTER_EMAIL": "o@x",
}


def _git(folder: Path, *words: str) -> str:
    """As the owner does it, outside the sandbox."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "GIT_CONFIG_NOSYSTEM": "1", **IDENTITY}
    return subprocess.run(
        ["git", *words], cwd=folder, env=env, capture_output=True, text=True, check=False
    ).stdout


class Project:
    def __init__(self, kit: Kit, folder: Path) -> None:
        self.folder = folder
        self.kit = kit

    async def shell(self, command: str) -> ToolResult:
        return await self.kit.run("terminal", {"workspace": self.folder}, command=command)

    async def write(self, path: str) -> tuple[Verdict, str]:
        ruling = await self.kit.rule("write_file", {"workspace": self.folder}, path=path, content="evil")
        return ruling.verdict, ruling.reason

    async def write_anyway(self, path: str) -> ToolResult:
        return await self.kit.run("write_file", {"workspace": self.folder}, path=path, content="evil")

    @property
    def proof(self) -> Path:
        """What an attack makes if it runs outside the sandbox."""
        return self.folder.parent / "owned"

    @property
    def payload(self) -> str:
        return f"touch {self.proof}; false"

    def owner_works(self, *places: str) -> None:
        """The owner looks at the project: at its top, in the given folders and in every repository in it.

        A folder that a command made into a repository can have been renamed: then it is not in its place.
        """
        repositories = (path.parent for path in self.folder.rglob(".git"))
        named = (self.folder / place for place in places)
        for place in {self.folder, *repositories, *(path for path in named if path.is_dir())}:
            for words in (
                ("status",),
                ("diff",),
                ("commit", "--allow-empty", "-qm", "x"),
                ("checkout", "-q", "."),
            ):
                _git(place, *words)
        assert not self.proof.exists(), "code ran as the owner"


@pytest.fixture
def project(kit: Kit, tmp_path: Path) -> Project:
    folder = tmp_path / "project"
    folder.mkdir()
    _git(folder, "init", "-q", "-b", "main")
    (folder / "code.py").write_text("print(1)\n")
    _git(folder, "add", ".")
    _git(folder, "commit", "-qm", "first")
    return Project(kit, folder)


async def test_the_owners_way_to_be_attacked_is_real(project: Project) -> None:
    """The bait: the same attack, made outside the sandbox, runs."""
    _git(project.folder, "config", "core.fsmonitor", project.payload)
    _git(project.folder, "status")
    assert project.proof.exists()


# --- in the sandbox ---------------------------------------------------------------------------------


async def test_git_works_in_the_sandbox(project: Project) -> None:
    result = await project.shell(
        "set -e; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@x; "
        "git checkout -qb topic; echo 2 >> code.py; git add -A; git commit -qm second; "
        "git checkout -q main; echo n > new.txt; git add new.txt; git commit -qm third; "
        "git merge -q -m merged topic; git branch -d topic; git tag v1; "
        "echo 3 >> code.py; git stash -q; git stash pop -q; git restore code.py; "
        "git checkout -qb other HEAD~1; echo o > o.txt; git add .; git commit -qm o; git rebase -q main; "
        "git cherry-pick --no-commit HEAD; git reset -q --hard; git worktree add -q ../project/wt -b wt; "
        "(cd wt; echo w > w.txt; git add .; git commit -qm w); git worktree remove wt; git gc -q; git status -s; "
        "git log --oneline | wc -l; echo fine"
    )
    assert "fine" in result.text.splitlines(), result.text
    assert result.outcome is Outcome.OK
    assert "third" in _git(project.folder, "log", "--format=%s")
    assert _git(project.folder, "fsck", "--no-dangling") == ""


ATTACKS = {
    "config": "echo '[core] fsmonitor = PAYLOAD' >> .git/config",
    "git config": "git config core.fsmonitor 'PAYLOAD'",
    "hook": "printf '#!/bin/sh\\nPAYLOAD\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    "hooks moved": "mv .git/hooks .git/h; mkdir .git/hooks; "
    "printf '#!/bin/sh\\nPAYLOAD\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    "commondir": "cp -r .git /tmp/c; mkdir c; cp -r /tmp/c/. c; printf '[core]\\nfsmonitor = PAYLOAD\\n' >> c/config; "
    "echo ../c > .git/commondir",
    "worktree config": "printf '[core]\\nfsmonitor = PAYLOAD\\n' > .git/config.worktree",
    "git moved": "mv .git gone; git init -q; git config core.fsmonitor 'PAYLOAD'",
    "through a link": "ln -s .git s; echo '[core] fsmonitor = PAYLOAD' >> s/config",
}


@pytest.mark.parametrize("name", ATTACKS)
async def test_a_command_cannot_change_what_git_runs(project: Project, name: str) -> None:
    _git(project.folder, "config", "extensions.worktreeConfig", "true")
    result = await project.shell(ATTACKS[name].replace("PAYLOAD", project.payload))
    assert ".git" in result.text, "the result names what was refused"
    project.owner_works()
    assert _git(project.folder, "log", "--format=%s").endswith("first\n")


async def test_a_command_that_waits_for_the_owner_is_ended(project: Project) -> None:
    """It does not tidy up first, and need not end by itself."""
    result = await project.shell("cp -r .git c; echo ../c > .git/commondir; sleep 60; rm .git/commondir")
    assert result.outcome is Outcome.ERROR
    assert ".git/commondir was made or changed" in result.text
    assert not (project.folder / ".git" / "commondir").exists()


NESTED = {
    "fsmonitor": ("n", "git init -q n; git -C n config core.fsmonitor 'PAYLOAD'"),
    "deep": ("a/b/c", "git init -q a/b/c; git -C a/b/c config core.fsmonitor 'PAYLOAD'"),
    "hook": (
        "n",
        "git init -q n; printf '#!/bin/sh\\nPAYLOAD\\n' > n/.git/hooks/pre-commit; chmod +x n/.git/hooks/pre-commit",
    ),
    "bare": (
        "n",
        "git init -q --bare n; printf '[core]\\nbare=false\\nworktree=.\\nfsmonitor = PAYLOAD\\n' > n/config",
    ),
    "include": (
        "n",
        "git init -q n; printf '[core]\\nfsmonitor = PAYLOAD\\n' > n/more; git -C n config include.path ../more",
    ),
    "one line": ("n", "git init -q n; echo '[core] fsmonitor = PAYLOAD' >> n/.git/config"),
    "file": (
        "n",
        "git init -q store; git -C store config core.fsmonitor 'PAYLOAD'; mv store/.git hidden; mkdir n; "
        "echo 'gitdir: ../hidden' > n/.git",
    ),
    "link": (
        "n",
        "git init -q store; git -C store config core.fsmonitor 'PAYLOAD'; mv store/.git hidden; mkdir n; "
        "ln -s ../hidden n/.git",
    ),
    "in git's folder": (
        "n",
        "git init -q s; git -C s config core.fsmonitor 'PAYLOAD'; mv s/.git .git/objects/zz; mkdir n; "
        "echo 'gitdir: ../.git/objects/zz' > n/.git",
    ),
    "worktree": (
        "n",
        "git worktree add -q n -b n; cp -r .git c; printf '[core]\\nfsmonitor = PAYLOAD\\n' >> c/config; "
        "echo ../../../c > .git/worktrees/n/commondir",
    ),
}


@pytest.mark.parametrize("name", NESTED)
async def test_a_repository_that_a_command_makes_runs_nothing(project: Project, name: str) -> None:
    folder, command = NESTED[name]
    result = await project.shell(command.replace("PAYLOAD", project.payload))
    assert "renamed" in result.text, result.text
    project.owner_works(folder)


async def test_an_honest_repository_that_a_command_makes_stays(project: Project) -> None:
    result = await project.shell(
        "git init -q -b main demo; cd demo; git config user.name a; git config user.email a@x; echo x > x; "
        "git add x; git commit -qm demo; git clone -q . ../copy; git init -q --bare ../bare; git push -q ../bare main"
    )
    assert result.text == "[no output]"
    for name in ("demo", "copy"):
        assert _git(project.folder / name, "log", "--format=%s") == "demo\n"
        assert _git(project.folder / name, "status", "-s") == ""


async def test_a_nested_repository_of_the_owner_is_kept_too(project: Project) -> None:
    nested = project.folder / "vendor" / "lib"
    nested.mkdir(parents=True)
    _git(nested, "init", "-q")
    await project.shell(
        "git -C vendor/lib config core.fsmonitor 'PAYLOAD'".replace("PAYLOAD", project.payload)
    )
    moved = "mv vendor v; mkdir -p vendor/lib; cp -r v/lib/.git vendor/lib/.git; git -C vendor/lib config core.fsmonitor 'PAYLOAD'"
    await project.shell(moved.replace("PAYLOAD", project.payload))
    project.owner_works("vendor/lib", "v/lib")


async def test_hooks_elsewhere_in_the_project_are_kept(project: Project) -> None:
    hooks = project.folder / "tools" / "hooks"
    hooks.mkdir(parents=True)
    _git(project.folder, "config", "core.hooksPath", "tools/hooks")
    result = await project.shell(
        f"printf '#!/bin/sh\\n{project.payload}\\n' > tools/hooks/pre-commit; chmod +x tools/hooks/pre-commit"
    )
    assert "tools/hooks" in result.text.splitlines()[-1]
    project.owner_works()


NAMED = {
    "missing settings": ("config include.path ../conf/extra", "conf/extra"),
    "missing hooks": ("config core.hooksPath tools/hooks", "tools/hooks/pre-commit"),
    "missing program": ("config core.fsmonitor tools/watch", "tools/watch"),
    "the owner's own settings": ("config --global core.hooksPath git/hooks", "git/hooks/pre-commit"),
    "settings of a working tree": ("config --worktree core.hooksPath tools/hooks", "tools/hooks/pre-commit"),
}


@pytest.mark.parametrize("kind", NAMED)
async def test_what_settings_name_can_be_neither_made_nor_written_unasked(
    project: Project, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(project.folder.parent))
    words, name = NAMED[kind]
    _git(project.folder, "config", "extensions.worktreeConfig", "true")
    _git(project.folder, *words.split())
    code = f"[core]\nfsmonitor = {project.payload}" if "settings" in kind and "conf/" in name else "#!/bin/sh"
    lines = f"{code}\n{project.payload}\n" if code.startswith("#!") else f"{code}\n"
    await project.shell(f"mkdir -p {Path(name).parent}; printf '{lines}' > {name}; chmod +x {name}")
    project.owner_works()
    verdict, reason = await project.write(name)
    assert verdict is Verdict.ASK, reason


async def test_settings_that_are_included_name_files_too(project: Project) -> None:
    (project.folder / "conf").mkdir()
    (project.folder / "conf" / "extra").write_text("[core]\nhooksPath = tools/hooks\n")
    _git(project.folder, "config", "include.path", "../conf/extra")
    hook = (
        f"printf '#!/bin/sh\n{project.payload}\n' > tools/hooks/pre-commit; chmod +x tools/hooks/pre-commit"
    )
    await project.shell(f"mkdir -p tools/hooks; {hook}")
    project.owner_works()


async def test_a_working_tree_keeps_the_hooks_that_its_repository_names(project: Project) -> None:
    tree = Project(project.kit, project.folder / "tree")
    _git(project.folder, "config", "core.hooksPath", "tools/hooks")
    _git(project.folder, "worktree", "add", "-q", "tree")
    hook = f"printf '#!/bin/sh\n{tree.payload}\n' > tools/hooks/pre-commit; chmod +x tools/hooks/pre-commit"
    await tree.shell(f"mkdir -p tools/hooks; {hook}")
    tree.owner_works()
    assert (await tree.write("tools/hooks/pre-commit"))[0] is Verdict.ASK


async def test_what_an_editor_or_a_shell_runs_is_read_only_or_renamed(project: Project) -> None:
    (project.folder / ".vscode").mkdir()
    (project.folder / ".vscode" / "tasks.json").write_text("{}")
    result = await project.shell("echo evil > .vscode/tasks.json; echo evil > .envrc; mkdir .idea; echo done")
    assert (project.folder / ".vscode" / "tasks.json").read_text() == "{}"
    assert not (project.folder / ".envrc").exists()
    assert not (project.folder / ".idea").exists()
    assert "outside the sandbox: .vscode." in result.text
    assert ".envrc, .idea" in result.text


async def test_names_that_follow_a_pattern_are_read_only_or_renamed(project: Project) -> None:
    (project.folder / "lefthook-local.yml").write_text("mine")
    (project.folder / ".config").mkdir()
    (project.folder / ".config" / "mise.toml").write_text("mine")
    await project.shell(
        "echo evil > lefthook-local.yml; echo evil > .config/mise.toml; mv .config c; mkdir .config; "
        "echo evil > .config/lefthook.yml; echo evil > all.code-workspace; mkdir .run; echo evil > .vimrc; "
        "echo fine > .config/dotnet-tools.json"
    )
    names = {path.relative_to(project.folder).as_posix() for path in project.folder.rglob("*")}
    for harmful in (".config/lefthook.yml", "all.code-workspace", ".run", ".vimrc"):
        assert harmful not in names, harmful
    assert (project.folder / "lefthook-local.yml").read_text() == "mine"
    assert (project.folder / ".config" / "mise.toml").read_text() == "mine"
    assert ".config/dotnet-tools.json" in names


async def test_a_link_in_place_of_the_config_folder_is_renamed(project: Project) -> None:
    await project.shell("mkdir c; echo evil > c/lefthook.yml; ln -s c .config")
    assert not (project.folder / ".config").exists()


async def test_a_project_without_a_repository_may_get_an_honest_one(kit: Kit, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    project = Project(kit, folder)
    assert (await project.shell("git init -q -b main; git add .; git status -s")).text == "[no output]"
    assert _git(folder, "branch", "--show-current") == "main\n"


async def test_a_project_without_a_repository_does_not_get_a_harmful_one(kit: Kit, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    project = Project(kit, folder)
    result = await project.shell(f"git init -q; git config core.fsmonitor '{project.payload}'; sleep 60")
    assert ".git was made or changed" in result.text
    project.owner_works()


async def test_a_cancelled_command_leaves_nothing_behind_either(project: Project) -> None:
    await project.kit.run(
        "terminal",
        {"workspace": project.folder},
        command=f"git init -q n; git -C n config core.fsmonitor '{project.payload}'; sleep 60",
        timeout_s=1,
    )
    project.owner_works("n")


# --- servers of the owner that listen in the project -----------------------------------------------------


@pytest.fixture
def server(project: Project) -> Iterator[tuple[str, list[str]]]:
    """A server of the owner at a socket in the project; the name of the socket, and who came."""
    visits: list[str] = []
    (project.folder / "run").mkdir()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(project.folder / "run" / "own.sock"))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            visits.append("visit")
            connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield "run/own.sock", visits
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


CONNECT = "import socket; c = socket.socket(socket.AF_UNIX); c.connect('NAME'); print('reached')"


async def test_a_command_cannot_reach_a_server_of_the_owner_through_a_socket_file(
    project: Project, server: tuple[str, list[str]]
) -> None:
    name, visits = server
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(project.folder / name))
    tries = (
        f'python3 -c "{CONNECT.replace("NAME", name)}"',
        f'ln {name} other; python3 -c "{CONNECT.replace("NAME", "other")}"',
        f'mv run moved; python3 -c "{CONNECT.replace("NAME", "moved/own.sock")}"; mv moved run',
        f'rm -f {name}; mount --bind . /tmp; python3 -c "{CONNECT.replace("NAME", name)}"',
    )
    for command in tries:
        result = await project.shell(command)
        assert "reached" not in result.text.replace("print('reached')", ""), command
    assert "a program outside it may listen there: run/own.sock" in result.text
    assert visits == ["visit"]
    assert (project.folder / name).is_socket()


async def test_a_socket_that_a_command_left_is_the_next_commands_to_use(project: Project) -> None:
    bind = "import os, socket; s = socket.socket(socket.AF_UNIX); s.bind('own.sock'); s.listen()"
    again = f"{bind}; {CONNECT.replace('NAME', 'own.sock')}"
    assert (await project.shell(f'python3 -c "{bind}"')).text == "[no output]"
    assert (project.folder / "own.sock").is_socket()
    assert (await project.shell(f'rm own.sock; python3 -c "{again}"')).text == "reached"


# --- the file tools ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".git/commondir",
        "sub/.git/hooks/pre-commit",
        ".GIT/config",
        ".vscode/tasks.json",
        ".envrc",
        "sub/.envrc",
        ".husky/pre-commit",
        ".idea/workspace.xml",
        "sub/.vimrc",
        "my.code-workspace",
        ".config/lefthook.yml",
        "bare/config",
        "half/HEAD",
    ],
)
async def test_file_tools_ask_before_they_write_what_the_owner_runs(project: Project, path: str) -> None:
    _git(project.folder, "init", "-q", "--bare", "bare")
    (project.folder / "half" / "objects").mkdir(parents=True)
    (project.folder / "half" / "refs").mkdir()
    assert (await project.write(path))[0] is Verdict.ASK


@pytest.mark.parametrize("path", ["s/config", "d/../s/config", "t/config", "e"])
async def test_a_link_to_what_the_owner_runs_is_no_way_to_write_it(project: Project, path: str) -> None:
    before = (project.folder / ".git" / "config").read_text()
    (project.folder / "s").symlink_to(".git")
    (project.folder / "d").mkdir()
    (project.folder / "t").symlink_to("s")
    (project.folder / "e").symlink_to(".envrc")
    verdict, reason = await project.write(path)
    if path != "e":  # a link in the last place is not followed by a write, which says so itself
        assert (verdict, ".git/config" in reason) == (Verdict.DENY, True)
    result = await project.write_anyway(path)
    assert result.outcome is Outcome.ERROR
    assert (project.folder / ".git" / "config").read_text() == before
    assert not (project.folder / ".envrc").exists()


async def test_a_link_that_is_swapped_in_after_the_judgement_is_no_way_either(project: Project) -> None:
    (project.folder / "s").mkdir()
    assert (await project.write("s/config"))[0] is Verdict.ALLOW
    (project.folder / "s").rmdir()
    (project.folder / "s").symlink_to(".git")
    result = await project.write_anyway("s/config")
    assert "leads to .git/config through a link" in result.text
    assert "evil" not in (project.folder / ".git" / "config").read_text()


async def test_an_ordinary_link_is_still_followed(project: Project) -> None:
    (project.folder / "docs").mkdir()
    (project.folder / "d").symlink_to("docs")
    assert (await project.write("d/a.md"))[0] is Verdict.ALLOW
    assert (await project.write_anyway("d/a.md")).outcome is Outcome.OK
    assert (project.folder / "docs" / "a.md").read_text() == "evil"


async def test_many_repositories_do_not_hide_a_harmful_one(project: Project) -> None:
    for number in range(60):
        _git(project.folder, "init", "-q", f"own/r{number}")
    result = await project.shell(
        f"for n in $(seq 60); do git init -q made/r$n; done; git init -q z/z/z; "
        f"git -C z/z/z config core.fsmonitor '{project.payload}'"
    )
    assert "renamed" in result.text
    assert "z/z/z/.git/config" in result.text
    changed = (
        "for n in $(seq 0 59); do echo '[core] fsmonitor = PAYLOAD' >> own/r$n/.git/config; done; sleep 60"
    )
    result = await project.shell(changed.replace("PAYLOAD", project.payload))
    assert "was made or changed" in result.text
    project.owner_works("z/z/z", *(f"own/r{number}" for number in range(60)))


async def test_settings_that_the_owner_changes_meanwhile_do_not_open_a_way(project: Project) -> None:
    """Git replaces the file, and with the old file the kernel takes away its mount."""
    _git(project.folder, "config", "core.editor", "vim")
    command = (
        "echo ready > ready; while ! printf '[core]\\n\\tfsmonitor = PAYLOAD\\n' 2>/dev/null >> .git/config; "
        "do :; done; sleep 60"
    )
    results = []
    async with anyio.create_task_group() as group:

        async def run() -> None:
            results.append(await project.shell(command.replace("PAYLOAD", project.payload)))

        group.start_soon(run)
        with anyio.fail_after(60):
            while not await anyio.Path(project.folder / "ready").exists():
                await anyio.sleep(0.02)
        _git(project.folder, "config", "remote.origin.url", "https://example.org/x")
    assert ".git/config was made or changed" in results[0].text
    project.owner_works()
    assert _git(project.folder, "config", "core.editor") == "vim\n"


async def test_what_the_owner_sets_meanwhile_stays_if_it_is_harmless(project: Project) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(project.shell, "echo ready > ready; sleep 60")
        with anyio.fail_after(60):
            while not await anyio.Path(project.folder / "ready").exists():
                await anyio.sleep(0.02)
        _git(project.folder, "config", "remote.origin.url", "https://example.org/x")
    assert _git(project.folder, "config", "remote.origin.url") == "https://example.org/x\n"


@pytest.fixture
def ordinary_folder() -> Iterator[Path]:
    """A folder of an ordinary user, who we are in the test: root may list every folder."""
    folder = Path(tempfile.mkdtemp())
    user = os.geteuid()
    if user == 0:
        os.chown(folder, 60601, 60601)
        os.seteuid(60601)
    try:
        yield folder
    finally:
        os.seteuid(user)
        subprocess.run(["chmod", "-R", "u+rwX", folder], check=True)
        shutil.rmtree(folder)


@pytest.mark.parametrize("mode", [0o311, 0o444, 0])
def test_a_folder_that_cannot_be_listed_hides_no_repository(ordinary_folder: Path, mode: int) -> None:
    guard = ProjectGuard(ordinary_folder, Repositories(str(ordinary_folder)))
    hidden = ordinary_folder / "hidden"
    (hidden / ".git").mkdir(parents=True)
    (hidden / ".git" / "config").write_text("[core]\n\tfsmonitor = evil\n")
    hidden.chmod(mode)
    assert guard.rename_harmful() == ["hidden"]
    assert not hidden.exists()


@pytest.mark.parametrize("mode", [0o311, 0o444, 0])
def test_a_project_that_cannot_be_listed_hides_nothing(ordinary_folder: Path, mode: int) -> None:
    guard = ProjectGuard(ordinary_folder, Repositories(str(ordinary_folder)))
    (ordinary_folder / ".envrc").write_text("evil")
    (ordinary_folder / "n" / ".git").mkdir(parents=True)
    (ordinary_folder / "n" / ".git" / "config").write_text("[core]\n\tfsmonitor = evil\n")
    ordinary_folder.chmod(mode)
    assert sorted(guard.rename_harmful()) == [".envrc", "n/.git/config"]


def test_a_closed_folder_of_the_owner_stays(ordinary_folder: Path) -> None:
    own = ordinary_folder / "own"
    own.mkdir(mode=0o311)
    guard = ProjectGuard(ordinary_folder, Repositories(str(ordinary_folder)))
    assert guard.rename_harmful() == []
    own.chmod(0o711)
    (own / ".git").mkdir()
    own.chmod(0o311)
    assert guard.rename_harmful() == ["own"]
