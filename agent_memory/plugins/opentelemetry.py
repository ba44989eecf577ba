"""`OpenTelemetryPlugin`: a span and metrics for each operation, by OpenTelemetry's conventions for generative AI.

Content never leaves, neither as an attribute nor in the text of an error. Metrics have no agent and no path.
"""

from __future__ import annotations

import hmac
import threading
import time
from contextlib import AbstractContextManager
from importlib.metadata import version
from typing import Final, Literal, TypeAlias, get_args

from agent_memory.backend.helpers import Uncopied
from agent_memory.core.statistics import bytes_written, conflicts_of
from agent_memory.errors import DISTRIBUTION, BackendNotAvailableError, install_hint
from agent_memory.hookspecs import Operation, OperationKind, Outcome, Plugin, hookimpl
from agent_memory.plugins._host_files import read_host_file

try:
    from opentelemetry import context, metrics, trace
    from opentelemetry.trace import Span, SpanKind, StatusCode
except ImportError as error:
    raise BackendNotAvailableError(f"opentelemetry-api is missing: {install_hint('otel')}") from error

Paths: TypeAlias = Literal["names", "digests", "none"]
"""How spans name agents and files."""
PROVIDER: Final = "agent_memory"
"""The value of ``gen_ai.provider.name``, and the name of the tracer and of the meter."""
SPAN_NAMES: Final[dict[OperationKind, str]] = {
    "create": "create_memory",
    "copy": "create_memory",
    "write": "upsert_memory",
    "append": "update_memory",
    "edit": "update_memory",
    "rename": "update_memory",
    "restore": "update_memory",
    "delete": "delete_memory",
    "delete_tree": "delete_memory",
    "forget": "delete_memory",
    "read": "read_memory",
    "read_version": "read_memory",
    "stat": "stat_memory",
    "exists": "stat_memory",
    "list": "list_memory",
    "agent_ids": "list_memory",
    "versions": "list_memory",
    "redact": "redact_memory",
    "prune": "prune_memory",
    "set_versions": "configure_memory",
    "set_limits": "configure_memory",
}
"""The name of the span of each kind, which is ``gen_ai.operation.name``."""
MOST_WAITING: Final = 10_000
"""The maximum number of spans that wait for their outcomes; another one ends the oldest, without its outcome."""
_LEAST_SALT: Final = 16
_DIGITS: Final = 32
_SECONDS: Final = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_BYTES: Final = tuple(4**power for power in range(3, 14))
_Attributes: TypeAlias = dict[str, str | int]


