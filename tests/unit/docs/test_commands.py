"""Every command that the documentation shows is one that exists, with options and values that it takes.

Commands are parsed by the same parser as in a terminal, and not carried out; those of the tutorial are
(``test_tutorial.py``). Other programs (curl, docker, make) are checked for what they name of ours.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from everturn.cli.main import everturn

ROOT = Path(__file__).resolve().parents[3]
PAGES = [
    *ROOT.glob("*.md"),
    *sorted((ROOT / "docs").glob("*.md")),
]  # decisions say what was, not what to type
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`((?:sudo )?(?:everturn|make|scripts/\w+|python -m) [^`\n]+)`")
SHORTENED = re.compile(
    r"[|\[\]]|^(?!.*['\"]).*\.\.\."
)  # `everturn gateway status | pair`: a list of commands
VARIABLE = re.compile(r"\w+=\S*")


class Shown(str):
    """A command of a page, with the page's name."""

    page: str

    @classmethod
    def on(cls, page: Path, text: str) -> Shown:
        shown = cls(text)
        shown.page = page.name
        return shown


def shown_commands() -> Iterator[Shown]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for kind, block in BLOCK.findall(text):
            if kind in ("", "sh", "bash", "text"):
                for line in block.replace("\\\n", " ").splitlines():
                    yield from (Shown.on(page, part) for part in _split(line, spaced=kind in ("", "text")))
        for inline in INLINE.findall(BLOCK.sub("", text)):
            if not SHORTENED.search(inline):
                yield from (Shown.on(page, part) for part in _split(inline, spaced=False))


def _split(line: str, *, spaced: bool) -> Iterator[str]:
    """The simple commands of a line of a shell. ``spaced``: what follows after two blanks is an explanation."""
    line = line.strip().removeprefix("$ ")
    if spaced:
        line = re.split(r" {2,}", line)[0]
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|<>()")
        lexer.whitespace_split = True
        lexer.commenters = "#"
        words = list(lexer)
    except ValueError:
        return  # a piece of another language
    part: list[str] = []
    for word in [*words, ";"]:
        if set(word) <= set(";&|<>()"):
            if part:
                yield shlex.join(_bare(part))
            part = [] if set(word) <= set(";&|(") else ["(a file)"]
        else:
            part.append(word)


def _bare(words: list[str]) -> list[str]:
    """Without variables in front, and without the program that calls another."""
    while words and (VARIABLE.fullmatch(words[0]) or words[0] == "sudo"):
        words = words[1:]
    return words


COMMANDS = sorted({(command.page, str(command)) for command in shown_commands()})
OURS = [
    (page, words)
    for page, command in COMMANDS
    if (words := shlex.split(command)) and words[0].rsplit("/", 1)[-1] == "everturn" and len(words) > 1
]


def test_the_pages_show_commands() -> None:
    assert len(OURS) > 80
    assert {page for page, _ in OURS} >= {
        "README.md",
        "operations.md",
        "install.md",
        "gateway.md",
        "agent.md",
    }


def test_every_command_is_one_that_everturn_takes() -> None:
    problems = [problem for page, words in OURS if (problem := problem_of(words, page))]
    assert problems == []


def problem_of(words: list[str], page: str) -> str | None:
    shown = f"{page}: {shlex.join(words)}"
    try:
        parse(everturn, words[1:])
    except (click.exceptions.Exit, click.exceptions.NoArgsIsHelpError):
        return None  # --help, or a group that is only named
    except click.MissingParameter as error:
        return (
            None if len(words) < 6 else f"{shown}: {error.format_message()}"
        )  # `everturn gateway pair`: named
    except click.BadOptionUsage as error:
        return None if words[-1] == error.option_name else f"{shown}: {error.format_message()}"
    except click.UsageError as error:
        stands_for_another = any(word.isupper() or "…" in word for word in words)  # NAME, ses_…
        harmless = stands_for_another or "does not exist" in error.message
        return None if harmless else f"{shown}: {error.format_message()}"
    return None


def parse(command: click.Command, words: list[str], above: click.Context | None = None) -> None:
    """Read the words as a terminal's, down to the last command, and carry nothing out."""
    context = command.make_context(command.name, list(words), parent=above)
    if not isinstance(command, click.Group):
        return
    rest = [*context._protected_args, *context.args]
    if rest:
        name, inner, rest = command.resolve_command(context, rest)
        assert inner is not None, name
        parse(inner, rest, context)


def test_what_other_programs_are_given_exists() -> None:
    """Targets of make, our scripts, modules, and paths of our API."""
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    listed = re.findall(
        r"^\| `\w+ (/\S+)`", (ROOT / "docs" / "endpoints.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    paths = [re.compile(re.sub(r"{\w+}", "[^/]+", path)) for path in listed]
    wrong = []
    for page, command in COMMANDS:
        match shlex.split(command):
            case ["make", target, *_] if target not in targets and "=" not in target:
                wrong.append(f"{page}: {command}")
            case [script, *_] if (
                script.startswith("scripts/") and not script.endswith(".sh") and not (ROOT / script).exists()
            ):
                wrong.append(f"{page}: {command}")
            case ["python" | "python3", "-m", ("tests" | "benchmarks") as top, *_]:
                wrong.append(f"{page}: {command}: name a module of {top}")
            case ["python" | "python3", "-m", module, *_] if module.split(".")[0] in ("tests", "benchmarks"):
                if importlib.util.find_spec(module) is None:
                    wrong.append(f"{page}: {command}")
            case ["curl", *words]:
                for word in words:
                    path = (
                        re.sub(r"^(https?://[^/]+|\$base)", "", word)
                        .split("?")[0]
                        .replace("$session", "ses_x")
                    )
                    if path.startswith(("/api", "/v1")) and not any(known.fullmatch(path) for known in paths):
                        wrong.append(f"{page}: {command}")
    assert wrong == [], wrong
