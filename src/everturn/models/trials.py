"""Tests of a model, a key or a server, for the settings page and the command line.

A failure is a result here, not an exception, and no result contains a key.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import httpx2
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.errors import Invalid
from everturn.domain.messages import Message, Role, Text
from everturn.domain.model import Finish, Model, ModelRequest, ProgressChunk, TextChunk
from everturn.domain.model_errors import ModelTrouble
from everturn.domain.secrets import Secret
from everturn.domain.turns import FinishReason, Usage
from everturn.models.clients import HttpClients
from everturn.models.directory import ProviderDirectory
from everturn.models.failures import first_sentence
from everturn.models.keys import redact
from everturn.models.model_lists import ModelLists, auth_headers
from everturn.models.providers import Provider, check_address, own_server

_LIST_TIMEOUT_S = 5.0
_TIMEOUT_S = 300.0  # a large local model on a busy machine
_RESERVED = frozenset({"pocket", "coder", "local", "everturn"})
_REQUEST = ModelRequest(
    "",
    (Message("msg_0", "trn_0", Role.USER, (Text("Say hello in one short sentence."),), 0),),
    output_tokens_max=16,
)


class ModelTestResult(msgspec.Struct, frozen=True):
    """The result of a test; ``problem`` and ``hint`` are empty if it succeeded."""

    is_ok: bool
    text: str = ""
    first_token_ms: int | None = None
    total_ms: int | None = None
    usage: Usage = Usage()
    problem: str = ""
    hint: str = ""
    code: str = ""


class Trials:
    def __init__(
        self, directory: ProviderDirectory, clients: HttpClients, lists: ModelLists, clock: Clock
    ) -> None:
        self._directory = directory
        self._clients = clients
        self._lists = lists
        self._clock = clock

    async def try_model(self, get: Callable[[], Awaitable[Model]]) -> ModelTestResult:
        """Send a short message to a model."""
        started = self._clock.monotonic()
        text, first, finish = "", None, Finish(FinishReason.STOP)
        try:
            model = await get()
            with anyio.fail_after(_TIMEOUT_S):
                async with model.stream(_REQUEST) as chunks:
                    async for chunk in chunks:
                        if isinstance(chunk, TextChunk):
                            text += chunk.text
                        elif isinstance(chunk, Finish):
                            finish = chunk
                        if first is None and not isinstance(chunk, ProgressChunk):
                            first = self._ms_since(started)
        except ModelTrouble as error:
            return ModelTestResult(False, text, problem=error.message, hint=error.hint, code=error.code)
        except TimeoutError:
            problem = f"No whole answer in {_TIMEOUT_S:g} seconds."
            return ModelTestResult(False, text, first, problem=problem, code="model_timeout")
        return ModelTestResult(True, text.strip(), first, self._ms_since(started), finish.usage)

    async def try_key(self, provider: Provider, key: str | None) -> ModelTestResult:
        """Ask the provider whether it accepts a key: the given one, else the stored one."""
        secret = Secret(key.strip()) if key else self._stored_key(provider)
        if secret is None:
            return ModelTestResult(
                False, problem=f"There is no key for {provider.name}.", code="model_key_missing"
            )
        started = self._clock.monotonic()
        try:
            response = await self._clients.of(provider).get(
                provider.base_url + provider.key_path,
                headers=auth_headers(provider, secret),
                timeout=_LIST_TIMEOUT_S,
            )
        except (httpx2.HTTPError, httpx2.InvalidURL):
            problem = f"Could not reach {provider.title}."
            return ModelTestResult(False, problem=problem, hint="Check the connection.", code="model_dropped")
        if response.status_code in (401, 403):
            reason = first_sentence(response.content, lambda text: redact(text, (secret,)))
            why = f": {reason}" if reason else "."
            return ModelTestResult(
                False, problem=f"{provider.title} rejected this key{why}", code="model_refused"
            )
        if response.status_code >= 400:
            problem = f"{provider.title} returned an error ({response.status_code}). The key was not checked."
            return ModelTestResult(False, problem=problem, hint="Try again later.", code="model_trouble")
        return ModelTestResult(True, total_ms=self._ms_since(started))

    async def try_server(self, name: str, base_url: str, key: str | None) -> tuple[ModelTestResult, str]:
        """Ask a server of the user's own for its models; return the result and the address that answered.

        People leave out /v1: if the given address has no models, that is tried too. The stored key is sent
        only to the address it was stored for. Raises Invalid if the address or the name cannot be used.
        """
        address = check_address(base_url)
        if self._directory.is_fixed(name) or name in _RESERVED:
            raise Invalid(f"{name!r} is the name of something else here.", hint="Choose another name.")
        secret = Secret(key) if key else None
        if key is None and self._directory.server_address(name) == address:
            secret = self._stored_key(own_server(name, address))
        trial = await self._list_models(own_server(name, address), secret)
        if trial.code == "model_trouble" and not address.endswith("/v1"):
            longer = f"{address}/v1"
            second = await self._list_models(own_server(name, longer), secret)
            if second.is_ok:
                return second, longer
        return trial, address

    async def _list_models(self, provider: Provider, key: Secret | None) -> ModelTestResult:
        started = self._clock.monotonic()
        try:
            entries = await self._lists.ask(provider, key, _LIST_TIMEOUT_S)
        except httpx2.HTTPStatusError as error:
            return _refused_trial(provider, error.response.status_code)
        except (httpx2.HTTPError, httpx2.InvalidURL):
            problem = f"Nothing answers at {provider.base_url}."
            return ModelTestResult(
                False, problem=problem, hint="Is the server running?", code="model_dropped"
            )
        except msgspec.DecodeError:
            problem = f"What answers at {provider.base_url} is not an OpenAI-compatible server."
            return ModelTestResult(
                False, problem=problem, hint="Its address often ends in /v1.", code="model_trouble"
            )
        if not entries:
            return ModelTestResult(
                False, problem="The server lists no models.", hint="Load one.", code="model_unknown"
            )
        return ModelTestResult(
            True, ", ".join(one.id for one in entries[:5]), total_ms=self._ms_since(started)
        )

    def _stored_key(self, provider: Provider) -> Secret | None:
        found = self._directory.find_key(provider)
        return found.secret if found else None

    def _ms_since(self, started: float) -> int:
        return round((self._clock.monotonic() - started) * 1000)


def _refused_trial(provider: Provider, status: int) -> ModelTestResult:
    if status in (401, 403):
        problem, code = "The server rejected this key.", "model_refused"
        return ModelTestResult(False, problem=problem, hint="It may need another one.", code=code)
    problem = f"{provider.base_url}/models returned an error ({status})."
    return ModelTestResult(
        False, problem=problem, hint="Its address often ends in /v1.", code="model_trouble"
    )
