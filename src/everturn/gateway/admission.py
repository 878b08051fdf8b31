"""Who may talk to an account (F05)."""

from __future__ import annotations

from everturn.domain.delivery import SenderRole, Update
from everturn.domain.gateway import Admission
from everturn.gateway.settings import AccountSetup


class Admissions:
    """Admits senders to one account. ``default_role``: of senders who are not listed; None: strangers."""

    def __init__(self, owner: str, setup: AccountSetup, default_role: SenderRole | None) -> None:
        self._owner = owner
        self._setup = setup
        self._default_role = default_role

    async def admit(self, update: Update) -> Admission | None:
        role = self._role_of(update.sender)
        return None if role is None else Admission(self._owner, role, self._setup.profile)

    def _role_of(self, sender: str) -> SenderRole | None:
        if sender in self._setup.allow:
            return SenderRole.OWNER
        if sender in self._setup.members:
            return SenderRole.MEMBER
        return self._default_role
