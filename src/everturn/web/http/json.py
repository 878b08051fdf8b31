"""JSON whose shape no type of ours describes."""

from __future__ import annotations

from typing import Any

# ``Any``: schemas, problem documents and gauges are nested to a depth that only their reader knows.
JsonObject = dict[str, Any]
