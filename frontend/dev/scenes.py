"""What the fake server shows: a house with sessions in every state, and answers by keyword."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from house import House, SessionHere, TurnHere, now_ms, replace

from everturn.domain import events as ev
from everturn.domain.ids import message_id
from everturn.domain.messages import Call, Message, Outcome, Role, Summary
from everturn.domain.sessions import SessionChat
from everturn.domain.turns import Failure, Recovery, TurnKind, TurnState, Usage

MODEL = "anthropic:claude-sonnet-4-5"
MODELS = {
    "default": MODEL,
    "models": [
        {
            "name": MODEL,
            "state": "ready",
            "label": "Claude Sonnet 4.5",
            "provider": "anthropic",
            "context_tokens": 200_000,
        },
        {
            "name": "openai:gpt-x",
            "state": "ready",
            "label": "GPT-X",
            "provider": "openai",
            "context_tokens": 400_000,
        },
        {
            "name": "pocket:smollm2",
            "state": "ready",
            "size": 98000000,
            "label": "SmolLM2 135M",
            "provider": "pocket",
            "context_tokens": 8_000,
            "is_small": True,
        },
    ],
}
USED = {
    "turns": 412,
    "input_tokens": 4_200_000,
    "output_tokens": 180_000,
    "cached_tokens": 3_900_000,
    "cost_usd": 12.4,
}
DIFF = """--- a/ops/backup.sh
+++ b/ops/backup.sh
@@ -22,4 +22,4 @@
 export RESTIC_REPOSITORY=/mnt/nas/restic
-restic backup /srv /etc --tag nightly
-restic forget --keep-daily 14 --prune
+restic backup /srv /etc --tag nightly --retry-lock 30m
+restic forget --keep-daily 14 --retry-lock 30m
 logger -t backup "nightly done"
