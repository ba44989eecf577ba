"""The product of `examples/production` with telemetry and a page of what its calls waited, for `test_load.py`.

The tests copy this module beside the examples' ``app.py`` and serve it instead.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import app as product
from fastapi import Request
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from agent_memory.hookspecs import Operation, Outcome, hookimpl
from agent_memory.plugins.configuration import plugins_from
from agent_memory.plugins.opentelemetry import OpenTelemetryPlugin

_LOCK = threading.Lock()
TOTALS = {"measured": 0.0, "reported": 0.0, "spans": 0.0}
_begun: dict[str, float] = {}


def add(name: str, number: float) -> None:
    with _LOCK:
        TOTALS[name] += number


class CountedSpans(SpanExporter):
    """Counts spans, as a collector would receive them."""

    def export(self, spans: Any) -> SpanExportResult:
        add("spans", sum(isinstance(span, ReadableSpan) for span in spans))
        return SpanExportResult.SUCCESS


class Waits:
    """The observer that is called first: what callers waited until now, and what the outcomes say of it."""

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:
        if operation.kind == "append":
            add("measured", time.perf_counter() - _begun.pop(str(operation.tool_call_id)))
            add("reported", outcome.duration)


class Timed:
    """The memory of a request; its one call is timed."""

    def __init__(self, memory: Any, key: str = "") -> None:
        self._memory, self._key = memory, key

    def once(self, key: str) -> Timed:
        return Timed(self._memory.acting_as("a client", key).once(key), key)

    async def append(self, *args: Any, **kwargs: Any) -> Any:
        _begun[self._key] = time.perf_counter()
        return await self._memory.append(*args, **kwargs)


def timed(request: Request) -> Timed:
    """The memory of the product, timed."""
    return Timed(product.memory_of(request, request.headers["X-Forwarded-User"]))


provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(CountedSpans()))
trace.set_tracer_provider(provider)
metrics.set_meter_provider(MeterProvider([InMemoryMetricReader()]))
product.plugins_from = lambda: [*plugins_from(), OpenTelemetryPlugin(), Waits()]
app = product.app
app.dependency_overrides[product.memory_of] = timed


@app.get("/waits")
async def waits() -> dict[str, float]:
    return {**TOTALS, "process": os.getpid()}
