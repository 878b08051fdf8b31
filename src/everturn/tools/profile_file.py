"""A profile as a file, to be shared: the table of config.toml that makes it. And what a profile allows, for
the person who imports one."""

from __future__ import annotations

import re
import tomllib
from typing import Final

import msgspec

from everturn.domain.errors import Invalid
from everturn.domain.json_types import Json, JsonObject
from everturn.tools.profile_book import check_profile, make_profile
from everturn.tools.profiles import Profile

FILE_CHARS_MAX: Final = 200_000
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\"\\]")
_CHOICE_OF_FILE: Final = "A file holds one profile: a table [profiles.NAME]."


class Grant(msgspec.Struct, frozen=True):
    """Something that a profile allows. ``what``: no_sandbox | network | hosts | tools | all_tools | mcp |
    skills | all_skills | packages | more_resources | model | default_model | memory | more_budget.
    ``names``: of the hosts, tools, servers, skills, packages, or the model."""

    what: str
    names: tuple[str, ...] = ()


GRANT_WORDS: Final = {
    "no_sandbox": "runs commands on the machine itself, without the sandbox",
    "network": "reaches the web from commands, each host after it was allowed once",
    "hosts": "reaches these hosts without asking",
    "tools": "uses these tools",
    "all_tools": "uses every built-in tool and every tool of your own",
    "mcp": "uses these MCP servers",
    "skills": "uses these skills",
    "all_skills": "uses every skill that is switched on",
    "more_resources": "lets commands use more memory, processes or disk",
    "packages": "asks you to install these Python packages",
    "model": "sends the conversation to this model",
    "default_model": "sends the conversation to the default model",
    "memory": "uses memory, and its sessions are remembered",
    "more_budget": "may spend more, or without a limit, before it asks",
}


_NOTHING: Final = Profile(tools=(), skills=())


def list_grants(wanted: Profile, own: Profile = _NOTHING) -> list[Grant]:
    """What ``wanted`` allows that ``own`` does not; without one, all that it allows."""
    found = []
    if own.sandbox and not wanted.sandbox:
        found.append(Grant("no_sandbox"))
    if wanted.network and not own.network:
        found.append(Grant("network"))
    found += _more("hosts", wanted.hosts, own.hosts)
    found += _more_or_all("tools", wanted.tools, own.tools)
    found += _more("mcp", wanted.mcp, own.mcp)
    found += _more_or_all("skills", wanted.skills, own.skills)
    found += _more("packages", wanted.packages, own.packages)
    if not wanted.limits.is_within(own.limits):
        found.append(Grant("more_resources"))
    if wanted.model is not None and wanted.model != own.model:
        found.append(Grant("model", (wanted.model,)))
    if wanted.model is None and own.model is not None:
        found.append(Grant("default_model"))
    if wanted.memory and not own.memory:
        found.append(Grant("memory"))
    budgets = ((wanted.budget_usd, own.budget_usd), (wanted.budget_tokens, own.budget_tokens))
    if any(_is_more(*budget) for budget in budgets):
        found.append(Grant("more_budget"))
    return found


def _is_more(wanted: float | None, own: float | None) -> bool:
    """Of limits that are none if they are not there."""
    return own is not None and (wanted is None or wanted > own)


def _more(what: str, wanted: tuple[str, ...], own: tuple[str, ...]) -> list[Grant]:
    new = tuple(name for name in wanted if name not in own)
    return [Grant(what, new)] if new else []


def _more_or_all(what: str, wanted: tuple[str, ...] | None, own: tuple[str, ...] | None) -> list[Grant]:
    """Of lists that mean all if they are not there."""
    if own is None:
        return []
    return [Grant(f"all_{what}")] if wanted is None else _more(what, wanted, own)


def describe_grant(grant: Grant) -> str:
    words = GRANT_WORDS[grant.what]
    return f"{words}: {', '.join(grant.names)}" if grant.names else words


def write_profile(profile: Profile) -> str:
    """The file. It holds what differs from a profile without settings, and the prompt."""
    table: JsonObject = msgspec.to_builtins(profile)
    usual: JsonObject = msgspec.to_builtins(Profile())
    lines = [f"[profiles.{profile.name}]"]
    for key, value in table.items():
        if key == "prompt" or (key != "name" and value != usual[key]):
            lines.append(f"{key} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def _toml(value: Json) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    if isinstance(value, str):
        return _toml_text(value)
    return repr(value)


def _toml_text(text: str) -> str:
    escaped = _CONTROL.sub(lambda found: _escape(found[0]), text)
    if "\n" not in text:
        return f'"{escaped}"'
    return f'"""\n{escaped}"""'


def _escape(char: str) -> str:
    return f"\\{char}" if char in '"\\' else f"\\u{ord(char):04x}"


def read_profile(text: str, name: str = "") -> Profile:
    """The profile in a file, under another name if one is given. Raises Invalid."""
    if len(text) > FILE_CHARS_MAX:
        raise Invalid(f"The file has {len(text):,} characters.", hint=f"It can have {FILE_CHARS_MAX:,}.")
    try:
        document: JsonObject = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Invalid(f"The file cannot be read: {error}. Nothing was changed.") from error
    tables = document.get("profiles")
    if set(document) != {"profiles"} or not isinstance(tables, dict) or len(tables) != 1:
        raise Invalid(
            f"This is not a profile. {_CHOICE_OF_FILE}", hint="'everturn profiles export' makes one."
        )
    ((found, table),) = tables.items()
    if not isinstance(table, dict) or "name" in table:
        raise Invalid(f"This is not a profile. {_CHOICE_OF_FILE}")
    if "prompt" not in table:
        raise Invalid("The file has no prompt.", hint="Add one: it is what the agent is told first.")
    profile = make_profile({**table, "name": name or found})
    check_profile(profile)
    return profile
