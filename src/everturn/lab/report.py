"""What a campaign did and found, as Markdown and as one page of HTML with charts."""

from __future__ import annotations

import os
import platform
from collections import Counter, defaultdict
from collections.abc import Sequence
from html import escape
from pathlib import Path
from statistics import median

import apsw

from everturn import __version__
from everturn.domain.probe import Moment
from everturn.lab.campaign import Campaign, Failed
from everturn.lab.trial import Trial

WHAT = {
    "kill": "The process is killed at a random passing of a named moment, up to ten times in one folder.",
    "power": "The power fails after a random operation: what was not synced is lost, torn, mixed or kept.",
    "disk": "An operation on the disk fails: full, a write error, a failed sync; once or for good.",
    "database": "PostgreSQL goes away, ends its connections, crashes, or loses a commit or the answer to it.",
    "service": "A server with simulated users is killed, stopped, frozen for 1.5 s, or its clock jumps.",
}
CHECKED = (
    "After each fault the next process opens what is left. Checked is that every acknowledged session, "
    "message, answer, move, file and checkpoint is there, exactly once, and every deleted one is gone; that "
    "every event that a reader saw is unchanged at its position; that each effect of a tool happened at most "
    "once, and has a result or a stated unknown outcome; that each turn reaches an end and no session is "
    "stuck; that memory got what it is owed, under one key; and that the database is sound."
)
_INK, _FAINT, _BAR, _BAD = "#1d1d1b", "#c9c9c4", "#1f6f87", "#b3261e"
_WIDTH, _ROW, _LABEL = 900, 22, 330
_STYLE = (
    f"body{{font:16px/1.5 system-ui,sans-serif;color:{_INK};max-width:960px;margin:2rem auto;padding:0 1rem}}"
    f"td,th{{text-align:left;padding:.25rem .75rem .25rem 0;border-bottom:1px solid {_FAINT}}}"
    "td,th{vertical-align:top}pre{overflow:auto}svg{max-width:100%}"
)


