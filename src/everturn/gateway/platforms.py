"""Finds platforms by name and makes their accounts. A platform is imported when an account uses it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from types import MappingProxyType, ModuleType
from typing import Any, Final, get_type_hints

import msgspec
from msgspec import NODEFAULT

from everturn.domain.clock import Clock
from everturn.domain.delivery import SenderRole
from everturn.domain.errors import Invalid
from everturn.domain.extras import install_command
from everturn.domain.gateway import AccountSetup, PlatformForm, PlatformOption
from everturn.domain.platform import Platform
from everturn.domain.settings import settings_of

# Packages register their own platforms in this group: NAME = "module", as in the table below.
GROUP: Final = "everturn.platforms"
# The secrets of each built-in platform, as its module says: a missing one is found before the module's
# library is imported, which may take seconds.
_BUILT_IN_SECRETS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "telegram": ("token",),
        "slack": ("bot_token", "app_token"),
        "discord": ("token",),
        "mail": ("password",),
        "webhook": ("secret",),
    }
)
_BUILT_IN: Mapping[str, str] = MappingProxyType(
    {name: f"everturn.gateway.{name}" for name in _BUILT_IN_SECRETS}
)


class PlatformKind(msgspec.Struct, frozen=True):
    """What a platform's module declares.

    ``secrets`` names the secrets that an account needs. Unlisted senders get ``default_role``; None makes
    them strangers. ``config_only`` names options that only config.toml may set. ``sent_to`` names options
    that decide where the secrets are sent; None means that any option might.
    """

    name: str
    secrets: tuple[str, ...]
    settings: type[msgspec.Struct]
    make: Callable[..., Platform]  # (account, settings, secrets, clock); each has settings of its own type
    default_role: SenderRole | None = None
    config_only: tuple[str, ...] = ()
    sent_to: tuple[str, ...] | None = None

    def make_platform(
        self, account: str, setup: AccountSetup, secrets: Mapping[str, str], clock: Clock
    ) -> Platform:
        """Raises Invalid for wrong options and missing secrets."""
        settings = self.read_options(setup)
        refuse_missing_secrets(account, self.secrets, secrets)
        return self.make(account, settings, {name: secrets[name] for name in self.secrets}, clock)

    def refuse_config_only(self, setup: AccountSetup) -> None:
        """Raises Invalid for an option that only config.toml may set, where only someone on the machine
        can write it."""
        for key in setup.options.keys() & set(self.config_only):
            raise Invalid(f"{key} can be set in config.toml only.", hint="Leave it out here.", key=key)

    def refuse_redirect(
        self, before: AccountSetup, after: AccountSetup, secrets: Mapping[str, str | None]
    ) -> None:
        """Raises Invalid if the change would send the account's secrets elsewhere without giving them
        again: the right to change an account is not the right to read its secrets."""
        old, new = before.options, after.options
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) == new.get(key) or (self.sent_to is not None and key not in self.sent_to):
                continue
            for name in self.secrets:
                if not secrets.get(name):
                    raise Invalid(
                        f"With another {key} the {name} would be sent elsewhere. Nothing was changed.",
                        hint=f"Give the {name} again together with the change.",
                        key=key,
                    )

    def form(self) -> PlatformForm:
        """Return the fields that an account needs."""
        options = [
            PlatformOption(
                setting.name, setting.about, setting.default is NODEFAULT, setting.name in self.config_only
            )
            for setting in settings_of(self.settings).values()
        ]
        return PlatformForm(self.name, self.secrets, tuple(options))

    def read_options(self, setup: AccountSetup) -> msgspec.Struct:
        """The platform's own settings. Raises Invalid, which names the option."""
        known = self.settings.__struct_fields__
        for key in setup.options:
            if key not in known:
                hint = (
                    f"Possible: {', '.join(sorted({*AccountSetup.__struct_fields__, *known} - {'options'}))}."
                )
                raise Invalid(f"{key} is not a setting of {self.name} accounts.", hint=hint, key=key)
        try:
            return msgspec.convert(setup.options, self.settings)
        except msgspec.ValidationError as error:
            raise Invalid(
                f"A setting of the {self.name} account is wrong: {error}.", hint="Correct it."
            ) from error


def secrets_of(platform: str) -> tuple[str, ...]:
    """The secrets of a built-in platform, without importing it; none for others."""
    return _BUILT_IN_SECRETS.get(platform, ())


def refuse_missing_secrets(account: str, needed: Sequence[str], secrets: Mapping[str, str]) -> None:
    """Raises Invalid."""
    missing = [name for name in needed if not secrets.get(name)]
    if missing:
        raise Invalid(
            f"The account {account} has no {' and no '.join(missing)}.",
            hint=f"Set it on the page, or with 'everturn gateway secret {account} {missing[0]}'.",
        )


FindPlatform = Callable[[str], PlatformKind]


def platform_names() -> tuple[str, ...]:
    """All platforms, whether or not their libraries are installed."""
    return tuple(sorted(_places()))


def find_platform(name: str) -> PlatformKind:
    """Raises Invalid if there is no such platform, or if a library that it needs is not installed."""
    # ``Any``: what a module holds is known only once it is imported.
    found: Any = _import(name, _places())
    try:
        return PlatformKind(
            name=name,
            secrets=tuple(found.SECRETS),
            settings=get_type_hints(found.platform)["settings"],
            make=found.platform,
            default_role=getattr(found, "DEFAULT_ROLE", None),
            config_only=tuple(getattr(found, "CONFIG_ONLY", ())),
            sent_to=getattr(found, "SENT_TO", None),
        )
    except (AttributeError, KeyError) as error:
        raise Invalid(
            f"The module of the platform {name} is not complete: {error}.",
            hint="It needs SECRETS and platform(account, settings: <its struct>, secrets, clock).",
        ) from error


def _places() -> dict[str, str]:
    """Modules by platform. Built-in platforms cannot be replaced."""
    return {**{entry.name: entry.value for entry in entry_points(group=GROUP)}, **_BUILT_IN}


def _import(name: str, places: Mapping[str, str]) -> ModuleType:
    place = places.get(name)
    try:
        if place is not None:
            return import_module(place)
    except ModuleNotFoundError as error:
        if error.name != place:
            raise Invalid(
                f"The platform {name} needs the package {error.name}, which is not installed.",
                hint=f"Install it: {_install(name, error.name)}",
            ) from error
    raise Invalid(f"There is no platform {name[:64]!r}.", hint=f"Possible: {', '.join(sorted(places))}.")


def _install(name: str, missing: str | None) -> str:
    return install_command(name) if name in _BUILT_IN else f"pip install {missing}"
