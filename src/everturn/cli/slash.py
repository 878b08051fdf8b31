"""Skills and prompts by name, for clients of a running server: what can be completed, and what a line stands
for."""

from __future__ import annotations

from typing import Literal

import msgspec

from everturn.cli.client import Client, ServerRefused


class SlashVariable(msgspec.Struct, frozen=True):
    name: str
    default: str | None = None


class SlashName(msgspec.Struct, frozen=True):
    name: str
    kind: Literal["skill", "prompt"]
    description: str = ""
    variables: tuple[SlashVariable, ...] = ()


class _Names(msgspec.Struct, frozen=True):
    items: tuple[SlashName, ...]


async def slash_names(client: Client, session: str | None) -> tuple[SlashName, ...]:
    """What can follow a slash besides commands, for completion. Raises ServerRefused, ServerUnreachable."""
    query = f"?session={session}" if session else ""
    return msgspec.convert(await client.call("GET", f"/api/slash{query}"), _Names).items


async def expand_slash(client: Client, session: str | None, line: str) -> str:
    """The message to send for a line that begins with a slash and is not a command: a prompt's text with its
    values, or the line as it is, which the server reads as a skill if it names one.

    Raises ServerRefused, with a sentence that says which values are missing; ServerUnreachable.
    """
    answer = await client.call(
        "POST", "/api/slash", {"line": line, **({"session": session} if session else {})}
    )
    if not isinstance(answer, dict):
        raise ServerRefused("The server's answer cannot be read.", hint="Update the server.")
    return str(answer["text"])
