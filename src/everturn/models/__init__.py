"""Language models: finds them by name and calls them. Protocols translate, classify errors and raise.

Imports ``domain`` only. The engine calls ``ModelRegistry.get``; retries, fallbacks and the handling of
partial answers belong to the engine. The command line and the web use the rest:

- ``parse_settings(table)``: the ``[models]`` table of config.toml, checked.
- ``Keys(secrets, environ)``: API keys (environment first, then stored secrets).
- ``ModelRegistry``: open it as an async context manager. ``list`` gives every model with its state, ``test``,
  ``test_key`` and ``test_server`` return results and never a key, ``pull`` downloads a local model,
  ``discover`` looks for servers on this machine.
- ``make_shelf(home, environ)``: where weights are: ``EVERTURN_MODELS``, else ``models`` in the data folder.

Read ``registry`` first, then ``history`` (transcript to steps), ``openai_request`` with ``openai_wire`` and
``anthropic_wire`` (steps to bytes and back), ``failures`` (errors), ``local`` (pocket and coder).
``small_models`` helps models that cannot use tools on their own, and can be skipped.
"""

from typing import TYPE_CHECKING

from everturn.domain.lazy import lazy_names

if TYPE_CHECKING:
    from everturn.models.catalog import ModelState
    from everturn.models.discovery import FoundModel, FoundServer
    from everturn.models.keys import KeyFound, Keys, redact
    from everturn.models.local import CODER_SPEC, POCKET_SPEC
    from everturn.models.prices import PriceFacts, Prices
    from everturn.models.registry import ModelRegistry
    from everturn.models.settings import ModelsSettings, parse_settings
    from everturn.models.trials import ModelTestResult
    from everturn.models.weights import make_shelf

__all__ = [
    "CODER_SPEC",
    "POCKET_SPEC",
    "FoundModel",
    "FoundServer",
    "KeyFound",
    "Keys",
    "ModelRegistry",
    "ModelState",
    "ModelTestResult",
    "ModelsSettings",
    "PriceFacts",
    "Prices",
    "make_shelf",
    "parse_settings",
    "redact",
]

__getattr__ = lazy_names(__name__)