"""


FILES = [
    {"path": "ops", "name": "ops", "kind": "folder", "size": 0, "modified_at": 0},
    {"path": "paperless", "name": "paperless", "kind": "folder", "size": 0, "modified_at": 0},
    {"path": "backup.sh", "name": "backup.sh", "kind": "file", "size": 206, "modified_at": 0},
    {"path": "house-notes.md", "name": "house-notes.md", "kind": "file", "size": 4_812, "modified_at": 0},
    {"path": "dump.sql", "name": "dump.sql", "kind": "file", "size": 431_900_112, "modified_at": 0},
]


SAID = {
    "Weekly review": "Done this week: restic waits with --retry-lock 30m, so the nightly run no longer meets the prune.",
    "Reading list: consensus papers": "In all three, clients retry while the lock file is stale, every 5 s until the lease is gone.",
    "Borrow checker and iterators": "Instead of a retry loop around the mutex, take the lock once and hand the guard down.",
}


class Script:
    """Writes a turn's events with times that add up: each call moves the clock."""

    def __init__(self, here: SessionHere, text: str, at: int, **more: Any) -> None:
        self.here = here
        self.at = at
        self.turn = here.begin(text, at, **more)
        here.accept(self.turn, at)
        here.start(self.turn, at + 40)
        self.at += 50
        self.step = 0
        self.calls = 0
        self.pending: list[Call] = []

    def emit(self, payload: ev.Payload, after_ms: int = 0) -> Script:
        self.at += after_ms
        self.here.emit(self.turn, payload, self.at)
        return self

    def think(self, text: str, ms: int) -> Script:
        self._open()
        self.emit(ev.ReasoningDelta(self.step, text[: len(text) // 2]), 300)
        return self.emit(ev.ReasoningDelta(self.step, text[len(text) // 2 :]), ms - 300)

    def say(self, text: str, ms: int = 900) -> Script:
        self._open()
        return self.emit(ev.TextDelta(self.step, text), ms)

    def _open(self) -> None:
        if not self.step or self.is_closed:
            self.step += 1
            self.is_closed = False
            self.emit(ev.StepStarted(self.step, MODEL), 30)

    is_closed = True

    def close(
        self, *calls: Call, finish: str = "", usage: Usage | None = None, missed: bool = False
    ) -> Script:
        self._open()
        self.is_closed = True
        self.emit(ev.StepFinished(self.step, finish or ("calls" if calls else "stop"), calls), 40)
        usage = usage or Usage(1500, 110, 1400, None, 0.002)
        return self.emit(ev.StepUsage(self.step, MODEL, usage, missed))

    def call(
        self,
        name: str,
        label: str,
        result: str = "",
        ms: int = 400,
        outcome: Outcome = Outcome.OK,
        **more: Any,
    ) -> Script:
        self.want(name, label, more.pop("arguments", None))
        self.begin(label)
        return self.end(result, ms, outcome, **more)

    def want(self, name: str, label: str, arguments: dict[str, Any] | None = None) -> Script:
        self.calls += 1
        given = arguments or {"command" if name == "terminal" else "path": label}
        self.last = Call(
            f"call_{self.here.row.id[-6:]}_{len(self.here.turns)}_{self.calls}", name, json.dumps(given)
        )
        return self.close(self.last)

    def begin(self, label: str, attempt: int = 1) -> Script:
        return self.emit(
            ev.ToolStarted(self.step, self.last.id, self.last.name, self.last.arguments, label, attempt), 20
        )

    def end(self, text: str, ms: int, outcome: Outcome = Outcome.OK, display: Any = None) -> Script:
        return self.emit(ev.ToolFinished(self.last.id, self.last.name, outcome, text, display=display), ms)

    def approve(self, label: str, reason: str) -> Script:
        ask = self.here.house.ids.ask()
        self.turn.asks[ask] = None
        self.emit(
            ev.ApprovalRequested(
                ask,
                self.last.id,
                self.last.name,
                self.last.arguments,
                "d1",
                reason,
                label,
                ("once", "session", "deny"),
            ),
            10,
        )
        self.ask = ask
        return self.emit(ev.TurnWaiting((ask,)))

    def resolve(self, decision: str, ms: int = 20_000, arguments: str | None = None) -> Script:
        self.emit(ev.ApprovalResolved(self.ask, self.last.id, decision, "you", arguments), ms)
        self.turn.asks[self.ask] = decision
        return self.emit(ev.TurnResumed(1, "wrk_fake", "answered"), 30)

    def question(
        self, text: str, choices: tuple[str, ...], topic: str = "question", on_call: bool = True
    ) -> Script:
        ask = self.here.house.ids.ask()
        self.turn.asks[ask] = None
        self.emit(ev.QuestionAsked(ask, text, choices, topic, self.last.id if on_call else None), 10)
        return self.emit(ev.TurnWaiting((ask,)))

    def complete(self) -> Script:
        if not self.is_closed:
            self.close()
        return self.emit(ev.TurnCompleted(), 30)


def fast(script: Script, delta: int) -> None:
    script.at += delta


def full() -> House:
    house = House()
    house.answerer = answer
    now = now_ms()
    minute, day = 60_000, 86_400_000
    nightly(house, now)
    approval(house, now)
    crash(house, now)
    states(house, now)
    long_talk(house, now - 3 * day)
    rich(house, now - 2 * day)
    plain = [
        ("House network notes", now - 2 * day, {"pinned": True}),
        ("Weekly review", now - 4 * day, {"pinned": True}),
        ("Why is the Zigbee mesh slow", now - 50 * minute, {"is_unread": True}),
        ("Receipts 2025 into folders", now - 70 * minute, {}),
        (
            "Train times to Ghent",
            now - 90 * minute,
            {"chat": SessionChat("cht_7", "telegram", "telegram", "dm", "Ann")},
        ),
        ("Scale the bread recipe to 14", now - day, {}),
        ("Letter to the landlord, in German", now - day - 4 * minute, {}),
        ("Borrow checker and iterators", now - day - 8 * minute, {}),
        ("Retry policy for the door lock", now - 2 * day - minute, {}),
        ("Compare the heat pump offers", now - 3 * day, {}),
        ("Grafana panel for disk wear", now - 4 * day, {}),
        ("Regex for IBANs", now - 4 * day - minute, {"last_state": TurnState.FAILED}),
        ("Reading list: consensus papers", now - 5 * day, {}),
        ("Move photos to the new volume", now - 5 * day - minute, {}),
        ("Explain the boiler error code", now - 6 * day, {}),
        ("Speech for the anniversary", now - 6 * day - minute, {}),
    ]
    for title, at, more in plain:
        here = house.add(title, at, **more)
        script = Script(here, title, at - 9_000)
        script.say(SAID.get(title, "Here is what I found. Tell me which of the two you prefer.")).complete()
        here.row = replace(
            here.row, updated_at=at, **({"last_state": more["last_state"]} if "last_state" in more else {})
        )
    for index in range(300):
        at = now - (20 + index // 3) * day
        here = house.add(f"An older session, number {index + 1}", at)
        here.row = replace(here.row, updated_at=at)
    return house


def fresh() -> House:
    house = House()
    house.answerer = answer
    MODELS["default"] = "pocket:smollm2"
    return house


def nightly(house: House, now: int) -> SessionHere:
    at = now - 4 * 60_000
    here = house.add("Nightly backup keeps failing", at, tags=("homelab",))
    s = Script(
        here,
        "The restic backup on the NAS failed on Thursday and again last night. Find out why, fix the script, then check the repository.",
        at,
    )
    s.think(
        "The user wants the cause first. Look at the journal of the unit, then at the script itself.", 6_000
    )
    s.call(
        "terminal",
        "journalctl -u restic-backup --since -4d",
        "unable to create lock in backend: repository is already locked",
        400,
    )
    s.call("read_file", "ops/backup.sh", "line\n" * 64, 30)
    s.say(
        "Both failures are the same. The weekly `prune` still holds the lock when the nightly run starts, and the script gives up. Restic now waits, and pruning is out of the nightly job."
    )
    s.call(
        "edit_file",
        "ops/backup.sh",
        "Edited.",
        100,
        display={"type": "diff", "path": "ops/backup.sh", "diff": DIFF},
    )
    s.want("terminal", "restic check --read-data-subset=5%")
    s.at = now - 72_000
    s.begin("restic check --read-data-subset=5%")
    s.emit(
        ev.ToolOutput(
            s.last.id, "check all packs\ncheck snapshots, trees and blobs\n[1:09] 62.50%  15 / 24 packs\n"
        ),
        500,
    )
    s.emit(ev.StepStarted(7, MODEL), 300)
    s.emit(
        ev.TextDelta(
            7,
            "While that runs: this drop-in makes the weekly job wait its turn.\n\n```ini restic-prune.service.d/order.conf\n[Unit]\n# start only after a running backup has ended\nAfter=restic-backup.service\n```\n\nI have not installed it yet, because it changes a system unit. If you",
        ),
        300,
    )
    s.emit(ev.StepUsage(7, MODEL, Usage(37_200, 800, 36_000, None, 0.13)))
    return here


def approval(house: House, now: int) -> SessionHere:
    at = now - 6 * 60_000
    here = house.add("Renew the mail certificate", at)
    s = Script(here, "When does the mail certificate run out?", at)
    s.call(
        "terminal",
        "openssl x509 -enddate -noout -in /etc/ssl/mail.pem",
        "notAfter=Feb  9 12:00:00 2027 GMT",
        100,
    )
    s.say(
        "The file on disk is good until 9 February. The one that Dovecot hands out ends on Saturday, so it has not been reloaded since the renewal.",
        2_000,
    )
    s.complete()
    s = Script(here, "Then make sure that Dovecot and Postfix both pick up the new one.", now - 3 * 60_000)
    s.call("terminal", "postconf smtpd_tls_cert_file", "smtpd_tls_cert_file = /etc/ssl/mail.pem", 100)
    s.say("Both read the same file. A reload is enough, and open connections are kept.")
    s.want("terminal", "sudo systemctl reload dovecot postfix")
    s.approve("sudo systemctl reload dovecot postfix", "it uses sudo. Your rule: always ask before root.")
    for text in (
        "Then add a monthly check that warns me 14 days before it runs out",
        "Write down in the house notes what you changed today",
    ):
        queued = here.begin(text, s.at)
        here.emit(queued, ev.TurnAccepted(queued.asked, place=1), s.at)
    here.row = replace(here.row, queued=2)
    return here


def crash(house: House, now: int) -> SessionHere:
    at = now - 12 * 60_000
    here = house.add("Postgres 17 for Paperless", at)
    s = Script(here, "Which compose services still use Postgres 16?", at)
    s.say(
        "Only `paperless`. The image tag is pinned to `16.4`, and the data sits in the volume `paperless_pgdata`."
    )
    s.emit(ev.TurnInterrupted(Failure("worker_lost", "The server stopped."), "pending"), 2_000)
    s.turn.row = replace(s.turn.row, recovery=Recovery.RECOVERED, recovered_at=s.at + 180_000)
    s = Script(here, "Move it to Postgres 17. Take a dump first.", now - 170_000)
    s.think("Read the compose file, dump, then start the new one beside the old one.", 4_000)
    s.call("read_file", "paperless/compose.yml", "line\n" * 41, 20)
    s.call("terminal", "pg_dump -U paperless -Fp -f dump.sql", "", 48_000)
    s.say("The dump is complete, 412 MB. Next I start a second container with", 6_000)
    stopped = s.at
    s.emit(ev.TurnResumed(2, "wrk_b", "crash", 1, stopped, s.step - 1), 41_000)
    s.emit(ev.StepAbandoned(s.step, "crash"))
    s.emit(ev.StepStarted(s.step, MODEL, 2), 20)
    s.emit(ev.ReasoningDelta(s.step, "The dump exists already."), 3_000)
    s.emit(
        ev.TextDelta(
            s.step,
            "The dump is complete, 412 MB. I start Postgres 17 beside the old one, load the dump into it, and only then switch Paperless over.",
        ),
        6_000,
    )
    s.call("terminal", "docker compose up -d db17", "started", 13_000)
    s.want("terminal", "psql -h db17 -f dump.sql")
    s.begin("psql -h db17 -f dump.sql")
    s.at = now - 20_000
    s.question(
        "The command ended without reporting a result. It may have loaded all, part or none of the dump, and running it twice is not safe.",
        ("check", "run again", "take it as done"),
        "doubt",
    )
    return here


def states(house: House, now: int) -> None:
    at = now - 30 * 60_000
    here = house.add("Every ending", at)
    s = Script(here, "Stop me half-way", at)
    s.say("The scrub can run at night. To set it up I would add a timer that")
    s.emit(ev.TurnCancelled(by="you"), 500)
    s = Script(here, "Check the disk on nas-01", at + 60_000)
    s.emit(ev.StepStarted(1, MODEL), 10)
    s.emit(ev.TurnFailed(Failure("model_overloaded", "Anthropic returned 529 three times in 40 s.")), 40_000)
    s = Script(here, "Run the scrub", at + 120_000)
    s.call(
        "terminal",
        "zpool scrub tank",
        "cannot open 'tank': no such pool",
        200,
        Outcome.ERROR,
        display={"exit_code": 1},
    )
    s.say("There is no pool called tank. Two pools are online, and both passed their last scrub.")
    s.want("terminal", "rm -r /srv/old", {"command": "rm -r /srv/old", "timeout_s": 20})
    s.approve("rm -r /srv/old", "it deletes files outside the workspace.")
    s.resolve("deny")
    s.end("Denied by the user.", 10, Outcome.DENIED)
    s.want("terminal", "shutdown -h now")
    s.approve("shutdown -h now", "it stops the machine.")
    s.resolve("expired")
    s.end("Approval timed out.", 10, Outcome.DENIED)
    s.want("terminal", "systemctl reload dovecot")
    s.approve("systemctl reload dovecot", "it changes a service.")
    s.resolve("once")
    s.begin("systemctl reload dovecot").end("", 200)
    s.want("terminal", "zpool destroy vault")
    s.approve("zpool destroy vault", "it destroys a pool.")
    s.resolve("once", arguments='{"command":"zpool status vault"}')
    s.begin("zpool status vault").end("pool: vault\nstate: ONLINE", 200)
    s.say("Reloaded.")
    s.close(usage=Usage(40_000, 1_000, 0, None, 0.12), missed=True)
    s.complete()
    s = Script(here, "And the older pool?", at + 300_000)
    s.say("Both pools are online, and the older one")
    s.emit(ev.TurnInterrupted(Failure("worker_lost", "The worker's machine is gone."), "pending"), 500)
    here = house.add("Goes on where it stopped", at + 500)
    s = Script(here, "Explain the pools", at)
    s.say("A pool is made of vdevs 🙂, and a vdev of")
    s.emit(ev.TurnResumed(2, "wrk_b", "crash", 1, s.at, 0), 4_000)
    s.emit(ev.StepAbandoned(1, "crash", continues=True))
    s.emit(ev.StepStarted(1, MODEL, 2), 20)
    s.say(" disks. Data are spread over")
    s.emit(ev.StepAbandoned(1, "dropped", continues=True, retry_in_ms=0), 10)
    s.emit(ev.StepStarted(1, MODEL, 3), 20)
    s.say(" all of them, and")
    s.close(finish="length").complete()
    here = house.add("Interrupted for good", at + 1000)
    s = Script(here, "List the pools", at)
    s.say("Both pools are online.")
    s.emit(ev.TurnInterrupted(Failure("resume_budget", "It was tried 10 times."), "final"), 500)
    here = house.add("A question is open", at + 2000)
    s = Script(here, "Where are the photos?", now - 90_000)
    s.want("ask_user", "Which pool holds the photos?", {"text": "Which pool holds the photos?"})
    s.question("Which pool holds the photos?", ("tank", "vault"))
    here = house.add("Thinking now", at + 3000)
    s = Script(here, "Is the disk healthy?", now - 4_000)
    s.think("The user asks about the disk. smartctl first, then the kernel log", 1_000)
    here = house.add("Summarised", at + 4000)
    s = Script(here, "Tell me about the backups", at)
    s.say("They are fine.").complete()
    turn = here.begin("", at + 60_000, kind=TurnKind.COMPACTION)
    here.path.append(turn.row.id)
    part = Summary(
        "## Backups\n\nThe nightly run waits for the weekly prune. All snapshots are listed.",
        "msg_x",
        212,
        148_000,
        6_000,
    )
    turn.summary = Message(message_id(turn.row.id, 1), turn.row.id, Role.SUMMARY, (part,), at + 60_000)
    turn.row = replace(turn.row, state=TurnState.COMPLETED, ended_at=at + 61_000)
    s = Script(here, "And last night?", at + 120_000)
    s.say("It ran at 02:30 and took 4 minutes.").complete()


def rich(house: House, at: int) -> SessionHere:
    here = house.add("Markdown of every kind", at)
    s = Script(here, "Show me everything", at)
    s.say(RICH, 4_000).complete()
    return here


def long_talk(house: House, at: int, turns: int = 400) -> SessionHere:
    here = house.add("A very long talk", at)
    for index in range(turns):
        s = Script(here, f"Question {index + 1}: what about part {index + 1}?", at + index * 60_000)
        if index % 3 == 0:
            s.call("terminal", f"grep -n part{index} notes.txt", f"{index}: found", 120)
        s.say(
            f"Part **{index + 1}** is fine.\n\n- It was read.\n- It was checked against `notes-{index + 1}.txt`.\n\nNothing else is to be done about it, and the next one follows."
        )
        s.complete()
    return here


RICH = """# A title

Some **bold**, *italic*, ~~gone~~, `code`, and a [link](https://example.org/page "title").

## Lists

1. First
2. Second
   - nested one
   - nested two
3. Third

- [x] done
- [ ] open

> A quotation that says something
> over two lines.

| Pool | Size | Health |
|:-----|-----:|:------:|
| tank | 4.2 TB | good |
| vault | 11 TB | good |

### Code

```python title=sum.py
def total(values: list[float]) -> float:
    \"\"\"Add them up.\"\"\"
    return sum(values)  # 42
```

Inline math $e^{i\\pi} + 1 = 0$ costs $5 and a block:

$$\\int_0^\\infty e^{-x^2}\\,dx = \\frac{\\sqrt{\\pi}}{2}$$

```mermaid
graph LR
  A[Message] --> B[Durable]
  B --> C[Model]
```

![A picture](https://example.org/cat.png)

---

Press <kbd>Esc</kbd> to stop. That is all.
"""


async def answer(here: SessionHere, turn: TurnHere) -> None:
    """Answer a live message; the words in it choose how."""
    text = turn.row.text.lower()
    if turn.row.state == TurnState.QUEUED:
        await asyncio.sleep(0.05)
        here.start(turn)
    step = 1 + sum(1 for event in turn.events if event.kind == "step.started")
    here.emit(turn, ev.StepStarted(step, MODEL))

    def live() -> bool:
        return not turn.cancelled.is_set()

    if "think" in text and step == 1:
        for word in [
            "First",
            "look",
            "at",
            "the",
            "disk.",
            "Then",
            "read",
            "the",
            "kernel",
            "log",
            "and",
            "compare",
            "both.",
        ]:
            if live():
                here.emit(turn, ev.ReasoningDelta(step, word + " "))
                await asyncio.sleep(0.06)
    if "fail" in text:
        here.emit(turn, ev.TurnFailed(Failure("model_overloaded", "The provider returned 529 three times.")))
        return
    if "approve" in text and step == 1:
        call = Call(f"call_{turn.row.id[-8:]}", "terminal", json.dumps({"command": "sudo ls"}))
        here.emit(turn, ev.StepFinished(step, "calls", (call,)))
        ask = here.house.ids.ask()
        turn.asks[ask] = None
        here.emit(
            turn,
            ev.ApprovalRequested(
                ask,
                call.id,
                call.name,
                call.arguments,
                "d",
                "it uses sudo.",
                "sudo ls",
                ("once", "session", "deny"),
            ),
        )
        here.emit(turn, ev.TurnWaiting((ask,)))
        return
    body = (
        RICH
        if "markdown" in text
        else "Here is an answer that comes word by word. " * (40 if "long" in text else 6)
    )
    pause = 0.01 if "fast" in text else 0.05
    for index in range(0, len(body), 6):
        if not live():
            return
        here.emit(turn, ev.TextDelta(step, body[index : index + 6]))
        await asyncio.sleep(pause)
    if live():
        here.emit(turn, ev.StepFinished(step, "stop"))
        here.emit(turn, ev.StepUsage(step, MODEL, Usage(2_000, 300, 1_900, None, 0.004)))
        here.emit(turn, ev.TurnCompleted())


def around(path: str, method: str) -> Any:
    """Settings and the rest: enough to look at."""
    fixed: dict[str, Any] = {
        "me": {"owner": "local", "way": "open", "scopes": [], "version": "0.1.0"},
        "settings": {
            "model": None,
            "profile": None,
            "default_model": MODEL,
            "title_model": "pocket:smollm2",
            "fallback_models": ["openai:gpt-x"],
            "steps_max": None,
            "minutes_max": None,
            "tokens_max": None,
            "cost_usd_max": 1.0,
            "defaults": {
                "title_model": None,
                "fallback_models": [],
                "steps_max": 100,
                "minutes_max": 60.0,
                "tokens_max": None,
                "cost_usd_max": None,
            },
            "keys": [
                {"name": "anthropic", "has_key": True, "source": "file"},
                {"name": "openai", "has_key": True, "source": "environment"},
            ],
            "secrets": {"place": "file"},
        },
        "jobs": {"items": []},
        "tokens": {
            "items": [
                {
                    "id": "tok_1",
                    "label": "Phone",
                    "scopes": ["chat"],
                    "created_at": now_ms() - 9e8,
                    "used_at": now_ms() - 4e6,
                }
            ]
        },
        "profiles": {
            "profiles": [{"name": "default", "description": "The ordinary way", "model": None, "tools": None}]
        },
        "tools": {
            "tools": [
                {"name": "terminal", "description": "Run a command."},
                {"name": "read_file", "description": "Read a file."},
            ],
            "sandbox": {
                "is_on": True,
                "level": "full",
                "detail": "bubblewrap works: no capabilities, nothing of the host in sight.",
            },
        },
        "mcp": {
            "servers": [
                {
                    "name": "github",
                    "state": "running",
                    "is_connected": True,
                    "detail": "",
                    "tools": ["issues", "pulls"],
                    "untrusted": [],
                },
                {
                    "name": "calendar",
                    "state": "failed",
                    "is_connected": False,
                    "detail": "Connection refused",
                    "tools": [],
                    "untrusted": [],
                },
            ]
        },
        "policy": {
            "rules": [
                {
                    "id": "r1",
                    "key": "git status",
                    "tool": "terminal",
                    "label": "git status",
                    "created_at": now_ms() - 8e8,
                }
            ]
        },
        "usage": {"days": 30, "total": USED, "models": {MODEL: USED}},
        "memory": {
            "notes": [
                {
                    "id": "n1",
                    "text": "The NAS is nas-01, Debian 12.",
                    "tags": ["homelab"],
                    "updated_at": now_ms() - 8e8,
                    "source": "Nightly backup",
                },
                {
                    "id": "n2",
                    "text": "Always ask before anything with sudo.",
                    "tags": ["rule"],
                    "updated_at": now_ms() - 3e9,
                },
            ],
            "owed": 2,
            "sessions": [
                {"session_id": "ses_1", "title": "Nightly backup keeps failing", "turns": 1},
                {"session_id": "ses_2", "title": "Train times to Ghent", "turns": 1},
            ],
            "remembered_at": now_ms() - 2_400_000,
        },
        "approvals": {"items": []},
        "health": {},
    }
    if path.startswith("sessions/") and path.endswith("/files"):
        return {"path": "", "files": FILES, "is_cut": False}
    if path.startswith("sessions/") and path.endswith("/files/diff"):
        return {"changes": [], "total": 0}
    if path.startswith("sessions/") and path.endswith("/files/history"):
        return {"versions": []}
    if path.startswith("keys/") and path.endswith("/test"):
        return {"ok": True, "elapsed_ms": 612}
    if path.startswith(("keys", "memory", "settings", "policy", "signout", "tokens")) and method != "GET":
        return {}
    return fixed.get(path)
