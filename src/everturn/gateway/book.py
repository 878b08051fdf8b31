"""The accounts as they are set up, in config.toml and in the store, whether or not they are served."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from everturn.domain.clock import Clock, call_within
from everturn.domain.delivery import SenderRole
from everturn.domain.errors import (
    AccountRefused,
    Invalid,
    NotFound,
    PlatformBusy,
    PlatformRefused,
    WrongState,
)
from everturn.domain.gateway import (
    AccountFigures,
    AccountHealth,
    AccountOrigin,
    AccountSetup,
    PairingCode,
    Person,
)
from everturn.domain.json_types import JsonObject
from everturn.domain.platform import Identity, Platform
from everturn.domain.secrets import Secrets
from everturn.domain.store import Store
from everturn.domain.store_values import RecordName
from everturn.gateway.pairing import Pairing
from everturn.gateway.people import People
from everturn.gateway.platforms import FindPlatform, PlatformKind, find_platform
from everturn.gateway.settings import check_name, read_setup, write_setup

_log = logging.getLogger("everturn.gateway")
KIND: Final = "gateway"  # of the records, and of the secrets: gateway/<account>/<name>
_HEALTH: Final = "gateway_health"  # records by account, written by the server that serves it
_IDENTIFY_S: Final = 30.0
_STALE_MS: Final = 60_000  # several times the interval at which the serving server writes
_DAY_MS: Final = 24 * 3600 * 1000


class WantedAccount(msgspec.Struct, frozen=True):
    """An account as it is set up now. Two that are equal need no restart."""

    setup: AccountSetup
    origin: AccountOrigin
    secrets: dict[str, str]


class BookServices(msgspec.Struct, frozen=True):
    """Where accounts are kept. ``owner``: of the accounts and of what they receive."""

    store: Store
    secrets: Secrets
    environ: Mapping[str, str]
    clock: Clock
    owner: str
    find_platform: FindPlatform = find_platform


class AccountBook:
    """Changes are durable on return. Servers notice them within seconds."""

    def __init__(self, configured: Mapping[str, AccountSetup], services: BookServices) -> None:
        self._configured = configured
        self._services = services
        self.clock = services.clock
        self.owner = services.owner
        self._records = services.store.records
        self.people = People(self._records, services.owner)
        self.pairing = Pairing(self._records, services.owner, services.clock)

    # --- reading -------------------------------------------------------------------------------------

    async def all(self) -> dict[str, WantedAccount]:
        """All accounts by name. Those of config.toml win."""
        records = await self._records.list(self.owner, KIND)
        await self._services.secrets.refresh()
        found: dict[str, WantedAccount] = {}
        for name, table in records.items():
            setup = _read_record(name, table)
            if setup is not None:
                found[name] = WantedAccount(setup, AccountOrigin.STORE, self._secrets_of(name))
        for name, setup in self._configured.items():
            found[name] = WantedAccount(setup, AccountOrigin.CONFIG, self._secrets_of(name))
        return found

    async def get(self, name: str) -> WantedAccount:
        """Raises NotFound."""
        found = (await self.all()).get(name)
        if found is None:
            raise NotFound("account", name)
        return found

    async def find_platform(self, name: str) -> PlatformKind:
        """Raises Invalid. In a thread: importing a platform's library takes a while."""
        find = self._services.find_platform
        # Abandoned if the server stops meanwhile.
        return await anyio.to_thread.run_sync(find, name, abandon_on_cancel=True)

    async def figures(self, name: str) -> AccountFigures:
        """Of the last day."""
        delivery = self._services.store.delivery
        return await delivery.figures(name, since_ms=self.clock.now_ms() - _DAY_MS)

    async def read_health(self, name: str) -> AccountHealth | None:
        """What the server that serves the account, or last served it, has written."""
        stored = await self._records.get(self.owner, _HEALTH, name)
        if stored is None:
            return None
        health = msgspec.convert(stored, AccountHealth)
        is_old = health.seen_at is not None and self.clock.now_ms() - health.seen_at > _STALE_MS
        holder = await self._services.store.delivery.leases.holder(name)
        return msgspec.structs.replace(health, is_stale=is_old or holder != health.worker)

    async def write_health(self, name: str, health: AccountHealth) -> None:
        seen = msgspec.structs.replace(health, seen_at=self.clock.now_ms())
        await self._records.put(self.owner, _HEALTH, name, msgspec.to_builtins(seen))

    # --- changing ------------------------------------------------------------------------------------

    async def add(self, name: str, setup: AccountSetup, secrets: Mapping[str, str]) -> Identity:
        check_name(name)
        if name in await self.all():
            raise WrongState(
                f"There is an account {name} already. Nothing was changed.", hint="Choose another name."
            )
        self._refuse_other_secrets(name, secrets)
        wanted = WantedAccount(setup, AccountOrigin.STORE, dict(secrets))
        identity = await self._identify(name, wanted)
        # Secrets first: an account without its secrets would start and fail.
        await self._put_secrets(name, secrets)
        await self.readmit(name)
        await self._records.put(self.owner, KIND, name, write_setup(setup))
        return identity

    async def change(
        self, name: str, changes: Mapping[str, object], secrets: Mapping[str, str | None]
    ) -> None:
        before = await self.get(name)
        if changes:
            self._refuse_configured(name)
        setup = _apply_changes(before.setup, changes)
        if "options" in changes:
            (await self.find_platform(setup.platform)).refuse_redirect(before.setup, setup, secrets)
            self._refuse_other_secrets(name, secrets)
        merged = {key: text for key, text in {**before.secrets, **secrets}.items() if text}
        # Who may talk can also be changed while the platform is away.
        if setup.enabled and (secrets or "options" in changes):
            await self._identify(name, WantedAccount(setup, before.origin, merged))
        await self._put_secrets(name, secrets)
        if changes:
            await self._records.put(self.owner, KIND, name, write_setup(setup))

    async def remove(self, name: str) -> None:
        await self.get(name)
        self._refuse_configured(name)
        records = [
            RecordName(self.owner, KIND, name),
            RecordName(self.owner, _HEALTH, name),
            *self.pairing.records_of(name),
            *(self.people.record_of(name, person.id) for person in await self.people_of(name)),
        ]
        # The account before its secrets: without them it would start again and fail.
        await self._services.store.delivery.remove_account(name, records)
        await self._put_secrets(name, dict.fromkeys(self._stored_secrets(name)))

    async def readmit(self, name: str) -> None:
        """Allow an account of this name again after one was removed."""
        await self._services.store.delivery.readmit_account(name)

    async def test(self, name: str) -> Identity:
        return await self._identify(name, await self.get(name))

    async def pair(self, name: str, role: SenderRole) -> PairingCode:
        _check_role(role)
        await self.get(name)
        return await self.pairing.make(name, role)

    async def people_of(self, name: str) -> list[Person]:
        return (await self.people.all()).get(name, [])

    async def change_role(self, name: str, sender: str, role: SenderRole) -> Person:
        _check_role(role)
        await self.get(name)
        person = await self.people.find(name, sender)
        if person is None:
            raise NotFound("paired sender", sender[:80])
        changed = msgspec.structs.replace(person, role=role)
        await self.people.put(name, changed)
        return changed

    async def remove_person(self, name: str, sender: str) -> None:
        await self.get(name)
        if not await self.people.remove(name, sender):
            raise NotFound("paired sender", sender[:80])

    async def make_platform(self, name: str, wanted: WantedAccount) -> tuple[PlatformKind, Platform]:
        """The account's platform, not connected yet. Raises Invalid."""
        kind = await self.find_platform(wanted.setup.platform)
        if wanted.origin is not AccountOrigin.CONFIG:
            kind.refuse_config_only(wanted.setup)
        return kind, kind.make_platform(name, wanted.setup, wanted.secrets, self.clock)

    def _refuse_configured(self, name: str) -> None:
        if name in self._configured:
            raise WrongState(
                f"The account {name} is set up in config.toml. Nothing was changed.",
                hint="Change it there, then restart the server.",
            )

    async def _identify(self, name: str, wanted: WantedAccount) -> Identity:
        """Ask the platform whether the account is good, before anything of it is stored."""
        _, platform = await self.make_platform(name, wanted)
        on = wanted.setup.platform
        try:
            return await call_within(self.clock, _IDENTIFY_S, platform.identify)
        except PlatformRefused as error:
            raise AccountRefused(
                f"{on} refuses the account: {error.message} Nothing was changed.",
                hint=error.hint or "Check the token.",
            ) from error
        except PlatformBusy as error:
            raise _busy(error.message) from error
        except Exception as error:  # the platform's own code
            _log.warning("account %s: asking for its name: %r", name, error)
            raise _busy(f"{on} could not be asked.") from error
        finally:
            with anyio.CancelScope(shield=True):
                await platform.close()

    # --- secrets -------------------------------------------------------------------------------------

    async def _put_secrets(self, account: str, secrets: Mapping[str, str | None]) -> None:
        if secrets:
            changes = {f"{KIND}/{account}/{name}": text for name, text in secrets.items()}
            await self._services.secrets.change(changes)

    def _refuse_other_secrets(self, account: str, secrets: Mapping[str, str | None]) -> None:
        """Raises WrongState if the environment holds a different secret from the one given: it would be
        used, and sent to the address that came with the other one."""
        environ = self._environ_secrets(account)
        for name, text in secrets.items():
            if text and environ.get(name, text) != text:
                raise WrongState(
                    f"The environment sets another {name} for the account {account}. Nothing was changed.",
                    hint="Give that one, or choose another name.",
                )

    def _secrets_of(self, account: str) -> dict[str, str]:
        """The account's secrets by their names. The environment wins."""
        return {**self._stored_secrets(account), **self._environ_secrets(account)}

    def _environ_secrets(self, account: str) -> dict[str, str]:
        prefix = f"EVERTURN_GATEWAY_{account.upper().replace('-', '_')}_"
        named = ((name, value) for name, value in self._services.environ.items() if name.startswith(prefix))
        return {name.removeprefix(prefix).lower(): value for name, value in named if value}

    def _stored_secrets(self, account: str) -> dict[str, str]:
        names = ((name.partition("/"), secret) for name, secret in self._services.secrets.find(KIND).items())
        return {own: secret.reveal() for (owner, _, own), secret in names if owner == account}


def _check_role(role: SenderRole) -> None:
    if role not in (SenderRole.OWNER, SenderRole.MEMBER):
        raise Invalid(f"A person cannot be given the role {role}.", hint="Use owner or member.")


def _busy(why: str) -> PlatformBusy:
    busy = PlatformBusy(f"{why} Nothing was changed.")
    busy.hint = "Check the connection, then try again."
    return busy


def _read_record(name: str, table: JsonObject) -> AccountSetup | None:
    try:
        return read_setup(table)
    except msgspec.ValidationError as error:
        # A newer version wrote it: this program leaves the account to the others.
        _log.warning("the account %s cannot be read: %s", name, error)
        return None


def _apply_changes(setup: AccountSetup, changes: Mapping[str, object]) -> AccountSetup:
    try:
        return msgspec.convert({**msgspec.to_builtins(setup), **changes}, AccountSetup)
    except msgspec.ValidationError as error:
        raise Invalid(f"A setting is wrong: {error}. Nothing was changed.", hint="Correct it.") from error
