"""Pairing codes: a sender who sends one gets a role. Codes are short, so the number of tries is limited."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Final

import anyio
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.delivery import SenderRole
from everturn.domain.gateway import PairingCode, Person
from everturn.domain.store import Records
from everturn.domain.store_values import RecordName
from everturn.gateway.people import KIND as PEOPLE

CODES: Final = "gateway_pairing"  # records by account
TRIES: Final = "gateway_tries"
ALPHABET: Final = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"  # without 0 and O, 1, I and L
CODE_CHARS: Final = 8
LIFE_MS: Final = 10 * 60_000
TRIES_MAX: Final = 20  # wrong codes, in the life of one code
TRIES_PER_SENDER_MAX: Final = 5
# Alone, or after the command that a link of Telegram sends. A hyphen in the middle is allowed.
_SHAPE: Final = re.compile(rf"(?:/start |/pair )?([{ALPHABET}]{{4}})-?([{ALPHABET}]{{4}})", re.IGNORECASE)


class _Code(msgspec.Struct, frozen=True):
    """A code, of which only the ``digest`` is stored."""

    digest: str
    role: SenderRole
    expires_at: int


class _Tries(msgspec.Struct, frozen=True):
    """The wrong tries by sender, for the code that expires at this time.

    A separate record, so that counting cannot overwrite a code that was created in the meantime.
    """

    expires_at: int
    by_sender: dict[str, int]


class Pairing:
    """``owner``: of the accounts."""

    def __init__(self, records: Records, owner: str, clock: Clock) -> None:
        self._records = records
        self._owner = owner
        self._clock = clock
        self._trying = anyio.Lock()

    async def make(self, account: str, role: SenderRole) -> PairingCode:
        """Create a code. The account's earlier code becomes invalid."""
        code = "".join(secrets.choice(ALPHABET) for _ in range(CODE_CHARS))
        expires_at = self._clock.now_ms() + LIFE_MS
        stored = _Code(_digest(account, code), role, expires_at)
        await self._records.put(self._owner, CODES, account, msgspec.to_builtins(stored))
        return PairingCode(f"{code[:4]}-{code[4:]}", role, expires_at)

    async def use(self, account: str, sender: str, text: str, *, name: str = "") -> SenderRole | None:
        """Pair the sender, if this text is a valid code, and return the role. A code is used once."""
        shape = _SHAPE.fullmatch(text.strip())
        if shape is None:
            return None
        async with self._trying:  # tries at the same time would be counted as one
            return await self._try(account, sender, name, (shape[1] + shape[2]).upper())

    def is_repeat(self, person: Person, text: str) -> bool:
        """True if this is the code that paired the person a moment ago, redelivered after a crash. It is
        still not a message to the agent."""
        paired_at = person.paired_at or 0
        return _SHAPE.fullmatch(text.strip()) is not None and self._clock.now_ms() - paired_at < LIFE_MS

    def records_of(self, account: str) -> list[RecordName]:
        return [RecordName(self._owner, kind, account) for kind in (CODES, TRIES)]

    async def _try(self, account: str, sender: str, name: str, given: str) -> SenderRole | None:
        code = await self._find_code(account)
        if code is None:
            return None
        tries = await self._tries(account, code)
        wrong = tries.get(sender, 0)
        if wrong >= TRIES_PER_SENDER_MAX or sum(tries.values()) >= TRIES_MAX:  # guard: f05
            return None
        if not hmac.compare_digest(_digest(account, given), code.digest):
            counted = _Tries(code.expires_at, {**tries, sender: wrong + 1})
            await self._records.put(self._owner, TRIES, account, msgspec.to_builtins(counted))
            return None
        # Of two processes that trade the code in, one gets True. The person is stored in the same
        # transaction: a crash in between would leave a used code and a sender who is still a stranger.
        person = Person(sender, code.role, name, self._clock.now_ms())
        place = RecordName(self._owner, PEOPLE, f"{account}/{sender}")
        spent = RecordName(self._owner, CODES, account)
        return code.role if await self._records.trade(spent, place, msgspec.to_builtins(person)) else None

    async def _find_code(self, account: str) -> _Code | None:
        value = await self._records.get(self._owner, CODES, account)
        if value is None:
            return None
        code = msgspec.convert(value, _Code)
        if code.expires_at <= self._clock.now_ms():  # guard: f05
            return None
        return code

    async def _tries(self, account: str, code: _Code) -> dict[str, int]:
        value = await self._records.get(self._owner, TRIES, account)
        tries = None if value is None else msgspec.convert(value, _Tries)
        return tries.by_sender if tries is not None and tries.expires_at == code.expires_at else {}


def _digest(account: str, code: str) -> str:
    return hashlib.sha256(f"{account}\n{code}".encode()).hexdigest()
