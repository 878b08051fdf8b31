"""The model providers that can be used, with their keys."""

from __future__ import annotations

from collections.abc import Mapping

from everturn.domain.errors import SecretUnreadable
from everturn.domain.model_errors import ModelKeyMissing, ModelUnknown
from everturn.domain.secrets import Secret
from everturn.models.keys import KeyFound, Keys
from everturn.models.providers import Provider, own_server, resolve
from everturn.models.settings import ModelsSettings


class ProviderDirectory:
    """Providers by name: built in, configured, or connected in the settings of the page."""

    def __init__(self, settings: ModelsSettings, keys: Keys, environ: Mapping[str, str]) -> None:
        self._keys = keys
        self._fixed = resolve(settings, environ)

    @property
    def providers(self) -> dict[str, Provider]:
        """Those of the configuration, then the servers that were connected in the settings."""
        own = self._keys.servers()
        return self._fixed | {name: own_server(name, own[name]) for name in own if name not in self._fixed}

    def get(self, name: str) -> Provider:
        """The provider of this name. Raises ModelUnknown, ModelKeyMissing."""
        provider = self.providers.get(name)
        if provider is None:
            self._refuse_unreadable(name)
        if provider is None or not provider.base_url:
            known = ", ".join([*self.providers, "pocket", "coder"])
            raise ModelUnknown(
                f"There is no model provider {name[:80]!r}.",
                hint=f"A model is named provider:name. Known providers: {known}.",
            )
        return provider

    def _refuse_unreadable(self, name: str) -> None:
        """Raises ModelKeyMissing if the address of this server is stored and cannot be decrypted."""
        try:
            self._keys.server(name)
        except SecretUnreadable as error:
            raise ModelKeyMissing(error.message, hint=error.hint, provider=name) from error

    def split(self, name: str) -> tuple[Provider, str]:
        """The provider and the model of ``provider:model``. Raises ModelUnknown."""
        provider, _, model = name.partition(":")
        return self.get(provider), model

    def find_key(self, provider: Provider) -> KeyFound | None:
        """The provider's key, if there is one. Raises ModelKeyMissing for one that cannot be decrypted."""
        try:
            return self._keys.find(provider.name, provider.key_variables)
        except SecretUnreadable as error:
            raise ModelKeyMissing(error.message, hint=error.hint, provider=provider.name) from error

    def key_source(self, provider: Provider) -> str | None:
        """Where the provider's key comes from: environment, file or store; None if there is none.

        A key that cannot be decrypted counts: using it says what is wrong, and no other provider steps in."""
        return self._keys.source(provider.name, provider.key_variables)

    async def refresh(self) -> None:
        await self._keys.refresh()

    def require_key(self, provider: Provider) -> Secret | None:
        """The provider's key; None if it needs none. Raises ModelKeyMissing."""
        found = self.find_key(provider)
        if found is None and provider.needs_key:
            variable = provider.key_variables[0] if provider.key_variables else ""
            raise ModelKeyMissing(
                f"There is no key for {provider.name}.",
                hint=f"Set {variable} in the environment, or store a key in the settings.",
                provider=provider.name,
            )
        return found.secret if found else None

    def default_model(self) -> str | None:
        """The model of the first provider with a key, as ``provider:model``."""
        for provider in self.providers.values():
            if provider.model and self.key_source(provider) is not None:
                return f"{provider.name}:{provider.model}"
        return None

    def is_fixed(self, name: str) -> bool:
        """Whether the name belongs to a built-in or configured provider."""
        return name in self._fixed

    def server_address(self, name: str) -> str | None:
        """The address of a server that was connected in the settings."""
        return None if name in self._fixed else self._keys.servers().get(name)
