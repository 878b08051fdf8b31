"""A worker that runs one turn: it calls a tool of an MCP server at an address. It is killed from outside, or at
a moment that it is given."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio

from everturn.domain.clock import SystemClock
from everturn.domain.ids import Ids
from everturn.domain.probe import Moment, Probe
from everturn.domain.runtime import Runtime
from everturn.domain.store_values import Submission
from everturn.engine import Engine, EngineParts, EngineSettings
from everturn.store import Store, open_store
from everturn.store.secrets.file import SecretsFile
from everturn.testing import CallTool, KillingProbe, ScriptedModel, ScriptedModels
from everturn.testing.acting import ME
from everturn.tools import EverturnToolbox, McpServer, Profile, Profiles, Sandbox, ToolServices, built_in

SETTINGS = EngineSettings(makes_titles=False, poll_s=0.05, stop_grace_s=0.0)


@asynccontextmanager
async def open_toolbox(store: Store, home: Path, url: str) -> AsyncIterator[EverturnToolbox]:
    server = McpServer(name="shelf", url=url, profiles=("default",))
    profiles = Profiles({**built_in().profiles, "default": Profile()}, {"shelf": server})
    services = ToolServices(store.records, store.search, SystemClock(), secrets=SecretsFile(home))
    sandbox = Sandbox(home, is_wanted=False)
    async with EverturnToolbox(home, services, profiles, sandbox=sandbox) as toolbox:
        yield toolbox


async def prepare(toolbox: EverturnToolbox) -> None:
    """As the user does once: trust the server's tools, and allow them."""
    for told in await toolbox.list_untrusted(ME, "ses_settings", None):
        await toolbox.decide_untrusted(ME, "ses_settings", told.name, told.digest, use=True)
    [state] = await toolbox.servers(ME)
    for tool in state.modes:
        await toolbox.mcp.set_mode(ME, "shelf", tool.name, tool.digest, "allow")
    assert state.modes


@asynccontextmanager
async def open_engine(
    store: Store, toolbox: EverturnToolbox, tool: str = "", probe: Probe | None = None
) -> AsyncIterator[Engine]:
    """``tool``: what the model calls; without one it only ends what is there."""
    clock = SystemClock()
    script = [[CallTool(f"shelf__{tool}", {"book": "Emma"}, id="call_1")]] if tool else []
    model = ScriptedModel(*script, then="Done.")
    parts = EngineParts(store, ScriptedModels(model), toolbox)
    async with Engine(parts, Runtime(clock, Ids(clock), probe or Probe()), SETTINGS) as engine:
        yield engine


async def main(store_url: str, home: str, session_id: str, url: str, tool: str, moment: str) -> None:
    probe = KillingProbe(Moment(moment)) if moment else Probe()
    async with (
        open_store(store_url, data_dir=Path(home), probe=probe) as store,
        open_toolbox(store, Path(home), url) as toolbox,
        open_engine(store, toolbox, tool, probe) as engine,
    ):
        await engine.submit(ME, session_id, Submission(text="Put Emma away."))
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(partial(main, *sys.argv[1:]))
