"""Who is asking and what they may do."""

from __future__ import annotations

from enum import StrEnum

import msgspec

LOCAL_OWNER = "local"  # the person at this machine; the admin, once there is a password
SYSTEM = "system"  # owner of records that belong to the server itself


class Scope(StrEnum):
    READ = "read"  # see sessions, messages, streams, files
    CHAT = "chat"  # write to them
    APPROVE = "approve"  # decide about tool calls
    ADMIN = "admin"  # settings, keys, tokens, policy


_IMPLIED = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.CHAT: frozenset({Scope.READ, Scope.CHAT}),
    Scope.APPROVE: frozenset({Scope.READ, Scope.APPROVE}),
    Scope.ADMIN: frozenset(Scope),
}


class Caller(msgspec.Struct, frozen=True):
    """``way``: open (no sign-in on this server) | access (came in with its token) | cookie | token |
    anonymous (an endpoint that needs no sign-in)."""

    owner: str
    scopes: frozenset[Scope]
    way: str
    credential: str = ""
    address: str = ""

    @property
    def name(self) -> str:
        """How approvals and the audit log call them."""
        return self.owner if self.way != "token" else f"{self.owner} (token {self.credential})"

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes


def expand_scopes(scopes: tuple[Scope, ...]) -> frozenset[Scope]:
    """Everything that these scopes allow together."""
    return frozenset().union(*(_IMPLIED[scope] for scope in scopes))


EVERYTHING = expand_scopes((Scope.ADMIN,))