def write_report(campaign: Campaign, folder: Path) -> tuple[Path, Path]:
    """Write ``lab.md`` and ``lab.html`` to the folder and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    text, page = folder / "lab.md", folder / "lab.html"
    text.write_text(as_markdown(campaign), encoding="utf-8")
    page.write_text(as_html(campaign), encoding="utf-8")
    return text, page


def as_markdown(campaign: Campaign) -> str:
    lines = [
        "# Faults on purpose",
        "",
        verdict(campaign),
        "",
        *(f"- {fact}" for fact in facts(campaign)),
        "",
        CHECKED,
        "",
        "| Fault | Times | Failed | Checked again after, p50 | at most | |",
        "|---|---|---|---|---|---|",
    ]
    for kind, trials in _by_kind(campaign).items():
        lines.append(f"| {' | '.join([kind, *_figures(campaign, kind, trials)])} | {WHAT[kind]} |")
    lines += ["", "| Where | Times |", "|---|---|"]
    lines += [f"| {kind}: {where} | {count:,} |" for (kind, where), count in _places(campaign)]
    lines += ["", *unmet(campaign)]
    if campaign.soak is not None:
        lines += ["", _describe_use(campaign)]
    for failed in campaign.failed:
        lines += ["", f"## Failed: {_name(failed)}", "", f"`{repeat_command(campaign, failed)}`", ""]
        lines += ["```", failed.trial.failure.rstrip(), "```"]
    return "\n".join(lines) + "\n"


def as_html(campaign: Campaign) -> str:
    kinds = _by_kind(campaign)
    rows = "".join(
        "<tr>"
        + "".join(f"<td>{escape(cell)}" for cell in (kind, *_figures(campaign, kind, found), WHAT[kind]))
        for kind, found in kinds.items()
    )
    failures = "".join(
        f"<h2>Failed: {escape(_name(one))}</h2><p><code>{escape(repeat_command(campaign, one))}</code>"
        f"<pre>{escape(one.trial.failure)}</pre>"
        for one in campaign.failed
    )
    soak = ""
    if campaign.soak is not None and campaign.soak.watch.samples:
        soak = f"<h2>The server while it was used</h2><p>{escape(_describe_use(campaign))}"
        soak += campaign.soak.watch.draw("Memory, files and waits over the lives of the server")
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Faults on purpose</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{_STYLE}</style>"
        f"<h1>Faults on purpose</h1><p><strong>{escape(verdict(campaign))}</strong>"
        f"<ul>{''.join(f'<li>{escape(fact)}' for fact in facts(campaign))}</ul><p>{escape(CHECKED)}"
        "<table><tr><th>Fault<th>Times<th>Failed<th>Checked again after, p50<th>at most<th>"
        f"{rows}</table><h2>Where</h2>{_chart(_places(campaign), campaign)}"
        f"<p>{escape(' '.join(unmet(campaign)))}{soak}{failures}</html>\n"
    )


def verdict(campaign: Campaign) -> str:
    count, failed = len(campaign.trials), len(campaign.failed)
    if not failed:
        return f"{count:,} faults. Nothing that was acknowledged was lost, and nothing happened twice."
    return f"{count:,} faults. {failed:,} of them left something lost or wrong: see below."


def unmet(campaign: Campaign) -> list[str]:
    """Say which named moments no kill of this campaign met; nothing if it made no kills."""
    met = {trial.where for trial in campaign.trials if trial.kind == "kill"}
    left = sorted(set(Moment) - met)
    if not met or not left:
        return []
    return [
        f"Kills met {len(met)} of {len(Moment)} named moments. The lives of the lab do not pass "
        f"the others, or seldom: {', '.join(left)}. The tests of their rooms (`tests/crash`) kill there."
    ]


def facts(campaign: Campaign) -> list[str]:
    return [
        f"Everturn {__version__}, Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}",
        f"{platform.system()} {platform.release()} on {platform.machine()}, {os.cpu_count()} processors",
        f"Seed {campaign.plan.seed}, {campaign.seconds / 60:,.0f} minutes",
    ]


def repeat_command(campaign: Campaign, failed: Failed) -> str:
    """The command that runs the life of a failure again."""
    plan = campaign.plan
    if failed.life < 0:
        return f"everturn lab --only service --minutes {plan.service_minutes:g} --seed {plan.seed}"
    kinds = " ".join(f"--only {kind}" for kind in plan.counts)
    return f"everturn lab {kinds} --seed {plan.seed} --life {failed.life}"


def _name(failed: Failed) -> str:
    where = f"life {failed.life}" if failed.life >= 0 else "the service"
    return f"{failed.trial.kind}, {failed.trial.where}, {where}"


def _by_kind(campaign: Campaign) -> dict[str, list[Trial]]:
    found: dict[str, list[Trial]] = defaultdict(list)
    for trial in campaign.trials:
        found[trial.kind].append(trial)
    return {kind: found[kind] for kind in WHAT if kind in found}


def _figures(campaign: Campaign, kind: str, trials: Sequence[Trial]) -> list[str]:
    failed = sum(bool(trial.failure) for trial in trials)
    if kind == "service":  # its users check all the time
        return [f"{len(trials):,}", f"{failed:,}", "", ""]
    times = [trial.seconds for trial in trials]
    return [f"{len(trials):,}", f"{failed:,}", f"{median(times):.2f} s", f"{max(times):.2f} s"]


def _places(campaign: Campaign) -> list[tuple[tuple[str, str], int]]:
    """How often each place was hit. Of a database's fault the moment is left out: there are too many."""
    counted = Counter((trial.kind, trial.where.partition(", at ")[0]) for trial in campaign.trials)
    order = list(WHAT)
    return sorted(counted.items(), key=lambda item: (order.index(item[0][0]), -item[1], item[0][1]))


def _describe_use(campaign: Campaign) -> str:
    soak = campaign.soak
    assert soak is not None
    tally = soak.tally
    return (
        f"{campaign.plan.people} simulated users: {tally.turns:,} turns and {tally.events:,} events over "
        f"{len(soak.watch.ends)} ends of the server, {len(soak.watch.disturbed)} freezes and jumps of its "
        f"clock and {tally.reconnections:,} reconnections. {tally.resumed:,} turns resumed, "
        f"{tally.cancelled:,} cancelled, "
        f"{tally.effects:,} commands took effect once, {tally.in_doubt:,} were in doubt and asked about, "
        f"{tally.deleted:,} sessions were deleted."
    )


def _chart(places: Sequence[tuple[tuple[str, str], int]], campaign: Campaign) -> str:
    bad = {(one.trial.kind, one.trial.where.partition(", at ")[0]) for one in campaign.failed}
    most = max((count for _, count in places), default=1)
    rows = []
    for index, (place, count) in enumerate(places):
        y = 20 + index * _ROW
        length = max(2.0, (_WIDTH - _LABEL - 80) * count / most)
        colour = _BAD if place in bad else _BAR
        rows.append(
            f'<text x="{_LABEL - 12}" y="{y}" text-anchor="end">{escape(": ".join(place))}</text>'
            f'<rect x="{_LABEL}" y="{y - 12}" width="{length:.0f}" height="14" fill="{colour}"/>'
            f'<text x="{_LABEL + length + 8:.0f}" y="{y}">{count:,}</text>'
        )
    height = 30 + len(places) * _ROW
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" font-size="13" font-family="system-ui" fill="{_INK}" '
        f'role="img" aria-label="How often each place was hit">{"".join(rows)}</svg>'
    )
