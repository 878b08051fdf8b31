"""Decides who may talk to an account (F05)."""

from __future__ import annotations

from typing import Final

import msgspec

from everturn.domain.delivery import PRIVATE_KINDS, SenderRole, Update
from everturn.domain.gateway import AccountSetup, Admission, Person
from everturn.domain.owners import guest_owner
from everturn.gateway.book import AccountBook

_SENDER_CHARS_MAX: Final = 200


class Admissions:
    """Admits senders to one account. Unknown senders get ``default_role``; None makes them strangers."""

    def __init__(
        self, account: str, setup: AccountSetup, default_role: SenderRole | None, book: AccountBook
    ) -> None:
        self._account = account
        self._setup = setup
        self._default_role = default_role
        self._book = book

    async def admit(self, update: Update) -> Admission | None:
        if not 0 < len(update.sender) <= _SENDER_CHARS_MAX:
            return None
        person = await self._book.people.find(self._account, update.sender)
        if person is not None and self._book.pairing.is_repeat(person, update.text):
            return msgspec.structs.replace(self._admission(person.role), is_paired_now=True)
        role = self._known_role(update.sender, person)
        if role is SenderRole.OWNER:
            return self._admission(role)
        if update.place.kind in PRIVATE_KINDS and (paired := await self._pair(update)) is not None:
            return msgspec.structs.replace(self._admission(paired), is_paired_now=True)
        role = role or self._default_role
        if role is not None:
            return self._admission(role)
        # In a group a guest would share a session with others, including the owner.
        if self._setup.guests and update.place.kind in PRIVATE_KINDS:  # guard: f05 always
            return self._guest(update.sender)
        return None

    async def role_now(self, update: Update) -> SenderRole | None:
        """Return the role for a stored update, at most the one it was received with.

        None if its sender was removed or may no longer talk in the owner's chat.
        """
        person = await self._book.people.find(self._account, update.sender)
        known = self._known_role(update.sender, person) or self._default_role
        if update.role is SenderRole.GUEST:
            # What they wrote as a guest stays in the guest's sessions, whatever their role is now.
            return SenderRole.GUEST if known is not None or self._setup.guests else None
        return SenderRole.MEMBER if update.role is SenderRole.MEMBER and known else known

    def _known_role(self, sender: str, person: Person | None) -> SenderRole | None:
        if sender in self._setup.allow:
            return SenderRole.OWNER
        if person is not None:
            return person.role
        return SenderRole.MEMBER if sender in self._setup.members else None

    async def _pair(self, update: Update) -> SenderRole | None:
        name = update.sender_name[:200]
        return await self._book.pairing.use(self._account, update.sender, update.text, name=name)

    def _admission(self, role: SenderRole) -> Admission:
        return Admission(self._book.owner, role, self._setup.profile)

    def _guest(self, sender: str) -> Admission:
        owner = guest_owner(self._account, sender)
        return Admission(owner, SenderRole.GUEST, self._setup.guest_profile)
