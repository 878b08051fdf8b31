"""Passwords as argon2id hashes. Hashing is slow and large on purpose, so few run at once."""

from __future__ import annotations

import anyio
import anyio.to_thread
from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError

from everturn.domain.errors import Invalid, Overloaded

PASSWORD_LENGTH_MIN = 8
PASSWORD_BYTES_MAX = 1024
_AT_ONCE = 2
_WAITING_MAX = 32


class Passwords:
    """``memory_kib`` and ``rounds`` are argon2id's costs; tests make them small."""

    def __init__(self, *, memory_kib: int = 65_536, rounds: int = 3) -> None:
        self._hasher = PasswordHasher(time_cost=rounds, memory_cost=memory_kib, parallelism=2, type=Type.ID)
        self._limiter: anyio.CapacityLimiter | None = None
        self._waiting = 0

    async def hash_password(self, password: str) -> str:
        """Raises Invalid if the password is too short or too long to be one."""
        if len(password) < PASSWORD_LENGTH_MIN or len(password.encode()) > PASSWORD_BYTES_MAX:
            raise Invalid(
                f"A password needs at least {PASSWORD_LENGTH_MIN} characters.",
                hint="Tip: four random words work well.",
            )
        return await self._run(password)

    async def verify(self, known: str, password: str) -> bool:
        """Whether the password is the one. A broken hash counts as no."""
        if len(password.encode()) > PASSWORD_BYTES_MAX:
            return False
        try:
            return bool(await self._run(password, known))
        except (VerificationError, InvalidHashError):
            return False

    async def _run(self, password: str, known: str | None = None) -> str:
        if self._waiting >= _WAITING_MAX:
            raise Overloaded("Too many sign-ins at once.", hint="Try again in a few seconds.")
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(_AT_ONCE)
        self._waiting += 1
        try:
            if known is None:
                return await anyio.to_thread.run_sync(self._hasher.hash, password, limiter=self._limiter)
            await anyio.to_thread.run_sync(self._hasher.verify, known, password, limiter=self._limiter)
            return known
        finally:
            self._waiting -= 1
