"""The types of an ASGI application (https://asgi.readthedocs.io)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

# ``Any``: the keys of a scope and of a message depend on its ``type``, and servers add their own.
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
