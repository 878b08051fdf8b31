"""The admin's password, sign-ins (cookies) and API tokens. Secrets are kept only as hashes."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping

import msgspec

from everturn.domain.clock import Clock, SystemClock
from everturn.domain.errors import EverturnError, Invalid, InvalidId, NotFound
from everturn.domain.ids import Ids, check_id
from everturn.domain.store import Records, Store
from everturn.web.access.errors import AccessNeeded, SignInNeeded, WrongPassword
from everturn.web.access.identity import EVERYTHING, LOCAL_OWNER, SYSTEM, Caller, Scope, expand_scopes
from everturn.web.access.passwords import Passwords
from everturn.web.access.throttle import Throttle
from everturn.web.access.token import Access
from everturn.web.access.visitor import Visitor

_SECRET_BYTES = 32  # 256 bit
_DAY_MS = 86_400_000
_IDLE_MS = 7 * _DAY_MS
_ABSOLUTE_MS = 30 * _DAY_MS
_TOUCH_MS = 300_000  # "last used" is exact to five minutes, so that reading does not write each time
_STATE_S = 1.0  # how long the answer to "is there a password" is believed
_BROWSERS_MAX = 50
_TOKEN_PREFIX = "evt"  # noqa: S105 - a marker, so that a leaked token is recognised


class StoredSignIn(msgspec.Struct, frozen=True, omit_defaults=True):
    owner: str
    digest: str
    created_at: int
    used_at: int
    agent: str = ""


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is stored of a token."""

    owner: str
    digest: str
    label: str
    scopes: tuple[Scope, ...]
    created_at: int
    used_at: int | None = None
    expires_at: int | None = None


class TokenInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """What may be shown of a token."""

    id: str
    label: str
    scopes: tuple[Scope, ...]
    created_at: int
    used_at: int | None = None
    expires_at: int | None = None


