"""The people who were paired with accounts, in the store."""

from __future__ import annotations

import msgspec

from everturn.domain.gateway import Person
from everturn.domain.store import Records
from everturn.domain.store_values import RecordName

KIND = "gateway_people"  # records named <account>/<sender>


class People:
    """``owner``: of the accounts."""

    def __init__(self, records: Records, owner: str) -> None:
        self._records = records
        self._owner = owner

    async def find(self, account: str, sender: str) -> Person | None:
        """Find a person. Not cached, so that someone removed on another server is a stranger at once."""
        value = await self._records.get(self._owner, KIND, f"{account}/{sender}")
        return None if value is None else msgspec.convert(value, Person)

    async def all(self) -> dict[str, list[Person]]:
        """By account, in the order of their names."""
        found: dict[str, list[Person]] = {}
        for name, value in sorted((await self._records.list(self._owner, KIND)).items()):
            found.setdefault(name.partition("/")[0], []).append(msgspec.convert(value, Person))
        return found

    def record_of(self, account: str, sender: str) -> RecordName:
        return RecordName(self._owner, KIND, f"{account}/{sender}")

    async def put(self, account: str, person: Person) -> None:
        await self._records.put(self._owner, KIND, f"{account}/{person.id}", msgspec.to_builtins(person))

    async def remove(self, account: str, sender: str) -> bool:
        return await self._records.delete(self._owner, KIND, f"{account}/{sender}")
