"""Allow, ask or deny: hard rules first, then what was allowed before, then the question.

The user's answers are kept in the store. "In this session" and "trust" belong to one session; "always"
belongs to the owner, and can be listed and revoked. Once untrusted output is in the context, none of them
covers sending to the network or reaching outside the workspace: the author of that output may have asked for
the call, so the user decides about each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from everturn.domain.asks import Decision
from everturn.domain.clock import Clock
from everturn.domain.store import Records
from everturn.domain.tool import Ruling, ToolCall, Verdict
from everturn.tools.policy.judgement import Concern, Judgement

RULE = "policy.rule"
SESSION = "policy.session"
REFUSED = "policy.refused"  # hosts that calls of a session were refused
_TRUST = "trust"
_SENTENCE_ENDS = (".", ".”", "!”", "?”", "…”")


class Rule(msgspec.Struct, frozen=True):
    """A stored "always", for GET and DELETE /api/policy."""

    id: str
    key: str
    tool: str
    label: str  # the call for which it was allowed, in one line
    created_at: int
    covers: str = ""


class Policy:
    def __init__(self, records: Records, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    async def rule(self, call: ToolCall, judgement: Judgement, *, is_sandboxed: bool) -> Ruling:
        if judgement.denied:
            return Ruling(Verdict.DENY, judgement.denied, judgement.label, options=())
        is_trusted = await self._has(call, _TRUST)
        open_concerns = [
            concern
            for concern in judgement.concerns
            if not await self._is_covered(call, concern, is_trusted=is_trusted, is_sandboxed=is_sandboxed)
        ]
        if not open_concerns:
            return Ruling(Verdict.ALLOW, label=judgement.label, options=())
        # On one line: a path or a host in a reason comes from the model, and must not look like our text.
        reasons = [_flat(concern.reason + await self._ran_before(call, concern)) for concern in open_concerns]
        reason = "; ".join(dict.fromkeys(reasons))
        if call.is_tainted and any(_reaches_far(concern) for concern in open_concerns):
            reason += "; the context holds text from outside"
        options = _options(call, open_concerns, is_sandboxed=is_sandboxed)
        covers = ""
        if Decision.SESSION in options or Decision.ALWAYS in options:
            covers = "; ".join(dict.fromkeys(_covers(concern) for concern in open_concerns))
        return Ruling(Verdict.ASK, _sentence(reason), judgement.label, options, covers)

    async def remember(self, call: ToolCall, judgement: Judgement, decision: Decision) -> None:
        if decision == Decision.TRUST:
            await self._records.put(call.owner, SESSION, _name(call.session_id, _TRUST), {"key": _TRUST})
            return
        for concern in judgement.concerns:
            if not concern.key:
                continue
            if decision == Decision.SESSION:
                name = _name(call.session_id, concern.key)
                await self._records.put(call.owner, SESSION, name, {"key": concern.key})
            elif decision == Decision.ALWAYS:
                await self._records.put(
                    call.owner,
                    RULE,
                    _digest(concern.key),
                    self._rule(call.name, concern, judgement.label),
                )

    async def allow_always(self, owner: str, tool: str, concern: Concern) -> None:
        """The same as "always" for what a user allows in the settings, without a call."""
        await self._records.put(owner, RULE, _digest(concern.key), self._rule(tool, concern, tool))

    async def disallow(self, owner: str, concern: Concern) -> None:
        await self._records.delete(owner, RULE, _digest(concern.key))

    async def is_allowed_always(self, owner: str, concern: Concern) -> bool:
        return await self._records.get(owner, RULE, _digest(concern.key)) is not None

    async def allows(self, call: ToolCall, concern: Concern, *, is_sandboxed: bool) -> bool:
        """True if an earlier answer covers this concern of the call."""
        is_trusted = await self._has(call, _TRUST)
        return await self._is_covered(call, concern, is_trusted=is_trusted, is_sandboxed=is_sandboxed)

    async def record_refused(self, call: ToolCall, keys: Sequence[str], label: str) -> None:
        """Record the hosts that a call was refused, so that a later question can say what already ran."""
        for key in keys:
            await self._records.put(call.owner, REFUSED, _name(call.session_id, key), {"label": label})

    async def rules(self, owner: str) -> list[Rule]:
        """What was allowed for always, oldest first."""
        found = await self._records.list(owner, RULE)
        rules = [msgspec.convert({**value, "id": name}, Rule) for name, value in found.items()]
        return sorted(rules, key=lambda rule: (rule.created_at, rule.id))

    async def revoke(self, owner: str, rule_id: str) -> bool:
        return await self._records.delete(owner, RULE, rule_id)

    async def is_trusted(self, owner: str, session_id: str) -> bool:
        return await self._records.get(owner, SESSION, _name(session_id, _TRUST)) is not None

    async def trusted_sessions(self, owner: str) -> list[str]:
        """The ids of the sessions that the owner trusts."""
        found = await self._records.list(owner, SESSION)
        return sorted(name.partition("/")[0] for name, value in found.items() if value["key"] == _TRUST)

    async def end_trust(self, owner: str, session_id: str) -> bool:
        """Ask again from the session's next tool call on. Returns whether it was trusted."""
        return await self._records.delete(owner, SESSION, _name(session_id, _TRUST))

    async def forget_session(self, owner: str, session_id: str) -> int:
        """Drop what was allowed in a session, when it is deleted; return how much there was."""
        count = 0
        for kind in (SESSION, REFUSED):
            names = [n for n in await self._records.list(owner, kind) if n.startswith(session_id + "/")]
            for name in names:
                await self._records.delete(owner, kind, name)
            count += len(names)
        return count

    async def _is_covered(
        self, call: ToolCall, concern: Concern, *, is_trusted: bool, is_sandboxed: bool
    ) -> bool:
        if concern.asks_always or (call.is_tainted and _reaches_far(concern)):
            return False
        if concern.key and await self._has(call, concern.key):
            return True
        # The hard rules cannot be applied to what cannot be read: without a sandbox it always asks.
        if is_trusted and (is_sandboxed or not concern.is_opaque):
            return True
        return bool(concern.key) and await self.is_allowed_always(call.owner, concern)

    async def _ran_before(self, call: ToolCall, concern: Concern) -> str:
        """For a host that was refused earlier: the call that already ran without it."""
        found = await self._records.get(call.owner, REFUSED, _name(call.session_id, concern.key))
        return f" (refused before; already ran without it: {found['label']})" if found else ""

    async def _has(self, call: ToolCall, key: str) -> bool:
        return await self._records.get(call.owner, SESSION, _name(call.session_id, key)) is not None

    def _rule(self, tool: str, concern: Concern, label: str) -> dict[str, str | int]:
        return {
            "key": concern.key,
            "tool": tool,
            "label": label,
            "created_at": self._clock.now_ms(),
            "covers": _covers(concern),
        }


def _options(call: ToolCall, concerns: list[Concern], *, is_sandboxed: bool) -> tuple[Decision, ...]:
    """The answers to offer: only those that would cover this call the next time."""
    if any(concern.asks_always or (call.is_tainted and _reaches_far(concern)) for concern in concerns):
        return (Decision.ONCE, Decision.DENY)
    options = [Decision.ONCE]
    if all(concern.key for concern in concerns):
        options += [Decision.SESSION, Decision.ALWAYS]
    if is_sandboxed or not any(concern.is_opaque for concern in concerns):
        options.append(Decision.TRUST)
    return (*options, Decision.DENY)


def _reaches_far(concern: Concern) -> bool:
    return concern.sends or concern.is_outside


def _covers(concern: Concern) -> str:
    return _flat(concern.covers or concern.key)


def _flat(text: str) -> str:
    return " ".join(text.split())


def _sentence(reason: str) -> str:
    return reason[:1].upper() + reason[1:] + ("" if reason.endswith(_SENTENCE_ENDS) else ".")


def _name(session_id: str, key: str) -> str:
    return f"{session_id}/{_digest(key)}"


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]
