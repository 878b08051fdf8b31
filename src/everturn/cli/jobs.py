"""everturn jobs"""

from __future__ import annotations

import time
from pathlib import Path

import click
import msgspec

from everturn.cli.common import OWNER, home_option, with_store
from everturn.config import Config
from everturn.domain.job_states import JobState
from everturn.domain.jobs import Job
from everturn.store import Store


@click.group(invoke_without_command=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Maximum number.")
@click.option("--session", "session_id", default="", help="Only those of this session.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON, one job per line.")
@home_option
@click.pass_context
def jobs(ctx: click.Context, limit: int, session_id: str, is_json: bool, home: Path | None) -> None:
    """List commands that run or ran in the background, newest first: id, start, state, command."""
    if ctx.invoked_subcommand is not None:
        return
    found = with_store(home, lambda store, config: _newest(store, config, session_id, limit))
    for job in found:
        click.echo(_as_json(job) if is_json else _as_line(job))
    if not found and not is_json:
        click.echo("There are no jobs.")


@jobs.command()
@click.argument("job_id")
@home_option
def stop(job_id: str, home: Path | None) -> None:
    """Ask a job to stop. The server that watches it stops it within a second."""
    job = with_store(home, lambda store, config: store.jobs.ask_to_stop(OWNER, job_id))
    if job.state.is_over:
        click.echo(f"{job.id} is over: {_state(job)}.")
    else:
        click.echo(f"{job.id} will be stopped. If no server runs, it is stopped when one is started.")


async def _newest(store: Store, config: Config, session_id: str, limit: int) -> list[Job]:
    return list(await store.jobs.list(OWNER, session_id=session_id, limit=limit))


def _as_line(job: Job) -> str:
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(job.started_at / 1000))
    command = "".join(char for char in " ".join(job.command.split()) if char.isprintable())
    return f"{job.id}  {started}  {_state(job):<12}  {command}"


def _state(job: Job) -> str:
    if job.state is JobState.ENDED:
        return f"exit {job.exit_code}"
    if job.state is JobState.RUNNING and job.stop_asked_at is not None:
        return "stopping"
    return job.state.value


def _as_json(job: Job) -> bytes:
    return msgspec.json.encode(
        {
            "id": job.id,
            "session_id": job.session_id,
            "state": job.state,
            "command": job.command,
            "started_at": job.started_at,
            "ended_at": job.ended_at,
            "exit_code": job.exit_code,
            "detail": job.detail,
            "output_bytes": job.output_bytes,
        }
    )