class OpenTelemetryPlugin(Plugin, Uncopied):
    """Makes a span and metrics for each operation.

    The span is current while the storage works, so the spans of its client are below it. It ends there too, and gets
    the outcome when the operation is reported. An operation that is refused before has a span of its own.

    Args:
        tracer_provider: makes the spans; by default the global one.
        meter_provider: makes the metrics; by default the global one.
        paths: whether spans have the names of agents and files, their digests, or neither; metrics have neither.
        salt: the key of the digests, at least 16 bytes: all processes whose digests are compared need the same one.

    Raises:
        ValueError: ``paths`` has another value; digests without a salt; a salt without digests, or a short one.
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        *,
        paths: Paths = "names",
        salt: str | bytes | None = None,
    ) -> None:
        self._salt = _checked_salt(paths, salt)
        self._paths = paths
        release = version(DISTRIBUTION)
        self._tracer = trace.get_tracer(PROVIDER, release, tracer_provider)
        self._metrics = _Metrics(metrics.get_meter(PROVIDER, release, meter_provider))
        self._waiting: dict[str, tuple[Span, int]] = {}
        self._lock = threading.RLock()  # reentrant: a signal handler may perform an operation

    @hookimpl
    def agent_memory_operation_context(self, operation: Operation) -> AbstractContextManager[None]:
        """Begin the span, and make it current."""
        return _CurrentSpan(self, operation)

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:
        """End the span with the outcome, and record the metrics."""
        with self._lock:
            waiting = self._waiting.pop(operation.id, None)
        if waiting is None and not outcome.storage_duration:  # it was refused, or failed, before it reached the storage
            waiting = self.begin(operation, int(operation.time * 1e9)), time.time_ns()
        if waiting is not None:
            span, ended = waiting
            _tell(span, outcome)
            span.end(ended)
        self._metrics.record(operation, outcome)

    @hookimpl
    def agent_memory_key_rejected(self, reason: str) -> None:
        """Count a refused name; its text is not used."""
        self._metrics.refusals.add(1, {"agent_memory.refusal.rule": reason})

    def begin(self, operation: Operation, started: int | None = None) -> Span:
        """Begin the span of an operation, by default now, otherwise at a time in nanoseconds."""
        kind = SpanKind.CLIENT if operation.remote else SpanKind.INTERNAL
        return self._tracer.start_span(
            SPAN_NAMES[operation.kind], kind=kind, attributes=self._attributes(operation), start_time=started
        )

    def await_outcome(self, operation: Operation, span: Span) -> None:
        """Keep a span whose context was left until the outcome is reported; an interrupt may skip the report."""
        with self._lock:
            self._waiting[operation.id] = span, time.time_ns()
            oldest = self._waiting.pop(next(iter(self._waiting))) if len(self._waiting) > MOST_WAITING else None
        if oldest is not None:
            _end(oldest)

    def close(self) -> None:
        """End the spans whose report was skipped; the providers stay open."""
        with self._lock:
            left, self._waiting = self._waiting, {}
        for each in left.values():
            _end(each)

    def digest(self, agent: str | None, path: str = "") -> str:
        """Return the digest of an agent, or of a file of an agent: 32 hexadecimal digits of an HMAC-SHA-256.

        Raises:
            ValueError: the plugin has no salt.
        """
        if self._salt is None:
            raise ValueError("without a salt there are no digests: OpenTelemetryPlugin(paths='digests', salt=...)")
        text = f"{agent or ''}/{path}"  # an agent's id has no slash
        return hmac.new(self._salt, text.encode(), "sha256").hexdigest()[:_DIGITS]

    def _attributes(self, operation: Operation) -> _Attributes:
        found: _Attributes = _named(operation)
        found["gen_ai.provider.name"] = PROVIDER
        found["agent_memory.operation.id"] = operation.id
        if self._paths == "none":
            return found
        if operation.agent is not None:
            is_digest = self._paths == "digests"
            found["gen_ai.memory.store.id"] = self.digest(operation.agent) if is_digest else operation.agent
        for name, path in (
            ("gen_ai.memory.record.id", operation.path),
            ("agent_memory.record.target", operation.target),
        ):
            if path:
                found[name] = self.digest(operation.agent, path) if self._paths == "digests" else path
        return found


class _CurrentSpan(AbstractContextManager[None]):
    """The span of an operation, current between the beginning and the end of this context."""

    __slots__ = ("_operation", "_plugin", "_span", "_token")

    def __init__(self, plugin: OpenTelemetryPlugin, operation: Operation) -> None:
        self._plugin = plugin
        self._operation = operation

    def __enter__(self) -> None:
        self._span = self._plugin.begin(self._operation)
        self._token = context.attach(trace.set_span_in_context(self._span))

    def __exit__(self, *_: object) -> None:
        context.detach(self._token)
        self._plugin.await_outcome(self._operation, self._span)


class _Metrics:
    """The instruments; their attributes have few values, and never an agent or a path."""

    def __init__(self, meter: metrics.Meter) -> None:
        def histogram(name: str, unit: str, description: str, bounds: tuple[float, ...]) -> metrics.Histogram:
            name = f"agent_memory.operation.{name}"
            return meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=bounds)

        self._duration = histogram("duration", "s", "The time that a caller waited.", _SECONDS)
        self._storage = histogram("storage.duration", "s", "The part of it for the storage.", _SECONDS)
        self._bytes = histogram("bytes", "By", "The bytes of content that were written.", _BYTES)
        name = "agent_memory.operation.conflicts"
        self._conflicts = meter.create_counter(name, "{conflict}", "The conflicts with other writers.")
        name = "agent_memory.operation.refusals"
        self.refusals = meter.create_counter(name, "{refusal}", "The refused operations and names.")

    def record(self, operation: Operation, outcome: Outcome) -> None:
        """Record one operation."""
        kind = _named(operation)
        result = {**kind, "agent_memory.operation.status": outcome.status, **_error(outcome)}
        self._duration.record(outcome.duration, result)
        if outcome.storage_duration:
            self._storage.record(outcome.storage_duration, result)
        if (written := bytes_written(operation.kind, operation.size, outcome)) is not None:
            self._bytes.record(written, kind)
        if conflicts := conflicts_of(outcome.attempts, outcome.error):
            self._conflicts.add(conflicts, kind)
        if outcome.status == "denied":
            self.refusals.add(1, kind)


def _named(operation: Operation) -> dict[str, str | int]:
    return {"gen_ai.operation.name": SPAN_NAMES[operation.kind], "agent_memory.operation.kind": operation.kind}


def _error(outcome: Outcome) -> dict[str, str | int]:
    return {} if outcome.error is None else {"error.type": outcome.error}


def _tell(span: Span, outcome: Outcome) -> None:
    """Set the attributes and the status that the outcome gives; a veto is no error."""
    facts = {
        "agent_memory.operation.status": outcome.status,
        "agent_memory.operation.attempts": outcome.attempts,
        "agent_memory.operation.replayed": outcome.replayed or None,
        "agent_memory.record.size": outcome.size,
        "gen_ai.memory.record.count": outcome.files,
        "error.type": outcome.error,
    }
    span.set_attributes({name: value for name, value in facts.items() if value is not None})
    if outcome.status in ("error", "unknown"):
        span.set_status(StatusCode.ERROR)


def _end(waiting: tuple[Span, int]) -> None:
    span, ended = waiting
    span.end(ended)


def _checked_salt(paths: object, salt: object) -> bytes | None:
    if paths not in get_args(Paths):
        raise ValueError(f"paths must be one of {', '.join(get_args(Paths))}, not {paths!r}")
    if (paths == "digests") is (salt is None):
        raise ValueError("paths='digests' needs a salt, and only this value uses one")
    if salt is None:
        return None
    data = salt.encode() if isinstance(salt, str) else salt
    if not isinstance(data, bytes) or len(data) < _LEAST_SALT:
        raise ValueError(f"a salt must be a text or bytes, at least {_LEAST_SALT} of them")
    return data


def from_configuration(*, paths: Paths = "names", salt_file: str | None = None) -> OpenTelemetryPlugin:
    """Make the plugin from a configuration, with the global providers; ``salt_file`` names a file with the salt.

    Raises:
        ValueError: the file cannot be read, or as `OpenTelemetryPlugin`.
    """
    try:
        salt = None if salt_file is None else read_host_file(salt_file)
    except OSError as error:
        raise ValueError(f"salt_file cannot be read: {error.strerror}") from None
    return OpenTelemetryPlugin(paths=paths, salt=salt)