class Accounts:
    """Reads the store at every request, so that revoking, also by the command line, takes effect at once."""

    def __init__(
        self,
        records: Records,
        clock: Clock,
        ids: Ids,
        passwords: Passwords,
        throttle: Throttle,
        access: Access | None = None,
    ) -> None:
        self._records = records
        self._clock = clock
        self._ids = ids
        self._passwords = passwords
        self._throttle = throttle
        self._access = access or Access(None, clock)
        self._has_password = False
        self._read_at: float | None = None

    # --- the password --------------------------------------------------------------------------------

    async def is_sign_in_on(self) -> bool:
        """Whether there is a password; read again at most once a second."""
        now = self._clock.monotonic()
        if self._read_at is None or now - self._read_at >= _STATE_S:
            self._has_password = await self._records.get(SYSTEM, "password", LOCAL_OWNER) is not None
            self._read_at = now
        return self._has_password

    async def set_password(self, password: str) -> None:
        """Durable on return; every earlier sign-in has ended, and no browser is known any more."""
        digest = await self._passwords.hash_password(password)
        await self._records.put(SYSTEM, "password", LOCAL_OWNER, {"hash": digest})
        await self.sign_out_everywhere(LOCAL_OWNER)
        for ident in await self._records.list(SYSTEM, "browser"):
            await self._records.delete(SYSTEM, "browser", ident)
        self._read_at = None

    async def use_password(self, password: str) -> None:
        """Make a configured password the one that counts, keeping sign-ins if it already is."""
        known = await self._records.get(SYSTEM, "password", LOCAL_OWNER)
        if known is None or not await self._passwords.verify(known["hash"], password):
            await self.set_password(password)

    async def remove_password(self) -> None:
        await self._records.delete(SYSTEM, "password", LOCAL_OWNER)
        await self.sign_out_everywhere(LOCAL_OWNER)
        self._read_at = None

    # --- signing in and out --------------------------------------------------------------------------

    async def sign_in(
        self, password: str, visitor: Visitor, *, agent: str, old: str | None, browser: str | None = None
    ) -> tuple[str, str]:
        """The values of two new cookies: the sign-in, and the one by which the browser is known again.
        ``old``, the sign-in presented, ends. Raises Throttled, WrongPassword."""
        known = await self._find_browser(browser)
        await self._verify(password, visitor, known)
        if old is not None:
            await self.sign_out(old.partition(".")[0])
        await self._drop_expired()
        again = browser if browser is not None and known else await self._new_browser()
        return await self._new_sign_in(agent), again

    async def enter(self, token: str, place: str, *, agent: str) -> str:
        """The value of a new cookie, for the access token or a code made from it. Raises AccessNeeded.

        Not throttled: there are 256 bits to guess."""
        if not self._access.redeem(token, place):
            raise AccessNeeded("This is not the access token, or the address was opened before.")
        await self._drop_expired()
        return await self._new_sign_in(agent)

    async def change_password(self, old: str, new: str, visitor: Visitor, *, agent: str) -> str:
        """The value of a new cookie; every earlier sign-in has ended. Guessing the old password is slowed
        as signing in is. Raises Throttled, WrongPassword, Invalid."""
        await self._verify(old, visitor)
        await self.set_password(new)
        return await self._new_sign_in(agent)

    async def _verify(self, password: str, visitor: Visitor, browser: str = "") -> None:
        self._throttle.begin(visitor.address, browser)
        try:
            known = await self._records.get(SYSTEM, "password", LOCAL_OWNER)
            is_right = known is not None and await self._passwords.verify(known["hash"], password)
        except EverturnError:
            self._throttle.take_back(visitor.address, browser)  # too many at once, or the store is away
            raise
        if not is_right:
            raise WrongPassword
        self._throttle.note_success(visitor.address, browser)

    async def _find_browser(self, cookie: str | None) -> str:
        """The id of a browser that has signed in before; empty for any other."""
        ident, _, secret = (cookie or "").partition(".")
        value = await self._records.get(SYSTEM, "browser", ident) if _is_id(ident, "brw") else None
        is_known = value is not None and hmac.compare_digest(str(value["digest"]), _digest(secret))
        return ident if is_known else ""

    async def _new_browser(self) -> str:
        found = await self._records.list(SYSTEM, "browser")
        for old in sorted(found)[: len(found) - _BROWSERS_MAX + 1]:
            await self._records.delete(SYSTEM, "browser", old)
        ident, secret = self._ids.make("brw"), self._secret()
        await self._records.put(SYSTEM, "browser", ident, {"digest": _digest(secret)})
        return f"{ident}.{secret}"

    async def _new_sign_in(self, agent: str) -> str:
        ident, secret, now = self._ids.make("sin"), self._secret(), self._clock.now_ms()
        entry = StoredSignIn(LOCAL_OWNER, _digest(secret), now, now, agent[:200])
        await self._records.put(SYSTEM, "signin", ident, msgspec.to_builtins(entry))
        return f"{ident}.{secret}"

    async def sign_out(self, ident: str) -> bool:
        return await self._records.delete(SYSTEM, "signin", ident)

    async def sign_out_everywhere(self, owner: str) -> int:
        """End every sign-in of this owner; API tokens stay."""
        ended = 0
        for ident, value in (await self._records.list(SYSTEM, "signin")).items():
            if value.get("owner") == owner:
                ended += await self._records.delete(SYSTEM, "signin", ident)
        return ended

    async def _drop_expired(self) -> None:
        now = self._clock.now_ms()
        for ident, value in (await self._records.list(SYSTEM, "signin")).items():
            if _is_over(msgspec.convert(value, StoredSignIn), now):
                await self._records.delete(SYSTEM, "signin", ident)

    # --- tokens --------------------------------------------------------------------------------------

    async def create_token(
        self, owner: str, label: str, scopes: tuple[Scope, ...], *, days: int | None = None
    ) -> tuple[TokenInfo, str]:
        """A new token and its text, which is shown once and never stored."""
        if not label.strip() or not label.isprintable():
            raise Invalid("A token needs a label, on one line.", hint="Say where it is used: phone, webui.")
        if not scopes:
            raise Invalid("A token needs at least one scope.", hint="read, chat, approve or admin")
        ident, secret, now = self._ids.make("tok"), self._secret(), self._clock.now_ms()
        expires_at = None if days is None else now + days * _DAY_MS
        entry = Token(owner, _digest(secret), label, scopes, now, None, expires_at)
        await self._records.put(SYSTEM, "token", ident, msgspec.to_builtins(entry))
        return _info(ident, entry), f"{_TOKEN_PREFIX}_{ident.removeprefix('tok_')}_{secret}"

    async def tokens(self, owner: str) -> list[TokenInfo]:
        found = await self._records.list(SYSTEM, "token")
        entries = ((ident, msgspec.convert(value, Token)) for ident, value in sorted(found.items()))
        return [_info(ident, entry) for ident, entry in entries if entry.owner == owner]

    async def revoke_token(self, owner: str, ident: str) -> None:
        value = await self._records.get(SYSTEM, "token", ident)
        if value is None or value["owner"] != owner:
            raise NotFound("token", ident)
        await self._records.delete(SYSTEM, "token", ident)

    # --- who is asking -------------------------------------------------------------------------------

    async def caller(self, headers: Mapping[str, str], visitor: Visitor) -> Caller | None:
        """Who sent this request; None without a credential. Raises SignInNeeded for a credential that is not
        valid: what was meant as one is never treated as none. On a server without a password: raises
        AccessNeeded unless its own user asks, or a client with the access token."""
        bearer = headers.get("authorization")
        if bearer is not None:
            return await self._by_token(bearer, visitor)
        cookie = cookie_from(headers, visitor)
        if await self.is_sign_in_on():
            return None if cookie is None else await self._by_cookie(cookie, visitor)
        if visitor.is_owner:
            return _open(visitor)
        if cookie is None:
            raise AccessNeeded
        try:
            return await self._by_cookie(cookie, visitor, "access")
        except SignInNeeded as error:
            raise AccessNeeded from error

    async def still_valid(self, caller: Caller) -> bool:
        """True if the caller's credential is still valid. Long-lived streams ask this."""
        if caller.way == "open":
            return not await self.is_sign_in_on()
        kind = "token" if caller.way == "token" else "signin"
        value = await self._records.get(SYSTEM, kind, caller.credential)
        if value is None:
            return False
        now = self._clock.now_ms()
        if kind == "token":
            return not _is_token_over(msgspec.convert(value, Token), now)
        # Reading a stream counts as use, so that its sign-in does not expire meanwhile.
        return now - msgspec.convert(value, StoredSignIn).created_at <= _ABSOLUTE_MS

    async def _by_token(self, header: str, visitor: Visitor) -> Caller | None:
        kind, _, text = header.partition(" ")
        parts = text.strip().split("_", 2)
        if kind.lower() != "bearer" or len(parts) != 3 or parts[0] != _TOKEN_PREFIX:
            return await self._for_any_key(header, visitor)
        ident = f"tok_{parts[1]}"
        value = await self._records.get(SYSTEM, "token", ident)
        entry = None if value is None else msgspec.convert(value, Token)
        now = self._clock.now_ms()
        if entry is None or not hmac.compare_digest(entry.digest, _digest(parts[2])):
            raise SignInNeeded("The API token is not valid.")
        if _is_token_over(entry, now):
            raise SignInNeeded("The API token has expired.")
        if entry.used_at is None or now - entry.used_at > _TOUCH_MS:
            await self._touch("token", ident, msgspec.structs.replace(entry, used_at=now))
        return Caller(entry.owner, expand_scopes(entry.scopes), "token", ident, visitor.address)

    async def _for_any_key(self, header: str, visitor: Visitor) -> Caller:
        if await self.is_sign_in_on() or not header.lower().startswith("bearer "):
            raise SignInNeeded("The Authorization header holds no API token of this server.")
        # OpenAI clients always send a key: the owner's may be any text.
        if visitor.is_owner or self._access.is_token(header.partition(" ")[2].strip()):
            return _open(visitor)
        raise AccessNeeded("The Authorization header holds no token of this server.")

    async def _by_cookie(self, cookie: str, visitor: Visitor, way: str = "cookie") -> Caller:
        ident, _, secret = cookie.partition(".")
        value = await self._records.get(SYSTEM, "signin", ident) if _is_id(ident, "sin") else None
        entry = None if value is None else msgspec.convert(value, StoredSignIn)
        now = self._clock.now_ms()
        if entry is None or not hmac.compare_digest(entry.digest, _digest(secret)) or _is_over(entry, now):
            raise SignInNeeded("You are signed out.")
        if now - entry.used_at > _TOUCH_MS:
            await self._touch("signin", ident, msgspec.structs.replace(entry, used_at=now))
        return Caller(entry.owner, EVERYTHING, way, ident, visitor.address)

    async def _touch(self, kind: str, ident: str, entry: Token | StoredSignIn) -> None:
        # Not ``put``: it would bring back what was revoked after it was read.
        await self._records.replace(SYSTEM, kind, ident, msgspec.to_builtins(entry))

    def _secret(self) -> str:
        return secrets.token_hex(_SECRET_BYTES)


