"""What can be typed after a slash: the library of prompts, and the names of skills."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from everturn.domain import errors as e
from everturn.domain.store import Sessions
from everturn.skills import MissingValues, Prompt, PromptBook, Slash, SlashEntry, Variable, read_line
from everturn.tools import EverturnToolbox
from everturn.tools.mcp.profile_servers import OfferedPrompt
from everturn.web.access.identity import Scope
from everturn.web.api.sessions import SessionId
from everturn.web.http.routing import AnyEndpoint, ApiCall, Endpoint, Nothing

_TEXT_CHARS_MAX = 32_000
_NAMED = re.compile(r"/([a-z0-9-]{1,64})(?:\s+|$)(.*)", re.S)


class PromptOut(msgspec.Struct, frozen=True):
    name: str
    text: str
    description: str
    variables: tuple[Variable, ...]
    changed_at: int
    is_from_file: bool


class PromptList(msgspec.Struct, frozen=True):
    """``problems``: files of the data folder that are no prompts, with the reason."""

    items: tuple[PromptOut, ...]
    problems: dict[str, str] = {}


class SavePrompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(max_length=_TEXT_CHARS_MAX)]
    description: Annotated[str, Meta(max_length=300)] = ""


class SlashQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``session``: whose profile and project count; none: those of a new session with ``profile``."""

    session: SessionId | None = None
    profile: Annotated[str, Meta(max_length=100)] | None = None


class SlashList(msgspec.Struct, frozen=True):
    items: tuple[SlashEntry, ...]


class ExpandSlash(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Either ``line``, as it was typed, or the ``name`` of a prompt with ``values``."""

    line: Annotated[str, Meta(max_length=200_000)] = ""
    session: SessionId | None = None
    name: Annotated[str, Meta(max_length=64)] = ""
    values: dict[str, Annotated[str, Meta(max_length=100_000)]] = {}


class Expanded(msgspec.Struct, frozen=True):
    """``text``: what to send. ``is_prompt``: the line named a prompt; otherwise it is sent as it was
    typed."""

    text: str
    is_prompt: bool


class PromptsApi:
    def __init__(
        self, prompts: PromptBook, slash: Slash, sessions: Sessions, toolbox: EverturnToolbox
    ) -> None:
        self._prompts = prompts
        self._slash = slash
        self._sessions = sessions
        self._toolbox = toolbox

    def endpoints(self) -> list[AnyEndpoint]:
        tag = "prompts"
        return [
            Endpoint(
                method="GET",
                path="/api/prompts",
                run=self.list,
                summary="The library of prompts.",
                tag=tag,
                answer=PromptList,
            ),
            Endpoint(
                method="PUT",
                path="/api/prompts/{prompt}",
                run=self.save,
                summary="Make or replace a prompt.",
                tag=tag,
                scope=Scope.ADMIN,
                body=SavePrompt,
                answer=PromptOut,
                errors=(e.Invalid,),
            ),
            Endpoint(
                method="DELETE",
                path="/api/prompts/{prompt}",
                run=self.remove,
                summary="Remove a prompt.",
                tag=tag,
                scope=Scope.ADMIN,
                status=204,
                errors=(e.NotFound,),
            ),
            Endpoint(
                method="GET",
                path="/api/slash",
                run=self.names,
                summary="The skills and prompts that can be named with a slash.",
                tag=tag,
                query=SlashQuery,
                answer=SlashList,
                errors=(e.NotFound, e.Gone, e.Invalid),
            ),
            Endpoint(
                method="POST",
                path="/api/slash",
                run=self.expand,
                summary="The message that a prompt or a typed line stands for. Nothing is sent.",
                tag=tag,
                scope=Scope.CHAT,
                body=ExpandSlash,
                answer=Expanded,
                errors=(e.NotFound, e.Gone, e.Invalid, MissingValues),
            ),
        ]

    async def list(self, call: ApiCall[Nothing, Nothing]) -> PromptList:
        found = await self._prompts.list(call.owner)
        return PromptList(tuple(map(_out, found)), dict(self._prompts.problems))

    async def save(self, call: ApiCall[Nothing, SavePrompt]) -> PromptOut:
        body = call.body
        return _out(await self._prompts.save(call.owner, call.path["prompt"], body.text, body.description))

    async def remove(self, call: ApiCall[Nothing, Nothing]) -> None:
        await self._prompts.remove(call.owner, call.path["prompt"])

    async def names(self, call: ApiCall[SlashQuery, Nothing]) -> SlashList:
        return SlashList(tuple(await self._names(call.owner, call.query.session, call.query.profile)))

    async def expand(self, call: ApiCall[Nothing, ExpandSlash]) -> Expanded:
        body = call.body
        if (text := await self._server_prompt(call.owner, body)) is not None:
            return Expanded(text, True)
        if body.name:
            return Expanded(await self._slash.fill(call.owner, body.name, body.values), True)
        names = await self._names(call.owner, body.session, None)
        skills = [one.name for one in names if one.kind == "skill"]
        text = await self._slash.expand(call.owner, body.line, skills)
        return Expanded(body.line if text is None else text, text is not None)

    async def _names(self, owner: str, session_id: str | None, profile: str | None) -> Sequence[SlashEntry]:
        workspace: Path | None = None
        if session_id is not None:
            session = await self._sessions.get(owner, session_id)
            profile = profile or session.profile
            if session.project is not None:
                workspace = await self._toolbox.workspace(owner, session.id, session.project)
        own = await self._slash.list(owner, profile, workspace)
        return self._with_servers(own, await self._toolbox.mcp.offered_prompts(owner, profile))

    def _with_servers(
        self, own: Sequence[SlashEntry], offered: Mapping[str, OfferedPrompt]
    ) -> Sequence[SlashEntry]:
        """With the prompts of MCP servers. One of the user's own hides one of that name."""
        found = {
            name: SlashEntry(name, "prompt", one.prompt.description, _variables(one))
            for name, one in offered.items()
        }
        found.update({one.name: one for one in own})
        return [found[name] for name in sorted(found)]

    async def _server_prompt(self, owner: str, body: ExpandSlash) -> str | None:
        """The text of an MCP server's prompt, if that is what is named. Raises Invalid, MissingValues."""
        match = _NAMED.match(body.line)
        name = body.name or (match[1] if match else "")
        profile = None
        if body.session is not None:
            profile = (await self._sessions.get(owner, body.session)).profile
        found = (await self._toolbox.mcp.offered_prompts(owner, profile)).get(name)
        if found is None or any(one.name == name for one in await self._prompts.list(owner)):
            return None
        variables = _variables(found)
        values, rest = (body.values, "") if body.name or not match else read_line(variables, match[2])
        missing = [one.name for one in variables if one.default is None and not values.get(one.name)]
        if missing:
            raise MissingValues(
                f"The prompt {name} needs {', '.join(missing)}.", hint="Give a value to each."
            )
        await self._toolbox.check_server(found.server)
        given = {one.name: values[one.name] for one in variables if values.get(one.name)}
        text = await self._toolbox.mcp.prompt(owner, found.server, found.prompt.name, given)
        return f"{text}\n\n{rest}" if rest else text


def _variables(offered: OfferedPrompt) -> tuple[Variable, ...]:
    return tuple(Variable(one.name, None if one.is_required else "") for one in offered.prompt.arguments)


def _out(prompt: Prompt) -> PromptOut:
    return PromptOut(
        prompt.name,
        prompt.text,
        prompt.description,
        prompt.variables,
        prompt.changed_at,
        prompt.is_from_file,
    )
