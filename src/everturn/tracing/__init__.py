"""OpenTelemetry traces: one for each turn, made from its journal and sent to a collector.

Owns the spans, their ids, and the task that sends them. Imports only domain/; app.py opens it. Start with
``spans.py``, which turns a journal into spans.
"""

from everturn.tracing.service import open_traces
from everturn.tracing.settings import TraceSettings

__all__ = ["TraceSettings", "open_traces"]
