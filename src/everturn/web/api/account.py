"""Signing in and out, API tokens, the audit log."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from everturn import __version__
from everturn.domain import errors as e
from everturn.web.access.accounts import (
    Accounts,
    TokenInfo,
    browser_from,
    clear_cookie,
    cookie_from,
    set_browser,
    set_cookie,
)
from everturn.web.access.audit import Audit, AuditEntry
from everturn.web.access.errors import AccessNeeded, OldPasswordWrong, ScopeMissing, Throttled, WrongPassword
from everturn.web.access.identity import LOCAL_OWNER, Scope
from everturn.web.access.passwords import PASSWORD_LENGTH_MIN
from everturn.web.http.routing import Answer, AnyEndpoint, ApiCall, Endpoint, Nothing
from everturn.web.streams.streams import Streams

_SIGN_IN_BYTES_MAX = 16_384  # before sign-in: strangers get no more of our memory


class SignIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    password: Annotated[str, Meta(min_length=1, max_length=1024)]


class Enter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``token``: the text of ``access-token`` in the data folder, or the code of an address to open."""

    token: Annotated[str, Meta(min_length=1, max_length=1024)]


class SignOut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    everywhere: bool = False


class ChangePassword(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    old: Annotated[str, Meta(min_length=1, max_length=1024)]
    new: Annotated[str, Meta(min_length=PASSWORD_LENGTH_MIN, max_length=1024)]


class Me(msgspec.Struct, frozen=True):
    """``way``: open (this server has no sign-in) | access (came in with its token) | cookie | token."""

    owner: str
    way: str
    scopes: tuple[Scope, ...]
    version: str


class CreateToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    label: Annotated[str, Meta(min_length=1, max_length=100)]
    scopes: Annotated[tuple[Scope, ...], Meta(min_length=1, max_length=4)] = (Scope.CHAT,)
    days: Annotated[int, Meta(ge=1, le=3650)] | None = None


class NewToken(msgspec.Struct, frozen=True):
    """``text`` is shown this one time and is not stored."""

    token: TokenInfo
    text: str


class Tokens(msgspec.Struct, frozen=True):
    items: tuple[TokenInfo, ...]


class AuditQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class AuditPage(msgspec.Struct, frozen=True):
    items: tuple[AuditEntry, ...]


class AccountApi:
    """``is_password_configured``: config.toml or the environment sets the password at each start."""

    def __init__(
        self, accounts: Accounts, audit: Audit, streams: Streams, *, is_password_configured: bool = False
    ) -> None:
        self._accounts = accounts
        self._audit = audit
        self._streams = streams  # streams of a signed-out caller end at once
        self._is_password_configured = is_password_configured

    def endpoints(self) -> list[AnyEndpoint]:
        return [*self._sign_in_endpoints("account"), *self._tokens("account")]

    def _sign_in_endpoints(self, tag: str) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="POST",
                path="/api/signin",
                run=self.sign_in,
                summary="Sign in with the password; the answer sets a cookie.",
                tag=tag,
                scope=None,
                body=SignIn,
                body_bytes_max=_SIGN_IN_BYTES_MAX,
                answer=Me,
                errors=(WrongPassword, Throttled, e.WrongState),
            ),
            Endpoint(
                method="POST",
                path="/api/access",
                run=self.enter,
                summary="Enter with the access token where there is no password; sets a cookie.",
                tag=tag,
                scope=None,
                body=Enter,
                body_bytes_max=_SIGN_IN_BYTES_MAX,
                answer=Me,
                errors=(AccessNeeded, e.WrongState),
            ),
            Endpoint(
                method="POST",
                path="/api/signout",
                run=self.sign_out,
                summary="Sign out here, or everywhere.",
                tag=tag,
                body=SignOut,
                status=204,
                errors=(ScopeMissing,),
            ),
            Endpoint(
                method="PUT",
                path="/api/password",
                run=self.change_password,
                summary="Change the password; every other sign-in ends.",
                tag=tag,
                scope=Scope.ADMIN,
                body=ChangePassword,
                status=204,
                errors=(OldPasswordWrong, Throttled, e.WrongState),
            ),
            Endpoint(method="GET", path="/api/me", run=self.me, summary="Who you are.", tag=tag, answer=Me),
        ]

    def _tokens(self, tag: str) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="GET",
                path="/api/tokens",
                run=self.tokens,
                summary="Your API tokens.",
                tag=tag,
                scope=Scope.ADMIN,
                answer=Tokens,
            ),
            Endpoint(
                method="POST",
                path="/api/tokens",
                run=self.create_token,
                summary="Create an API token.",
                tag=tag,
                scope=Scope.ADMIN,
                body=CreateToken,
                answer=NewToken,
                status=201,
            ),
            Endpoint(
                method="DELETE",
                path="/api/tokens/{token}",
                run=self.revoke_token,
                summary="Revoke an API token; it stops working at once.",
                tag=tag,
                scope=Scope.ADMIN,
                status=204,
                errors=(e.NotFound,),
            ),
            Endpoint(
                method="GET",
                path="/api/audit",
                run=self.audit,
                summary="The audit log, newest first: sign-ins, approvals, changes of rights and budgets.",
                tag=tag,
                scope=Scope.ADMIN,
                query=AuditQuery,
                answer=AuditPage,
            ),
        ]

    async def sign_in(self, call: ApiCall[Nothing, SignIn]) -> Answer:
        if not await self._accounts.is_sign_in_on():
            raise e.WrongState("This server has no sign-in.", hint="'everturn password' switches it on.")
        address = call.visitor.address
        try:
            cookie, browser = await self._accounts.sign_in(
                call.body.password,
                call.visitor,
                agent=call.headers.get("user-agent", ""),
                old=cookie_from(call.headers, call.visitor),
                browser=browser_from(call.headers, call.visitor),
            )
        except (WrongPassword, Throttled) as error:
            if _is_worth_noting(error):
                await self._audit.write("signin.failed", LOCAL_OWNER, address=address, detail=error.code)
            raise
        await self._audit.write("signin", LOCAL_OWNER, address=address)
        me = Me(LOCAL_OWNER, "cookie", tuple(Scope), __version__)
        return Answer(me, headers=(set_cookie(cookie, call.visitor), set_browser(browser, call.visitor)))

    async def enter(self, call: ApiCall[Nothing, Enter]) -> Answer:
        if await self._accounts.is_sign_in_on():
            raise e.WrongState("This server has a password.", hint="Sign in with it.")
        host, port = call.scope["server"]
        agent = call.headers.get("user-agent", "")
        cookie = await self._accounts.enter(call.body.token, f"{host}:{port}", agent=agent)
        await self._audit.write("access", LOCAL_OWNER, address=call.visitor.address)
        me = Me(LOCAL_OWNER, "access", tuple(Scope), __version__)
        return Answer(me, headers=(set_cookie(cookie, call.visitor),))

    async def sign_out(self, call: ApiCall[Nothing, SignOut]) -> Answer:
        caller = call.caller
        if call.body.everywhere:
            if not caller.may(Scope.ADMIN):
                raise ScopeMissing(Scope.ADMIN)
            await self._accounts.sign_out_everywhere(caller.owner)
        elif caller.way in ("cookie", "access"):
            await self._accounts.sign_out(caller.credential)
        await self._streams.close_revoked()
        what = "signout.everywhere" if call.body.everywhere else "signout"
        await self._audit.note(what, caller)
        return Answer(None, headers=(clear_cookie(call.visitor),))

    async def change_password(self, call: ApiCall[Nothing, ChangePassword]) -> Answer:
        await self._refuse_change()
        caller, agent = call.caller, call.headers.get("user-agent", "")
        try:
            cookie = await self._accounts.change_password(
                call.body.old, call.body.new, call.visitor, agent=agent
            )
        except (WrongPassword, Throttled) as error:
            where, code = caller.address, error.code
            await self._audit.write("password.failed", caller.name, address=where, detail=code)
            if isinstance(error, WrongPassword):
                raise OldPasswordWrong from error
            raise
        await self._streams.close_revoked()
        await self._audit.note("password.changed", caller)
        return Answer(None, headers=(set_cookie(cookie, call.visitor),) if caller.way == "cookie" else ())

    async def _refuse_change(self) -> None:
        if not await self._accounts.is_sign_in_on():
            raise e.WrongState("This server has no sign-in.", hint="'everturn password' switches it on.")
        if self._is_password_configured:
            raise e.WrongState(
                "The password comes from config.toml or EVERTURN_PASSWORD: it would be back after a restart.",
                hint="Change it there.",
            )

    async def me(self, call: ApiCall[Nothing, Nothing]) -> Me:
        caller = call.caller
        scopes = tuple(scope for scope in Scope if caller.may(scope))
        return Me(caller.owner, caller.way, scopes, __version__)

    async def tokens(self, call: ApiCall[Nothing, Nothing]) -> Tokens:
        return Tokens(tuple(await self._accounts.tokens(call.owner)))

    async def create_token(self, call: ApiCall[Nothing, CreateToken]) -> NewToken:
        body = call.body
        info, text = await self._accounts.create_token(call.owner, body.label, body.scopes, days=body.days)
        detail = f"{info.id} {','.join(body.scopes)}"
        await self._audit.note("token.created", call.caller, detail)
        return NewToken(info, text)

    async def revoke_token(self, call: ApiCall[Nothing, Nothing]) -> None:
        await self._accounts.revoke_token(call.owner, call.path["token"])
        await self._streams.close_revoked()
        detail = call.path["token"]
        await self._audit.note("token.revoked", call.caller, detail)

    async def audit(self, call: ApiCall[AuditQuery, Nothing]) -> AuditPage:
        return AuditPage(tuple(await self._audit.newest(call.query.limit)))


def _is_worth_noting(error: WrongPassword | Throttled) -> bool:
    """The audit log is bounded: a flood of failed sign-ins must not push older entries out."""
    return isinstance(error, WrongPassword) or error.is_first