def _open(visitor: Visitor) -> Caller:
    return Caller(LOCAL_OWNER, EVERYTHING, "open", address=visitor.address)


# --- cookies -----------------------------------------------------------------------------------------

_PLAIN = "everturn"
_SECURE = "__Host-"  # browsers take a name that begins so only over TLS, from this very host
_BROWSER = "-browser"
_BROWSER_S = 400 * 86_400  # as long as browsers keep one


def cookie_from(headers: Mapping[str, str], visitor: Visitor) -> str | None:
    """The sign-in that the request carries. Over TLS only the name that no other host can set counts: a
    neighbour under the same domain could plant the plain one."""
    return _find_header(headers, _name(visitor))


def browser_from(headers: Mapping[str, str], visitor: Visitor) -> str | None:
    """The id of a browser that has signed in before; None if it has not."""
    return _find_header(headers, _name(visitor) + _BROWSER)


def _find_header(headers: Mapping[str, str], wanted: str) -> str | None:
    given = headers.get("cookie")
    if given is None:
        return None
    # Parsed by hand: the library's parser stops at the first cookie that violates the standard, and browsers
    # also send the cookies of every other program on this host, on any port.
    for item in given.split(";"):
        name, _, value = item.partition("=")
        if name.strip() == wanted:
            return value.strip() or None
    return None


