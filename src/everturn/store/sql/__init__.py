"""The store's SQL: numbered schemas and named queries, read from the files beside this one."""

from __future__ import annotations

import re
from importlib import resources

from everturn.domain.errors import EverturnError

_ENTRY = re.compile(r"^-- (name|macro): (\w+)\s*$", re.MULTILINE)
_MACRO = re.compile(r"\{(\w+)((?::[^:{}]+)*)\}")


def schema(number: int, dialect: str) -> str:
    """The statements of migration ``number`` for this database."""
    for file in resources.files(__name__).iterdir():
        if file.name.startswith(f"{number:03d}_") and file.name.endswith(f".{dialect}.sql"):
            return file.read_text(encoding="utf-8")
    raise EverturnError(f"There is no schema {number} for {dialect} in this installation.")


def all_schemas(dialect: str) -> str:
    """The statements of all migrations for this database."""
    files = (file for file in resources.files(__name__).iterdir() if file.name.endswith(f".{dialect}.sql"))
    return "".join(file.read_text(encoding="utf-8") for file in files)


def queries(dialect: str) -> dict[str, str]:
    """All queries of this database by name, macros expanded."""
    names: dict[str, str] = {}
    macros: dict[str, str] = {}
    own = f"queries.{dialect}.sql"
    subjects = ("delivery", "jobs", "schedules", "budgets", "delegates", "notifications")
    for file in ("queries.sql", *(f"queries.{subject}.sql" for subject in subjects), own):
        text = resources.files(__name__).joinpath(file).read_text(encoding="utf-8")
        for kind, name, body in _entries(text):
            (names if kind == "name" else macros)[name] = body
    return {name: _MACRO.sub(lambda match: _expand(match, macros), body) for name, body in names.items()}


def _expand(match: re.Match[str], macros: dict[str, str]) -> str:
    body = macros[match[1]]
    for index, argument in enumerate(match[2].split(":")[1:], start=1):
        body = body.replace(f"%{index}", argument)
    return body


def _entries(text: str) -> list[tuple[str, str, str]]:
    found = list(_ENTRY.finditer(text))
    ends = [*(match.start() for match in found[1:]), len(text)]
    return [
        (match[1], match[2], _without_comments(text[match.end() : end]))
        for match, end in zip(found, ends, strict=True)
    ]


def _without_comments(body: str) -> str:
    return "\n".join(line for line in body.splitlines() if not line.startswith("--")).strip()
