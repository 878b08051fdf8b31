"""The commands ``/jobs`` and ``/budget`` of a chat. Running one again changes nothing."""

from __future__ import annotations

from everturn.delivery.context import AccountContext
from everturn.domain.budgets import (
    WITH_SUBJECT,
    Budget,
    BudgetLimit,
    BudgetScope,
    Unit,
    describe_amount,
    describe_limit,
    make_key,
    make_limit,
    period_at,
)
from everturn.domain.delivery import Received
from everturn.domain.errors import NothingToDo
from everturn.domain.job_states import JobState
from everturn.domain.jobs import Job

_LISTED_MAX = 10
_LOOKED_AT_MAX = 200
_COMMAND_CHARS_MAX = 60
_CODE_CHARS = 4
_NO_SESSION = "This chat has no session yet. Send a message to start one."
_SCOPES = {scope.value: scope for scope in BudgetScope if scope is not BudgetScope.SCHEDULE}
_HOW_JOBS = "`/jobs stop CODE` stops one."
_HOW_BUDGET = (
    "`/budget day 5` allows 5 USD a day; also `month`, and `session` for this one. "
    "`/budget day 200000 tokens` counts tokens."
)


# --- jobs ----------------------------------------------------------------------------------------------


async def run_jobs(context: AccountContext, received: Received, rest: str) -> str:
    """List the background jobs of all sessions of the chat's owner, or stop one."""
    owner, store = received.chat.owner, context.services.store
    found = await store.jobs.list(owner, limit=_LOOKED_AT_MAX)
    word, _, code = rest.partition(" ")
    if word.lower() != "stop":
        at_work = [job for job in found if not job.state.is_over]
        over = [job for job in found if job.state.is_over][: max(0, _LISTED_MAX - len(at_work))]
        lines = [_job_line(job, context.clock.now_ms()) for job in (*at_work, *over)]
        return "\n".join([*lines, "", _HOW_JOBS]) if lines else "There are no jobs."
    named = [job for job in found if _code(job) == code.strip().lower()]
    at_work = [job for job in found if not job.state.is_over]
    chosen = named if code.strip() else at_work
    if len(chosen) != 1:
        return "Nothing runs." if not at_work else "Say which one, with a code that `/jobs` lists."
    job = await store.jobs.ask_to_stop(owner, chosen[0].id)
    await context.note("job.stopped", received, job.id)
    return f"It is over: {_state(job)}." if job.state.is_over else "It is being stopped."


def _code(job: Job) -> str:
    return job.id[-_CODE_CHARS:].lower()


def _job_line(job: Job, now_ms: int) -> str:
    words = "".join(char for char in " ".join(job.command.split()) if char.isprintable())
    shown = words.replace("`", "'")[:_COMMAND_CHARS_MAX]
    took = _duration(((job.ended_at or now_ms) - job.started_at) // 1000)
    return f"`{_code(job)}` {_state(job)}, {took}: `{shown}`"


def _state(job: Job) -> str:
    if job.state is JobState.ENDED:
        return f"exit code {job.exit_code}" if job.exit_code is not None else "ended"
    is_stopping = job.state is JobState.RUNNING and job.stop_asked_at is not None
    return "stopping" if is_stopping else job.state.value


def _duration(seconds: int) -> str:
    if seconds < 60:
        return f"{max(0, seconds)} s"
    minutes = seconds // 60
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"


# --- budgets -------------------------------------------------------------------------------------------


async def run_budget(context: AccountContext, received: Received, rest: str) -> str:
    """Show what may be spent and what was, or set a budget."""
    owner, services = received.chat.owner, context.services
    if not rest:
        found = await services.store.budgets.list(owner)
        lines = [_budget_line(budget, context.clock.now_ms()) for budget in found]
        return "\n".join([*(lines or ["There are no budgets."]), "", _HOW_BUDGET])
    words = rest.lower().removeprefix("raise ").split()
    scope = _SCOPES.get(words[0]) if words else None
    amount = _amount(words[1].removeprefix("$")) if len(words) in (2, 3) else None
    unit = _unit(words[2]) if len(words) == 3 else Unit.USD
    if scope is None or amount is None or unit is None:
        return f"That cannot be read. {_HOW_BUDGET}"
    subject = received.chat.session_id if scope in WITH_SUBJECT else ""
    if subject is None:
        raise NothingToDo(_NO_SESSION)
    limit = make_limit(make_key(scope, unit, subject), amount, services.timezone)
    before = next(
        (one for one in await services.store.budgets.list(owner) if one.limit.key == limit.key), None
    )
    if before is not None:  # keep its time zone
        limit = BudgetLimit(limit.key, limit.amount, before.limit.timezone)
    budget = await services.engine.put_budget(owner, limit)
    await context.note("budget.set", received, describe_limit(limit))
    return _budget_line(budget, context.clock.now_ms())


def _amount(word: str) -> float | None:
    """The number that a person typed. Python would also accept "inf" and "1_000"."""
    is_number = word.isascii() and word.replace(".", "", 1).isdigit() and len(word) <= 20
    return float(word) if is_number else None


def _unit(word: str) -> Unit | None:
    return {"usd": Unit.USD, "dollars": Unit.USD, "tokens": Unit.TOKENS}.get(word)


def _budget_line(budget: Budget, now_ms: int) -> str:
    limit, unit = budget.limit, budget.limit.key.unit
    now = budget.at(period_at(limit, now_ms).start)
    most = describe_amount(unit, limit.amount + now.extra)
    notes = []
    if now.reserved:
        notes.append(f"{describe_amount(unit, now.reserved)} reserved")
    if now.estimated:
        notes.append(f"{describe_amount(unit, now.estimated)} estimated")
    if now.unpriced_tokens:
        notes.append(f"{now.unpriced_tokens:,} tokens at unknown prices")
    if limit.key.subject:
        notes.append(f"`{limit.key.subject[-_CODE_CHARS:]}`")
    more = f" ({'; '.join(notes)})" if notes else ""
    return f"{limit.key.scope}: {describe_amount(unit, now.spent)} of {most}{more}"
