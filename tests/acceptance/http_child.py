"""A server in a process of its own, to be killed: ``python -m tests.acceptance.http_child FOLDER STORE PORT TOKENS PAUSE_S GRACE_S``.

Its model says that many tokens with that pause between them. Prints one line when it is ready.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from everturn.domain.clock import SystemClock
from everturn.domain.ids import Ids
from everturn.domain.runtime import Runtime
from everturn.engine import Engine, EngineParts
from everturn.store import open_store
from everturn.testing import FakeToolbox, Pause, Say, ScriptedModel, ScriptedModels
from everturn.testing.harness import quiet_settings
from everturn.web import WebServices, WebSettings, build_web, serve


async def main(folder: Path, store_url: str, port: int, tokens: int, pause_s: float, grace_s: float) -> None:
    clock = SystemClock()
    words = [step for n in range(tokens) for step in (Say(f"{n} "), Pause(pause_s))]
    models = ScriptedModels(ScriptedModel(then=words))
    settings = WebSettings(home=folder, port=port, page=folder / "no-page", grace_s=grace_s)
    async with (
        open_store(store_url, data_dir=folder, clock=clock) as store,
        Engine(
            EngineParts(store, models, FakeToolbox()), Runtime(clock, Ids(clock)), quiet_settings()
        ) as engine,
        build_web(WebServices(engine=engine, store=store, models=models), settings) as web,
    ):
        await serve(web, settings, drain=engine.stop, on_ready=lambda _: print("ready", flush=True))


if __name__ == "__main__":
    folder, store_url, port, tokens, *seconds = sys.argv[1:]
    anyio.run(main, Path(folder), store_url, int(port), int(tokens), *map(float, seconds))  # type: ignore[arg-type]  # mypy cannot count the arguments
