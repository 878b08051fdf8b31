"""What is logged and counted about each request."""

from __future__ import annotations

import logging

from everturn.domain.clock import Clock
from everturn.domain.errors import EverturnError
from everturn.domain.ids import Ids
from everturn.web.http.problems import Internal
from everturn.web.metrics import Metrics

_log = logging.getLogger("everturn.web")


class RequestLog:
    def __init__(self, metrics: Metrics, clock: Clock, ids: Ids) -> None:
        self._metrics = metrics
        self._clock = clock
        self._ids = ids

    def now(self) -> float:
        """Seconds, to be given to ``finished``."""
        return self._clock.monotonic()

    def note_failure(self, error: Exception) -> EverturnError:
        """Log an unexpected error in full; return what the client is told of it."""
        request_id = self._ids.make("req")
        _log.error("request %s failed", request_id, exc_info=error)
        return Internal(request_id)

    def note_end(
        self, method: str, route: str, path: str, status: int, started: float, is_stream: bool
    ) -> None:
        seconds = self._clock.monotonic() - started
        self._metrics.count(method, route, status, None if is_stream else seconds)
        level = logging.INFO if method not in ("GET", "HEAD") or status >= 400 else logging.DEBUG
        if _log.isEnabledFor(level):
            _log.log(level, "%s %s %d", method, path, status, extra={"ms": round(seconds * 1000, 1)})
