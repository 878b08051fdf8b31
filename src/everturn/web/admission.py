"""Who may send a request: what is checked before an endpoint runs."""

from __future__ import annotations

from collections.abc import Mapping

from everturn.web.access.accounts import Accounts
from everturn.web.access.errors import ScopeMissing, SignInNeeded
from everturn.web.access.identity import Caller
from everturn.web.access.visitor import Proxies, Visitor
from everturn.web.http.asgi import Scope
from everturn.web.http.guard import RequestGuard
from everturn.web.http.routing import AnyEndpoint
from everturn.web.settings import WebSettings


class RequestAdmission:
    def __init__(self, settings: WebSettings, accounts: Accounts) -> None:
        self._guard = RequestGuard(settings.hosts)
        self._proxies = Proxies(settings.trusted_proxies)
        self.accounts = accounts

    async def admit(self, method: str, headers: Mapping[str, str], scope: Scope) -> Visitor:
        """Check the request before anything else reads it. Raises the errors of ``RequestGuard.check``."""
        visitor = self._proxies.visitor(scope, headers)
        is_open = not await self.accounts.is_sign_in_on()
        self._guard.check(method, headers, visitor, is_open=is_open)
        return visitor

    async def identify(self, endpoint: AnyEndpoint, headers: Mapping[str, str], visitor: Visitor) -> Caller:
        """Who sends the request. Raises SignInNeeded, ScopeMissing."""
        if endpoint.scope is None:
            return Caller("", frozenset(), "anonymous", address=visitor.address)
        caller = await self.accounts.caller(headers, visitor)
        if caller is None:
            raise SignInNeeded
        if not caller.may(endpoint.scope):
            raise ScopeMissing(endpoint.scope)
        return caller
