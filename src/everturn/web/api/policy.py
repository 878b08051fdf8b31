"""What the user has allowed: rules for all sessions, and trust in single ones."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from everturn.domain import errors as e
from everturn.domain.sessions import Session
from everturn.domain.store import Sessions
from everturn.tools import Rule
from everturn.tools.policy.policy import Policy
from everturn.web.access.audit import Audit
from everturn.web.access.identity import Scope
from everturn.web.api.sessions import SessionId
from everturn.web.http.routing import AnyEndpoint, ApiCall, Endpoint, Nothing


class TrustedSession(msgspec.Struct, frozen=True):
    """A session whose tool calls run without asking, as far as trust covers them."""

    id: str
    title: str


class Rules(msgspec.Struct, frozen=True):
    """Rules cover all sessions; trust covers one session."""

    rules: tuple[Rule, ...]
    trusted: tuple[TrustedSession, ...]


class RevokeQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``id``: the rule to revoke. ``session_id``: the session whose trust ends. Neither: all rules."""

    id: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:-]{1,120}$")] | None = None
    session_id: SessionId | None = None


class Revoked(msgspec.Struct, frozen=True):
    revoked: int


class PolicyApi:
    def __init__(self, policy: Policy, sessions: Sessions, audit: Audit) -> None:
        self._policy = policy
        self._sessions = sessions
        self._audit = audit

    def endpoints(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="GET",
                path="/api/policy",
                run=self.rules,
                summary="The rules that always hold, and the sessions that are trusted.",
                tag="settings",
                scope=Scope.ADMIN,
                answer=Rules,
            ),
            Endpoint(
                method="DELETE",
                path="/api/policy",
                run=self.revoke,
                summary="Revoke one rule, all rules, or the trust in one session.",
                tag="settings",
                scope=Scope.ADMIN,
                query=RevokeQuery,
                answer=Revoked,
                errors=(e.NotFound, e.Invalid),
            ),
        ]

    async def rules(self, call: ApiCall[Nothing, Nothing]) -> Rules:
        trusted = [
            TrustedSession(session.id, session.title)
            for session_id in await self._policy.trusted_sessions(call.owner)
            if (session := await self._find_session(call.owner, session_id)) is not None
        ]
        return Rules(tuple(await self._policy.rules(call.owner)), tuple(trusted))

    async def _find_session(self, owner: str, session_id: str) -> Session | None:
        try:
            return await self._sessions.get(owner, session_id)
        except (e.NotFound, e.Gone):
            return None  # deleted meanwhile

    async def revoke(self, call: ApiCall[RevokeQuery, Nothing]) -> Revoked:
        if call.query.session_id is not None:
            if call.query.id is not None:
                raise e.Invalid("Both a rule and a session are named. Nothing was changed.", hint="Name one.")
            return await self._end_trust(call, call.query.session_id)
        return await self._revoke_rules(call)

    async def _end_trust(self, call: ApiCall[RevokeQuery, Nothing], session_id: str) -> Revoked:
        """From the next tool call on, the session asks again. Ending trust twice is no error."""
        session = await self._sessions.get(call.owner, session_id)
        if not await self._policy.end_trust(call.owner, session.id):
            return Revoked(0)
        await self._audit.note("trust.ended", call.caller, session.id)
        return Revoked(1)

    async def _revoke_rules(self, call: ApiCall[RevokeQuery, Nothing]) -> Revoked:
        if call.query.id is not None:
            if not await self._policy.revoke(call.owner, call.query.id):
                raise e.NotFound("rule", call.query.id)
            await self._audit.note("policy.revoked", call.caller, call.query.id)
            return Revoked(1)
        rules = await self._policy.rules(call.owner)
        for rule in rules:
            await self._policy.revoke(call.owner, rule.id)
        await self._audit.note("policy.revoked", call.caller, f"all {len(rules)}")
        return Revoked(len(rules))
