"""Sends spans to a collector, with OpenTelemetry's own packages, which are imported when traces are on."""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Sequence
from typing import Any

from everturn import __version__
from everturn.domain.errors import Invalid
from everturn.domain.extras import install_command
from everturn.tracing.ids import trace_id
from everturn.tracing.settings import TraceSettings
from everturn.tracing.spans import Span

# ``Any``: the packages are loaded when traces are on, and their types with them.
_Module = Any


class OtlpExporter:
    """Makes one blocking request per batch. Importing the packages takes a moment, so make it in a thread."""

    def __init__(self, settings: TraceSettings) -> None:
        """Raises Invalid if the extra is not installed."""
        try:
            self._api: _Module = importlib.import_module("opentelemetry.trace")
            self._sdk: _Module = importlib.import_module("opentelemetry.sdk.trace")
            resources: _Module = importlib.import_module("opentelemetry.sdk.resources")
            scope: _Module = importlib.import_module("opentelemetry.sdk.util.instrumentation")
            wire: _Module = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
            result: _Module = importlib.import_module("opentelemetry.sdk.trace.export")
        except ImportError as error:
            raise Invalid(
                f"[traces] has an endpoint, and the package {error.name} is not installed.",
                hint=f"Install the extra 'traces': {install_command('traces')} (or remove the endpoint).",
            ) from error
        names = {
            "service.name": settings.service_name,
            "service.version": __version__,
            "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
        }
        self._resource = resources.Resource(names)
        self._scope = scope.InstrumentationScope("everturn", __version__)
        self._success = result.SpanExportResult.SUCCESS
        self._exporter = wire.OTLPSpanExporter(endpoint=settings.endpoint, timeout=settings.timeout_s)

    def export(self, spans: Sequence[Span]) -> bool:
        """True if the collector has taken them."""
        return bool(self._exporter.export([self._readable(span) for span in spans]) == self._success)

    def close(self) -> None:
        self._exporter.shutdown()

    def _readable(self, span: Span) -> object:
        api, status = self._api, self._api.Status
        parent = span.parent_id
        codes = self._api.StatusCode
        return self._sdk.ReadableSpan(
            name=span.name,
            context=self._context(span.turn_id, span.id),
            parent=None if parent is None else self._context(span.turn_id, parent),
            resource=self._resource,
            attributes=span.attributes,
            events=self._events(span),
            kind=api.SpanKind.CLIENT if span.is_outgoing else api.SpanKind.INTERNAL,
            status=status(codes.ERROR, span.error) if span.error else status(codes.UNSET),
            start_time=_nanoseconds(span.start_ms),
            end_time=_nanoseconds(span.end_ms),
            instrumentation_scope=self._scope,
        )

    def _context(self, turn_id: str, span_id: int) -> object:
        sampled = self._api.TraceFlags(self._api.TraceFlags.SAMPLED)
        return self._api.SpanContext(trace_id(turn_id), span_id, is_remote=False, trace_flags=sampled)

    def _events(self, span: Span) -> list[object]:
        if span.first_token_ms is None:
            return []
        return [self._sdk.Event("first token", timestamp=_nanoseconds(span.first_token_ms))]


def _nanoseconds(milliseconds: float) -> int:
    return round(milliseconds * 1000) * 1000
