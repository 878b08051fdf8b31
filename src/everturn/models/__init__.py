"""Language models: finds them by name and talks to them. Adapters translate, classify errors, raise.

Imports ``domain`` only. The engine calls ``ModelRegistry.get``; retries, fallbacks and what becomes of
half an answer are the engine's. Everything else here is for the command line and the web:

- ``parse_settings(table)``: the ``[models]`` table of config.toml, checked.
- ``Keys(folder, environ)``: ``find``, ``stored``, ``put``, ``delete`` keys (environment first, then
  ``secrets.toml``, 0600), ``redact`` any text that will be shown.
- ``async with ModelRegistry(settings, keys, clock, environ, weights_folder=…, default=…) as models``:
  ``default`` and ``await get(name)`` keep ``domain.modelling.Models``;
  ``await list()`` gives each model with its state (ready | needs_key | not_fetched | fetching |
  no_runtime), abilities, prices and size;
  ``await test(name)`` says a few words to a model, ``await test_key(provider, key=None)`` asks the
  provider about a key, ``key_state(provider)`` says where the key comes from: all give results, not
  exceptions, and never a key;
  ``pull(name)`` is an async generator of ``ProgressChunk`` for ``pocket`` and ``coder``;
  ``await discover()`` looks for Ollama, LM Studio and llama.cpp on this machine.
- ``weights_folder(home, environ)``: ``EVERTURN_MODELS``, else ``models`` in the data folder.

Read ``history`` (transcript to steps), ``openai_request`` with ``openai_wire`` and ``anthropic_wire`` (steps
to bytes and back), ``failures`` (what went wrong, in the engine's words), ``local`` (pocket and coder).
"""

from everturn.models.catalog import ModelState
from everturn.models.discovery import FoundModel, FoundServer
from everturn.models.keys import KeyFound, Keys, Secret, redact
from everturn.models.local import CODER_SPEC, POCKET_SPEC
from everturn.models.prices import PriceFacts, Prices
from everturn.models.registry import ModelRegistry
from everturn.models.settings import ModelsSettings, parse_settings
from everturn.models.trials import Trial
from everturn.models.weights import weights_folder

__all__ = [
    "CODER_SPEC",
    "POCKET_SPEC",
    "FoundModel",
    "FoundServer",
    "KeyFound",
    "Keys",
    "ModelRegistry",
    "ModelState",
    "ModelsSettings",
    "PriceFacts",
    "Prices",
    "Secret",
    "Trial",
    "parse_settings",
    "redact",
    "weights_folder",
]
