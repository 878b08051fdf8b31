"""Names for decoded JSON whose shape no type of ours describes."""

from __future__ import annotations

from typing import Any

# ``Any``: providers, tool schemas, problem documents and embedding programs decide the shape, not Everturn.
# The reader checks it where it takes a value out.
Json = Any
JsonObject = dict[str, Json]
