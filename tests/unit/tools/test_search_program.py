from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from everturn.domain.messages import Outcome
from tests.unit.tools.kit import Kit

pytestmark = pytest.mark.anyio

TREE: dict[str, bytes | str] = {
    "README.md": "# Title\nneedle here\n",
    "src/app.py": "import os\n\ndef needle():\n    return 'Needle'\n",
    "src/deep/er/mod.py": "x = 1\nneedle = 2\r\n",
    "src/data.bin": b"needle\0binary",
    "build/out.txt": "needle in build\n",
    "keep.log": "needle in a log that is brought back\n",
    "drop.log": "needle in a log\n",
    ".hidden/secret.txt": "needle hidden\n",
    ".env": "needle=1\n",
    "docs/a.md": "no match\n",
    "docs/tmp/x.md": "needle\n",
    "docs/only.tmp": "needle\n",
    "sub/only.tmp": "needle\n",
    "anchored.txt": "needle\n",
    "sub/anchored.txt": "needle\n",
    "a b/spaced name.txt": "needle\n",
    "ünïcode/naïve.txt": "needle ß\n",
    "empty.txt": "",
    "noeol.txt": "last needle",
    "x/foo1.txt": "needle\n",
    "x/foo2.txt": "needle\n",
    "x/sub/foo1.txt": "needle\n",
    "ignored_by_dot_ignore.txt": "needle\n",
    ".gitignore": (
        "/build/\n*.log\n!keep.log\n/anchored.txt\ndocs/tmp\n# comment\n\nx/foo[2-9].txt\n**/never/**\n"
    ),
    "docs/.gitignore": "*.tmp\n",
    ".ignore": "ignored_by_*\n",
}


def _grow(root: Path) -> None:
    for name, content in TREE.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (root / ".git").mkdir()
    (root / "link.txt").symlink_to("README.md")
    (root / "linked").symlink_to("src")


def _rg(root: Path, *options: str) -> set[str]:
    done = subprocess.run(
        [
            "rg",
            "--no-config",
            "--no-heading",
            "--crlf",
            "--line-number",
            "--color=never",
            "--no-ignore-global",
            *options,
            ".",
        ],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return {line.removeprefix("./").rstrip("\r") for line in done.stdout.splitlines()}


@pytest.mark.skipif(shutil.which("rg") is None, reason="compares with ripgrep")
@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        (["needle"], {"pattern": "needle"}),
        (["-i", "needle"], {"pattern": "needle", "ignore_case": True}),
        (["-F", "needle()"], {"pattern": "needle()", "literal": True}),
        (["-g", "*.py", "needle"], {"pattern": "needle", "glob": "*.py"}),
        (["-g", "src/**/*.py", "needle"], {"pattern": "needle", "glob": "src/**/*.py"}),
        (["-g", "!*.md", "needle"], {"pattern": "needle", "glob": "!*.md"}),
        (["-g", "*.{md,py}", "needle"], {"pattern": "needle", "glob": "*.{md,py}"}),
        (["-g", "/*.txt", "needle"], {"pattern": "needle", "glob": "/*.txt"}),
        (["-uu", "-g", "!.git", "needle"], {"pattern": "needle", "everything": True}),
        ([r"^needle\b.*\d$"], {"pattern": r"^needle\b.*\d$"}),
        (["needle$"], {"pattern": "needle$"}),
        (["ß|ï"], {"pattern": "ß|ï"}),
    ],
)
async def test_the_same_lines_are_found_as_by_ripgrep(
    kit: Kit, options: list[str], arguments: dict[str, Any]
) -> None:
    _grow(kit.workspace)
    ours = (await kit.run("search_files", **arguments)).text.splitlines()
    theirs = _rg(kit.workspace, *options)
    if "-g" in options and "-uu" not in options:
        theirs &= _rg(kit.workspace, options[-1])  # a glob of ours brings nothing back
    assert theirs
    assert set(ours) == theirs


