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
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.plugins.configuration import plugins_from
from agent_memory.plugins.opentelemetry import OpenTelemetryPlugin

_LOCK = threading.Lock()
SECONDS = {"measured": 0.0, "reported": 0.0, "recording": 0.0, "spans": 0.0}


def add(name: str, seconds: float) -> None:
    with _LOCK:
        SECONDS[name] += seconds


class CountedSpans(SpanExporter):
    """Counts spans, as a collector would receive them."""

    def export(self, spans: Any) -> SpanExportResult:
        add("spans", sum(isinstance(span, ReadableSpan) for span in spans))
        return SpanExportResult.SUCCESS


class Waits:
    """An observer that adds up what callers waited, as the outcomes say."""

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:
        if operation.kind == "append":
            add("reported", outcome.duration)


class TimedAudit(AuditPlugin):
    """Adds up the time in which callers wait for their records, which follow the outcome."""

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:
        began = time.perf_counter()
        try:
            super().agent_memory_after_operation(operation, outcome)
        finally:
            if operation.kind == "append":
                add("recording", time.perf_counter() - began)


def all_plugins() -> list[object]:
    found = plugins_from()
    for plugin in found:
        if type(plugin) is AuditPlugin:
            plugin.__class__ = TimedAudit
    return [*found, OpenTelemetryPlugin(), Waits()]


class Timed:
    """The memory of a request; its one call of the product is timed."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory

    def once(self, key: str) -> Any:
        return Timed(self._memory.once(key))

    async def append(self, *args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return await self._memory.append(*args, **kwargs)
        finally:
            add("measured", time.perf_counter() - began)

    async def read(self, path: str) -> str:
        text: str = await self._memory.read(path)
        return text


def timed(request: Request) -> Timed:
    """The memory of the product, timed."""
    return Timed(product.memory_of(request, request.headers["X-Forwarded-User"]))


provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(CountedSpans()))
trace.set_tracer_provider(provider)
metrics.set_meter_provider(MeterProvider([InMemoryMetricReader()]))
product.plugins_from = all_plugins
app = product.app
app.dependency_overrides[product.memory_of] = timed


@app.get("/waits")
async def waits() -> dict[str, float]:
    return {**SECONDS, "process": os.getpid()}