def set_cookie(value: str, visitor: Visitor) -> tuple[bytes, bytes]:
    return b"set-cookie", _cookie(_name(visitor), value, _ABSOLUTE_MS // 1000)


def set_browser(value: str, visitor: Visitor) -> tuple[bytes, bytes]:
    return b"set-cookie", _cookie(_name(visitor) + _BROWSER, value, _BROWSER_S)


def clear_cookie(visitor: Visitor) -> tuple[bytes, bytes]:
    return b"set-cookie", _cookie(_name(visitor), "", 0)


def _cookie(name: str, value: str, max_age_s: int) -> bytes:
    secure = "; Secure" if name.startswith(_SECURE) else ""
    # Strict: the page itself is public, and its own requests are same-site, so nothing needs less.
    return f"{name}={value}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Strict{secure}".encode()


def _name(visitor: Visitor) -> str:
    return f"{_SECURE}{_PLAIN}" if visitor.scheme == "https" else _PLAIN


def _digest(secret: str) -> str:
    # A 256-bit random secret needs no slow hash: there is nothing to guess.
    return hashlib.sha256(secret.encode()).hexdigest()


def _is_id(ident: str, prefix: str) -> bool:
    try:
        return bool(check_id(ident, prefix))
    except InvalidId:
        return False


def _is_over(entry: StoredSignIn, now: int) -> bool:
    return now - entry.used_at > _IDLE_MS or now - entry.created_at > _ABSOLUTE_MS


def _is_token_over(entry: Token, now: int) -> bool:
    return entry.expires_at is not None and now >= entry.expires_at


def _info(ident: str, entry: Token) -> TokenInfo:
    return TokenInfo(ident, entry.label, entry.scopes, entry.created_at, entry.used_at, entry.expires_at)


def open_accounts(
    store: Store,
    clock: Clock | None = None,
    ids: Ids | None = None,
    passwords: Passwords | None = None,
    access: Access | None = None,
) -> Accounts:
    """Passwords and tokens of a store: for the web, and for ``everturn password`` and ``everturn token``."""
    clock = clock or SystemClock()
    return Accounts(
        store.records, clock, ids or Ids(clock), passwords or Passwords(), Throttle(clock), access
    )
