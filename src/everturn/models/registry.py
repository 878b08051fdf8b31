"""Finds models by name (``provider:name``) and says which there are, in what state.

The default is what the user named; else the first provider with a key; else the first model of a
server that runs on this machine; else the pocket model, which always can be had.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from types import TracebackType

import anyio
import httpx2
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.errors import Invalid, ModelKeyMissing, ModelTrouble, ModelUnknown
from everturn.domain.messages import Message, Role, Text
from everturn.domain.model import (
    Abilities,
    Finish,
    Model,
    ModelRequest,
    ProgressChunk,
    TextChunk,
)
from everturn.domain.turns import FinishReason, Usage
from everturn.models.anthropic_wire import AnthropicModel, generation_of
from everturn.models.discovery import Discovery, FoundServer
from everturn.models.failures import first_sentence
from everturn.models.history_cache import HistoryCache
from everturn.models.keys import KeyFound, Keys, Secret, redact
from everturn.models.local import (
    CODER_SPEC,
    POCKET_SPEC,
    Fetches,
    LlamaServer,
    LocalModel,
    LocalSpec,
    check_runtime,
)
from everturn.models.model_lists import ListedModel, ModelLists, auth_headers
from everturn.models.network import make_client
from everturn.models.openai_wire import OpenAIModel, Refusals
from everturn.models.prices import PriceFacts, Prices
from everturn.models.providers import DISCOVERED, Provider, checked_address, own_server, resolve
from everturn.models.selection import suggest_model
from everturn.models.settings import ModelSettings, ModelsSettings
from everturn.models.steering import TextCalls
from everturn.models.weights import Download, PipDownload, Shelf
from everturn.models.wire import Target

_FACTS_AGE_MAX_S = 60.0
_LIST_TIMEOUT_S = 5.0
_QUICK_TIMEOUT_S = 1.0  # where a start or a turn waits for it
_TEST_TIMEOUT_S = 300.0  # a large local model on a busy machine
_TEST_TOKENS = 16
_CLOSE_TIMEOUT_S = 10.0


class ModelState(msgspec.Struct, frozen=True):
    """A model as a list shows it. ``state``: ready | needs_key | not_fetched | fetching | no_runtime."""

    name: str
    provider: str
    state: str
    abilities: Abilities | None = None
    prices: PriceFacts = PriceFacts()
    is_default: bool = False
    size: int | None = None  # bytes to fetch
    key_source: str | None = None  # environment | file
    note: str = ""
    can_chat: bool = True  # False: for embeddings, speech, images
    is_suggested: bool = False  # the one of its provider to begin with


class Trial(msgspec.Struct, frozen=True):
    """How a trial went; ``problem`` and ``hint`` are empty if it went well."""

    is_ok: bool
    text: str = ""
    first_token_ms: int | None = None
    total_ms: int | None = None
    usage: Usage = Usage()
    problem: str = ""
    hint: str = ""
    code: str = ""


class _Found(msgspec.Struct, frozen=True):
    abilities: Abilities | None
    until: float


class ModelRegistry:
    """Keeps ``domain.modelling.Models``. Open it as an async context manager.

    Opening is fast: with nothing configured it looks for servers on loopback, which takes milliseconds
    where there are none. Local models start with their first call. Closing ends their processes.
    """

    def __init__(
        self,
        settings: ModelsSettings,
        keys: Keys,
        clock: Clock,
        environ: Mapping[str, str],
        *,
        weights_folder: Path,
        default: str | None = None,
        download: Download | None = None,
        prices: Prices | None = None,
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._clock = clock
        self._environ = environ
        self._fixed = resolve(settings, environ)
        self._prices = prices or Prices()
        self._shelf = Shelf(weights_folder, download or PipDownload(environ))
        self._named = _canonical(default) if default else None
        self._placed: str | None = None  # what a server named by an address alone serves
        self._discovered: tuple[FoundServer, ...] = ()
        self._lists = ModelLists(self._client_of, self._find_key, clock)
        self._facts: dict[str, _Found] = {}
        self._refusals: dict[str, Refusals] = {}
        self._history_cache = HistoryCache()
        self._servers: dict[str, LlamaServer] = {}
        self._stack = AsyncExitStack()
        self._world: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> ModelRegistry:
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            self._fetches = Fetches(self._shelf, tasks)
            # Two clients: a proxy is for the world and never for this machine. The one for the world is
            # made when it is needed: loading the certificates takes longer than all the rest here.
            self._near = await stack.enter_async_context(make_client(is_near=True))
            places = {name: self._providers[name].root for name in DISCOVERED}
            self._discovery = Discovery(self._near, places)
            if self._static_default() is None:
                await self.discover()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
            for server in self._servers.values():
                await server.close()
            if self._world is not None:
                await self._world.aclose()
        # Without the error: the task group would wrap it, and whoever catches it looks for its type.
        await self._stack.aclose()

    # --- Models ------------------------------------------------------------------------------------

    @property
    def default(self) -> str:
        """The model of a turn that names none. Changes when a key is set or a server is found."""
        static = self._static_default()
        if static is not None:
            return static
        if self._placed is not None:
            return self._placed
        for server in self._discovered:
            for model in server.models:
                if model.can_chat:
                    return f"{server.provider}:{model.name}"
        return POCKET_SPEC.name

    def check(self, name: str) -> None:
        """Whether there can be such a model, without asking anyone: a server may be down for now.

        Needs no open registry. Raises ModelUnknown, ModelKeyMissing.
        """
        name = _canonical(name)
        if name not in _LOCAL:
            self._key(self._split(name)[0])

    async def get(self, name: str | None) -> Model:
        """The model of this name, or the default. Raises ModelUnknown, ModelKeyMissing."""
        name = _canonical(name or self.default)
        local = _LOCAL.get(name)
        if local is not None:
            return self._local(local)
        provider, model = self._split(name)
        if not model:
            model = await self._first_model(provider)
            name = f"{provider.name}:{model}"
        key = self._key(provider)
        settings = self._settings.settings.get(name, ModelSettings())
        target = await self._target(name, provider, model, key, settings)
        return self._built(target, provider, settings)

    # --- what there is -----------------------------------------------------------------------------

    @property
    def _providers(self) -> dict[str, Provider]:
        """Those of the configuration, then the servers that were connected in the settings."""
        own = self._keys.servers()
        return self._fixed | {name: own_server(name, own[name]) for name in own if name not in self._fixed}

    async def list(self) -> tuple[ModelState, ...]:
        """The models that can be used or could be, best known first: one line per model.

        Providers without a key are listed with the model that a key would give; providers with one
        are asked for their models, all at once, and one that does not answer says so in its note.
        """
        lines: dict[str, tuple[ModelState, ...]] = {}

        async def ask(provider: Provider) -> None:
            lines[provider.name] = await self._list_provider(provider)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.discover, name="discover")
            for provider in self._providers.values():
                if provider.name not in DISCOVERED:
                    tasks.start_soon(ask, provider, name=f"list {provider.name}")
        found = {server.provider: self._list_found(server) for server in self._discovered}
        ordered = [state for name in self._providers for state in (lines | found).get(name, ())]
        states = [*ordered, *(self._list_local(spec) for spec in (POCKET_SPEC, CODER_SPEC))]
        default = self.default
        return tuple(msgspec.structs.replace(s, is_default=True) if s.name == default else s for s in states)

    async def discover(self) -> tuple[FoundServer, ...]:
        """Look for Ollama, LM Studio and llama.cpp on this machine, again each time it is called."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._look_at_placed, name="look at the named server")
            self._discovered = await self._discovery.find()
        return self._discovered

    async def _look_at_placed(self) -> None:
        """An address in the environment (OPENAI_BASE_URL) without a model: take what is served there."""
        self._placed = None
        for provider in self._providers.values():
            if provider.is_placed and provider.name not in DISCOVERED:
                entries = await self._lists.entries(provider, _QUICK_TIMEOUT_S)
                if entries:
                    self._placed = f"{provider.name}:{_first_of(entries)}"
                    return

    async def pull(self, name: str) -> AsyncGenerator[ProgressChunk, None]:
        """Fetch the weights of ``pocket`` or ``coder``; nothing comes if they are there.

        The fetch goes on when the caller stops listening. Raises ModelUnknown, ModelTrouble.
        """
        spec = _LOCAL.get(_canonical(name))
        if spec is None:
            raise ModelUnknown(
                f"There is nothing to fetch for {name[:80]!r}.", hint="Possible: pocket, coder."
            )
        async with aclosing(self._fetches.progress(spec.weights)) as progress:
            async for chunk in progress:
                yield chunk

    # --- trying ------------------------------------------------------------------------------------

    async def test(self, name: str | None = None) -> Trial:
        """Say a few words to a model. Never raises ModelTrouble: what is wrong is in the result."""
        started = self._clock.monotonic()
        words, first, finish = "", None, Finish(FinishReason.STOP)
        try:
            model = await self.get(name)
            with anyio.fail_after(_TEST_TIMEOUT_S):
                async with model.stream(_TRIAL) as chunks:
                    async for chunk in chunks:
                        if isinstance(chunk, TextChunk):
                            words += chunk.text
                        elif isinstance(chunk, Finish):
                            finish = chunk
                        if first is None and not isinstance(chunk, ProgressChunk):
                            first = self._ms_since(started)
        except ModelTrouble as error:
            return Trial(False, words, problem=error.message, hint=error.hint, code=error.code)
        except TimeoutError:
            problem = f"No whole answer in {_TEST_TIMEOUT_S:g} seconds."
            return Trial(False, words, first, problem=problem, code="model_timeout")
        return Trial(True, words.strip(), first, self._ms_since(started), finish.usage)

    async def test_key(self, provider_name: str, key: str | None = None) -> Trial:
        """Ask the provider whether a key is good: the given one, else the one that would be used."""
        provider = self._provider(provider_name)
        found = Secret(key.strip()) if key else getattr(self._find_key(provider), "secret", None)
        if found is None:
            return Trial(False, problem=f"There is no key for {provider.name}.", code="model_key_missing")
        started = self._clock.monotonic()
        try:
            response = await self._client_of(provider).get(
                provider.base_url + provider.key_path,
                headers=auth_headers(provider, found),
                timeout=_LIST_TIMEOUT_S,
            )
        except (httpx2.HTTPError, httpx2.InvalidURL):
            problem = f"Could not reach {provider.title}."
            return Trial(False, problem=problem, hint="Check the connection.", code="model_dropped")
        if response.status_code in (401, 403):
            said = first_sentence(response.content, lambda text: redact(text, (found,)))
            why = f": {said}" if said else "."
            return Trial(False, problem=f"{provider.title} rejected this key{why}", code="model_refused")
        if response.status_code >= 400:
            problem = f"{provider.title} returned an error ({response.status_code}). The key was not checked."
            return Trial(False, problem=problem, hint="Try again later.", code="model_trouble")
        return Trial(True, total_ms=self._ms_since(started))

    async def test_server(self, name: str, base_url: str, key: str | None = None) -> tuple[Trial, str]:
        """Ask a server of one's own for its models: how that went, and the address that answered.

        People leave out /v1: where the address as given has no models, that is tried too. The stored key
        is used only where it belongs to this very address. Raises Invalid for what is no address.
        """
        address = checked_address(base_url)
        if name in self._fixed or name in _TAKEN:
            raise Invalid(f"{name!r} is the name of something else here.", hint="Choose another name.")
        if key is None and self._keys.servers().get(name) == address:
            key = getattr(self._find_key(own_server(name, address)), "secret", Secret("")).reveal() or None
        trial = await self._ask_server(own_server(name, address), key)
        if trial.code == "model_trouble" and not address.endswith("/v1"):
            longer = f"{address}/v1"
            second = await self._ask_server(own_server(name, longer), key)
            if second.is_ok:
                return second, longer
        return trial, address

    async def _ask_server(self, provider: Provider, key: str | None) -> Trial:
        started = self._clock.monotonic()
        secret = Secret(key) if key else None
        try:
            entries = await self._lists.ask(provider, secret, _LIST_TIMEOUT_S)
        except httpx2.HTTPStatusError as error:
            return _refused(provider, error.response.status_code)
        except (httpx2.HTTPError, httpx2.InvalidURL):
            problem = f"Nothing answers at {provider.base_url}."
            return Trial(False, problem=problem, hint="Is the server running?", code="model_dropped")
        except msgspec.DecodeError:
            problem = f"What answers at {provider.base_url} is not an OpenAI-compatible server."
            return Trial(False, problem=problem, hint="Its address often ends in /v1.", code="model_trouble")
        if not entries:
            return Trial(False, problem="The server lists no models.", hint="Load one.", code="model_unknown")
        return Trial(True, ", ".join(one.id for one in entries[:5]), total_ms=self._ms_since(started))

    def forget(self, provider_name: str) -> None:
        """What was asked of this provider was asked with another key or at another address."""
        self._lists.forget(provider_name)
        for name in [one for one in self._facts if one.startswith(f"{provider_name}:")]:
            del self._facts[name]
        for name in [one for one in self._refusals if one.startswith(f"{provider_name}:")]:
            del self._refusals[name]

    def server_of(self, provider_name: str) -> str | None:
        """The address of a server that was connected in the settings."""
        return None if provider_name in self._fixed else self._keys.servers().get(provider_name)

    def key_state(self, provider_name: str) -> str | None:
        """Where the provider's key comes from: environment, file, or None."""
        found = self._find_key(self._provider(provider_name))
        return found.source if found else None

    @property
    def provider_names(self) -> tuple[str, ...]:
        return tuple(self._providers)

    # --- making models -----------------------------------------------------------------------------

    def _static_default(self) -> str | None:
        """The default as far as it is known without asking anyone."""
        if self._named is not None:
            return self._named
        for provider in self._providers.values():
            if provider.model and self._find_key(provider) is not None:
                return f"{provider.name}:{provider.model}"
        return None

    def _local(self, spec: LocalSpec) -> Model:
        server = self._servers.get(spec.name)
        if server is None:
            path = self._fetches.path(spec.weights)
            server = self._servers[spec.name] = LlamaServer(spec, path, self._environ)
        return LocalModel(spec, self._fetches, server, self._near, self._clock)

    def _split(self, name: str) -> tuple[Provider, str]:
        provider, _, model = name.partition(":")
        return self._provider(provider), model

    def _provider(self, name: str) -> Provider:
        provider = self._providers.get(name)
        if provider is None or not provider.base_url:
            known = ", ".join([*self._providers, "pocket", "coder"])
            raise ModelUnknown(
                f"There is no model provider {name[:80]!r}.",
                hint=f"A model is named provider:name. Known providers: {known}.",
            )
        return provider

    async def _first_model(self, provider: Provider) -> str:
        """For a server that is named without a model: the one that the provider suggests or serves."""
        if provider.model:
            return provider.model
        entries = await self._lists.entries(provider, _LIST_TIMEOUT_S)
        if not entries:
            raise ModelUnknown(
                f"{provider.name} lists no models, and the name says none.",
                hint=f"Write {provider.name}:name, or start the server and load a model.",
            )
        return _first_of(entries)

    def _find_key(self, provider: Provider) -> KeyFound | None:
        return self._keys.find(provider.name, provider.key_variables)

    def _key(self, provider: Provider) -> Secret | None:
        found = self._find_key(provider)
        if found is None and provider.needs_key:
            variable = provider.key_variables[0] if provider.key_variables else ""
            raise ModelKeyMissing(
                f"There is no key for {provider.name}.",
                hint=f"Set {variable} in the environment, or store a key in the settings.",
                provider=provider.name,
            )
        return found.secret if found else None

    async def _target(
        self, name: str, provider: Provider, model: str, key: Secret | None, settings: ModelSettings
    ) -> Target:
        abilities = await self._abilities(name, provider, model, settings)
        return Target(
            name,
            model,
            provider.base_url,
            abilities=abilities,
            key=key,
            headers=provider.headers,
            extra={**provider.extra, **settings.extra},
            idle_timeout_s=provider.idle_timeout_s,
            continues_by=_continues_by(provider, abilities),
            tokens_field=provider.tokens_field,
            thinks=bool(settings.reasoning),
            keeps_alive=provider.base_url.startswith("https://"),
        )

    def _built(self, target: Target, provider: Provider, settings: ModelSettings) -> Model:
        async def price(model: str, usage: Usage, written_tokens: int) -> float | None:
            if provider.is_local:
                return None
            return await self._prices.cost(provider.base_url, model, usage, written_tokens)

        client = self._client_of(provider)
        if provider.wire == "anthropic":
            return AnthropicModel(target, client, self._clock, price, self._history_cache)
        refusals = self._refusals.setdefault(target.name, Refusals(self._clock))
        model = OpenAIModel(target, client, self._clock, price, refusals, self._history_cache)
        return TextCalls(model) if settings.calls_in_text else model

    def _client_of(self, provider: Provider) -> httpx2.AsyncClient:
        if provider.base_url.startswith("http://") and _is_near(provider):
            return self._near
        if self._world is None:
            self._world = make_client()
        return self._world

    async def _abilities(
        self, name: str, provider: Provider, model: str, settings: ModelSettings
    ) -> Abilities:
        known = await self._known(name, provider, model)
        given = {
            field: value
            for field in known.__struct_fields__
            if (value := getattr(settings, field, None)) is not None
        }
        if provider.wire == "anthropic" and settings.reasoning:
            given["continues"] = False  # thinking and going on from a prefix exclude each other
        return msgspec.structs.replace(known, **given)

    async def _known(self, name: str, provider: Provider, model: str) -> Abilities:
        """What the server, the price list or the name say, asked at most once a minute."""
        cached = self._facts.get(name)
        if cached is not None and cached.abilities is not None and cached.until > self._clock.monotonic():
            return cached.abilities
        abilities: Abilities | None = None
        if provider.name in DISCOVERED:
            abilities = await self._discovery.abilities(provider.name, model)
        elif provider.says_abilities:
            entries = await self._lists.entries(provider, _QUICK_TIMEOUT_S)
            abilities = next((e.abilities(provider) for e in entries if e.id == model), None)
        if abilities is None:
            abilities = await self._guessed(provider, model)
        self._facts[name] = _Found(abilities, self._clock.monotonic() + _FACTS_AGE_MAX_S)
        return abilities

    async def _guessed(self, provider: Provider, model: str) -> Abilities:
        facts = PriceFacts() if provider.is_local else await self._prices.facts(provider.base_url, model)
        continues = bool(provider.continues_by)
        if provider.wire == "anthropic":
            continues = generation_of(model).takes_prefix
        return Abilities(images=provider.images, continues=continues, context_tokens=facts.context_tokens)

    # --- listing -----------------------------------------------------------------------------------

    async def _list_provider(self, provider: Provider) -> tuple[ModelState, ...]:
        if not provider.base_url:
            return ()
        found = self._find_key(provider)
        source = found.source if found else None
        if found is None and provider.needs_key:
            note = f"Set {provider.key_variables[0]} or store a key." if provider.key_variables else ""
            name = f"{provider.name}:{provider.model}" if provider.model else f"{provider.name}:"
            return (ModelState(name, provider.name, "needs_key", note=note),)
        entries = await self._lists.entries(provider, _LIST_TIMEOUT_S)
        if not entries and provider.is_local and not provider.is_placed:
            return ()
        if not entries:
            name = f"{provider.name}:{provider.model}"
            return (ModelState(name, provider.name, "ready", key_source=source, note="It lists no models."),)
        names = [entry.id for entry in entries]
        facts = {} if provider.is_local else await self._prices.facts_of(provider.base_url, names)
        first = suggest_model([entry.id for entry in entries if entry.can_chat], provider.model)
        return tuple(
            ModelState(
                f"{provider.name}:{entry.id}",
                provider.name,
                "ready",
                entry.abilities(provider) if provider.says_abilities else None,
                facts.get(entry.id, PriceFacts()),
                key_source=source,
                can_chat=entry.can_chat,
                is_suggested=entry.id == first,
            )
            for entry in entries
        )

    def _list_found(self, server: FoundServer) -> tuple[ModelState, ...]:
        first = suggest_model([model.name for model in server.models if model.can_chat])
        return tuple(
            ModelState(
                f"{server.provider}:{model.name}",
                server.provider,
                "ready",
                model.abilities,
                can_chat=model.can_chat,
                is_suggested=model.name == first,
            )
            for model in server.models
        )

    def _list_local(self, spec: LocalSpec) -> ModelState:
        state, note = "ready", spec.weights.title
        try:
            check_runtime(spec.name)
        except ModelTrouble as error:
            state, note = "no_runtime", error.hint
        else:
            if self._fetches.is_running(spec.weights):
                state = "fetching"
            elif not self._fetches.has(spec.weights):
                state = "not_fetched"
        provider = spec.name.partition(":")[0]
        return ModelState(spec.name, provider, state, spec.abilities, size=spec.weights.size, note=note)

    def _ms_since(self, started: float) -> int:
        return round((self._clock.monotonic() - started) * 1000)