@pytest.mark.skipif(shutil.which("rg") is None, reason="compares with ripgrep")
async def test_the_same_files_are_listed_as_by_ripgrep(kit: Kit) -> None:
    _grow(kit.workspace)
    for options, glob in (
        ([], "*"),
        (["-g", "**/*.txt"], "**/*.txt"),
        (["-g", "docs/**"], "docs/**"),
    ):
        shown = (await kit.run("list_files", glob=glob)).text.splitlines()
        ours = {row.split("\t")[0] for row in shown[:-1] if not row.endswith("(link)")}  # the last counts
        theirs = set(_files(kit.workspace, options)) & set(_files(kit.workspace, []))
        assert ours == theirs


def _files(root: Path, options: list[str]) -> list[str]:
    done = subprocess.run(
        ["rg", "--no-config", "--files", "--no-ignore-global", *options],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


async def test_a_file_with_a_mark_of_its_encoding_is_text(kit: Kit) -> None:
    (kit.workspace / "wide.txt").write_bytes("naïve\r\nend\r\n".encode("utf-16"))
    (kit.workspace / "marked.txt").write_bytes("naïve\n".encode("utf-8-sig"))
    (kit.workspace / "binary").write_bytes("naïve\0".encode())
    found = await kit.run("search_files", pattern="^naïve$")
    assert found.text.splitlines() == ["marked.txt:1:naïve", "wide.txt:1:naïve"]


async def test_a_name_that_is_no_text_is_listed(kit: Kit) -> None:
    with open(os.fsencode(kit.workspace) + b"/bad\xff.txt", "w") as file:
        file.write("word\n")
    calls: list[tuple[str, dict[str, Any]]] = [("list_files", {}), ("search_files", {"pattern": "word"})]
    for name, arguments in calls:
        result = await kit.run(name, **arguments)
        assert result.outcome is Outcome.OK
        assert result.text.encode().startswith(b"bad")


async def test_context_lines_are_marked(kit: Kit) -> None:
    _grow(kit.workspace)
    result = await kit.run("search_files", pattern="def needle", context=1)
    assert result.text == "src/app.py-2-\nsrc/app.py:3:def needle():\nsrc/app.py-4-    return 'Needle'"
    assert result.display == {"kind": "search", "matches": 1, "files": 1}


async def test_listing_shows_one_level_and_more_when_asked(kit: Kit) -> None:
    _grow(kit.workspace)
    assert (await kit.run("list_files", path="src")).text == (
        "src/app.py\t45 bytes\nsrc/data.bin\t13 bytes\nsrc/deep/\n[2 files, 1 folder]"
    )
    assert "src/deep/er/" in (await kit.run("list_files", path="src", depth=2)).text
    assert ".env" in (await kit.run("list_files", everything=True)).text
    assert ".env" not in (await kit.run("list_files")).text


async def test_an_invalid_pattern_says_so(kit: Kit) -> None:
    result = await kit.run("search_files", pattern="(unclosed")
    assert result.outcome is Outcome.ERROR
    assert "not a valid regular expression" in result.text
    for pattern in ("nowhere", "app.py"):
        text = (await kit.run("search_files", pattern=pattern)).text
        assert text == "[no match in the text of any file; names of files are not searched]"
    missing = await kit.run("search_files", pattern="x", path="not/there")
    assert missing.outcome is Outcome.ERROR


async def test_a_pattern_without_end_is_stopped(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    (kit.workspace / "a.txt").write_text("a" * 5000 + "!\n")
    monkeypatch.setattr("everturn.tools.files.search_tools._TIMEOUT_S", 1.0)
    result = await kit.run("search_files", pattern=r"(a+)+$")
    assert result.outcome is Outcome.ERROR
    assert "stopped" in result.text


async def test_many_matches_are_cut_with_a_note(kit: Kit) -> None:
    (kit.workspace / "many.txt").write_text("hit\n" * 2000)
    text = (await kit.run("search_files", pattern="hit")).text
    assert text.count("many.txt:") == 500
    assert "more matches" in text


async def test_it_works_without_a_sandbox_too(bare_kit: Kit) -> None:
    _grow(bare_kit.workspace)
    assert "README.md:2:needle here" in (await bare_kit.run("search_files", pattern="needle")).text
