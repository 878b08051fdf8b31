"""The tools that an agent has besides those of MCP servers, as each profile has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from everturn.domain.clock import Clock
from everturn.domain.store import Search
from everturn.domain.tool import Tool
from everturn.tools.files.file_tools import ApplyPatch, EditFile, ReadFile, WriteFile
from everturn.tools.files.search_tools import FileSearch, ListFiles, SearchFiles
from everturn.tools.names import MEMORY_TOOL
from everturn.tools.own.own_tools import OwnTools
from everturn.tools.profiles import Profile
from everturn.tools.sandbox.sandbox import Sandbox
from everturn.tools.schema import Action
from everturn.tools.session_tools import AskUser, SearchSessions, Todo
from everturn.tools.terminal.background import Jobs
from everturn.tools.terminal.job_tools import JobTerminal, NetworkJobTerminal, job_tools
from everturn.tools.terminal.runner import CommandRunner, Doors, GatedRunner, Surroundings
from everturn.tools.terminal.terminal_tools import NetworkPython, NetworkTerminal, Python, Terminal
from everturn.tools.web.fetch import Fetcher
from everturn.tools.web.fetch_tool import WebFetch


class ToolSet:
    """``extra``: tools of the embedding program. ``own``: those of the user, which change when their files
    do. A tool with a gate takes the place of the one without."""

    def __init__(
        self, plain: Iterable[Action], gated: Iterable[Action], extra: Iterable[Tool], own: OwnTools
    ) -> None:
        self._plain = {tool.name: tool for tool in plain}
        self._gated = {tool.name: tool for tool in gated}
        self._extra = {tool.spec.name: tool for tool in extra}
        self._own = own

    def get_gated(self, name: str) -> Action:
        return self._gated[name]

    def find(self, name: str, *, is_gated: bool) -> Tool | None:
        return (
            self._built_in(is_gated=is_gated).get(name) or self._extra.get(name) or self._own.tools.get(name)
        )

    @property
    def names(self) -> frozenset[str]:
        return frozenset((*self._plain, *self._gated, *self._extra, *self._own.tools))

    def of_profile(self, profile: Profile, *, is_gated: bool) -> Sequence[Tool]:
        """The tools that the profile names; all of them if it names none."""
        built_in = self._built_in(is_gated=is_gated)
        known: dict[str, Tool] = {name: tool for name, tool in built_in.items() if tool.is_offered}
        known.update(self._extra)
        known.update(self._own.tools)
        names = known if profile.tools is None else profile.tools
        hidden = () if profile.memory else (MEMORY_TOOL,)
        return [known[name] for name in names if name in known and name not in hidden]

    def _built_in(self, *, is_gated: bool) -> Mapping[str, Action]:
        return {**self._plain, **self._gated} if is_gated else self._plain


def plain_tools(
    sandbox: Sandbox,
    fetcher: Fetcher,
    search: Search,
    clock: Clock,
    around: Surroundings,
    jobs: Jobs | None = None,
) -> tuple[Action, ...]:
    """``jobs`` None: commands cannot run in the background."""
    runner = CommandRunner(sandbox, clock, around)
    files = FileSearch(sandbox, clock)
    return (
        *(ReadFile(), WriteFile(), EditFile(), ApplyPatch(), AskUser(), Todo()),
        *(ListFiles(files), SearchFiles(files)),
        Terminal(runner) if jobs is None else JobTerminal(runner, jobs),
        *(Python(runner), WebFetch(fetcher), SearchSessions(search)),
        *(() if jobs is None else job_tools(jobs)),
    )


def gated_tools(
    sandbox: Sandbox, clock: Clock, around: Surroundings, doors: Doors, jobs: Jobs | None = None
) -> tuple[Action, ...]:
    """Those that reach the network through a gate."""
    runner = GatedRunner(sandbox, clock, around, doors)
    terminal = NetworkTerminal(runner) if jobs is None else NetworkJobTerminal(runner, jobs)
    return (terminal, NetworkPython(runner))