_LOCAL: Mapping[str, LocalSpec] = {spec.name: spec for spec in (POCKET_SPEC, CODER_SPEC)}
_TAKEN = frozenset({"pocket", "coder", "local", "everturn"})
_TRIAL = ModelRequest(
    "",
    (Message("msg_0", "trn_0", Role.USER, (Text("Say hello in one short sentence."),), 0),),
    output_tokens_max=_TEST_TOKENS,
)


def _refused(provider: Provider, status: int) -> Trial:
    if status in (401, 403):
        problem, code = "The server rejected this key.", "model_refused"
        return Trial(False, problem=problem, hint="It may need another one.", code=code)
    problem = f"{provider.base_url}/models returned an error ({status})."
    return Trial(False, problem=problem, hint="Its address often ends in /v1.", code="model_trouble")


def _first_of(entries: Sequence[ListedModel]) -> str:
    return next((entry.id for entry in entries if entry.can_chat), entries[0].id)


def _canonical(name: str) -> str:
    """``pocket`` and ``coder`` in any of the ways people write them; other names as they are."""
    name = name.strip()
    short = name.removeprefix("local:").partition(":")[0]
    for spec in _LOCAL.values():
        if short == spec.name.partition(":")[0]:
            return spec.name
    return name


def _continues_by(provider: Provider, abilities: Abilities) -> str:
    return (provider.continues_by or "last") if abilities.continues else ""


def _is_near(provider: Provider) -> bool:
    host = provider.base_url.split("//", 1)[-1].split("/", 1)[0].rsplit(":", 1)[0]
    return host in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0")  # noqa: S104 - compared, not bound
