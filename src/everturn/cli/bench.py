"""everturn bench"""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from everturn import store as stores
from everturn.cli.bench_speed import compare, speed
from everturn.cli.common import (
    OWNER,
    check_model,
    console,
    home_option,
    open_config_secrets,
    open_config_store,
    printable,
    run,
)
from everturn.config import Config, read_config
from everturn.domain.secrets import Secrets
from everturn.memory import MemorySettings
from everturn.models.weights import weights_folder
from everturn.tools import built_in
from everturn.tools.web.settings import SearchSettings

if TYPE_CHECKING:
    from rich.table import Table

    from everturn.bench import Bench, BenchReport, Task, TaskTrial

_MARKS = {True: "right", False: "WRONG"}


@click.group()
def bench() -> None:
    """Measure how well a model does as an agent, and how fast Everturn is."""


bench.add_command(speed)
bench.add_command(compare)


@bench.command("agent")
@click.option("--model", help="Model to measure (provider:name). Default: the configured one.")
@click.option("--only", multiple=True, help="A task, an area, 'practised' or 'fresh'. Repeatable.")
@click.option("--runs", type=click.IntRange(1, 100), default=1, help="How many times each task is done.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(1),
    default=600.0,
    help="Time limit of a task, in seconds.",
)
@click.option(
    "--tasks",
    "folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="A folder with tasks of your own.",
)
@click.option(
    "--report",
    "target",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for report.json and log.txt (what was done and said).",
)
@home_option
def agent_(
    model: str | None,
    only: tuple[str, ...],
    runs: int,
    timeout_s: float,
    folder: Path | None,
    target: Path | None,
    home: Path | None,
) -> None:
    """Give a model 30 tasks and check the results: success, steps, tokens, time.

    Each task is done in a new session with a workspace of its own, in a temporary data folder, with the
    prompt and tools of the built-in profile. Your sessions, memory and settings other than models are not
    used. A paid model costs money: try one task first (--only).
    """
    from everturn.bench import BenchReport, choose_tasks, read_tasks
    from everturn.bench.task import TASKS

    tasks = choose_tasks(read_tasks(folder or TASKS), only)
    trials: list[TaskTrial] = []
    try:
        run(
            _measure(
                home,
                model,
                [(task, number) for number in range(1, runs + 1) for task in tasks],
                timeout_s,
                trials,
            )
        )
    except KeyboardInterrupt:
        click.echo("Stopped. Results so far:", err=True)
    used = next((trial.model for trial in trials if trial.model), model or "")
    report = BenchReport(model=used, timeout_s=timeout_s, runs=runs, trials=tuple(trials))
    console().print(_sum_table(report))
    if target is not None:
        _write(report, target)


async def _measure(
    home: Path | None,
    model: str | None,
    planned: Sequence[tuple[Task, int]],
    timeout_s: float,
    trials: list[TaskTrial],
) -> None:
    config = read_config(home)
    model = model or config.model
    if model is not None:
        await check_model(config, model)
    async with open_bench(config, model, timeout_s) as bench_:
        out = console()
        for task, number in planned:
            with out.status(task.name):
                trials.append(await bench_.carry_out(task, number))
            out.print(_line(trials[-1]), soft_wrap=True, markup=False)


@asynccontextmanager
async def open_bench(config: Config, model: str | None, timeout_s: float) -> AsyncIterator[Bench]:
    """In a temporary data folder, with the models and keys of the real one."""
    from everturn.agent import Agent
    from everturn.app import open_app
    from everturn.bench import Bench
    from everturn.bench.site import HOST, serve_site
    from everturn.tools import Fetcher

    secrets = await _model_secrets(config, model)
    environ = {**os.environ, "EVERTURN_MODELS": str(weights_folder(config.home, os.environ))}
    with tempfile.TemporaryDirectory(prefix="everturn-bench-") as folder, serve_site() as site:
        fetcher = Fetcher(allowed=frozenset({(HOST, site.port)}))
        async with open_app(_plain(config, Path(folder)), environ=environ, fetcher=fetcher) as app:
            await app.secrets.change(secrets)
            yield Bench(Agent(app, OWNER), site, model=model, timeout_s=timeout_s)


def _plain(config: Config, folder: Path) -> Config:
    """The settings with nothing in them but models: what else is set would be measured as well."""
    engine = msgspec.structs.replace(config.engine, makes_titles=False, fallback_models=())
    return Config(
        home=folder,
        database_url=None,
        database_direct_url=None,
        secret_key_file=None,
        model=config.model,
        web=config.web,
        engine=engine,
        store=config.store,
        profiles=built_in(),
        models=config.models,
        memory=MemorySettings(provider=""),
        files=type(config.files)(),
        search=SearchSettings(provider="off"),
    )


async def _model_secrets(config: Config, model: str | None) -> Mapping[str, str | None]:
    """The saved key and address of the model's provider; of all, if none is named."""
    if not stores.is_postgres(config.database_url or ""):
        return _secrets_of(stores.SecretsFile(config.home), model)
    async with open_config_store(config) as store, open_config_secrets(store, config) as secrets:
        return _secrets_of(secrets, model)


def _secrets_of(secrets: Secrets, model: str | None) -> dict[str, str | None]:
    provider = (model or "").partition(":")[0]
    return {
        f"{kind}/{name}": secret.reveal()
        for kind in ("keys", "servers")
        for name, secret in secrets.find(kind).items()
        if not provider or name == provider
    }


def _line(trial: TaskTrial) -> str:
    tokens = (
        ""
        if trial.output_tokens is None
        else f"{(trial.input_tokens or 0):,} + {trial.output_tokens:,} tokens"
    )
    figures = f"{trial.steps} steps  {tokens}  {trial.seconds:.1f} s"
    missing = "" if trial.is_right else f"\n    {printable(trial.missing)}"
    return f"{_MARKS[trial.is_right]}  {trial.task:<22} {figures}{missing}"


def _sum_table(report: BenchReport) -> Table:
    from rich.table import Table

    table = Table("", title=f"{report.model}, everturn {report.version}", title_justify="left")
    for name in ("Right", "Steps", "Tokens in", "Tokens out", "Cost", "Time"):
        table.add_column(name, justify="right")
    for sums in report.sums():
        table.add_row(
            sums.name,
            f"{sums.right} of {sums.tasks}",
            str(sums.steps),
            _count(sums.input_tokens),
            _count(sums.output_tokens),
            "unknown" if sums.cost_usd is None else f"${sums.cost_usd:.4f}",
            f"{sums.seconds:.1f} s",
        )
    return table


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _write(report: BenchReport, target: Path) -> None:
    from everturn.bench import as_json, as_log

    target.mkdir(parents=True, exist_ok=True)
    (target / "report.json").write_bytes(as_json(report))
    (target / "log.txt").write_text(as_log(report) + "\n", encoding="utf-8")
    click.echo(f"Report: {target / 'report.json'}, {target / 'log.txt'}")
