"""Time zones by name."""

from __future__ import annotations

from functools import lru_cache
from zoneinfo import ZoneInfo

from everturn.domain.errors import Invalid


def find_zone(name: str) -> ZoneInfo:
    """Raises Invalid for a time zone that does not exist."""
    try:
        return _zone(name)
    except (OSError, ValueError, KeyError):  # ZoneInfoNotFoundError is a KeyError; folders and odd names
        hint = "Use a name such as Europe/Vienna, America/New_York or UTC."
        raise Invalid(f"There is no time zone {name[:60]!r}.", hint=hint) from None


# A zone is read from disk once. Names come from users, so the cache is bounded.
@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    if not name or name != name.strip():
        raise ValueError(name)
    return ZoneInfo(name)
