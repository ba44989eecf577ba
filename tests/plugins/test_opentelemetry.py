"""OpenTelemetry: the names and attributes of the conventions, the storage's spans below ours, and never content."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, get_args

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from agent_memory import (
    ABSENT,
    SHA256,
    AgentMemory,
    AgentMemoryError,
    AgentMemoryService,
    AsyncAgentMemory,
    AsyncAgentMemoryService,
    ConflictError,
    Operation,
    OperationDenied,
    VersionLimits,
    hookimpl,
)
from agent_memory.backend import ANY, AnyBackend, BlockingBackend, ReadWhen, Snapshot
from agent_memory.hookspecs import OperationKind, Outcome
from agent_memory.key import Key
from agent_memory.plugins import opentelemetry as module
from agent_memory.plugins.configuration import plugins_from
from agent_memory.plugins.opentelemetry import SPAN_NAMES, OpenTelemetryPlugin
from agent_memory_memory import MemoryBackend
from tests.core.test_hooks import AsyncGate, AsyncTwin, cancelled, perform
from tests.support.every_kind import CANARY, Guard, every_kind, value
from tests.support.servers import ATOMIC, Root

Kind: TypeAlias = Callable[[BlockingBackend], AnyBackend]
SALT = "sixteen characters"
on_both = pytest.mark.parametrize("kind", [lambda store: store, AsyncTwin], ids=["blocking", "async"])
by_both = pytest.mark.parametrize("cls", [AgentMemory, AsyncAgentMemory])


class Telemetry:
    """Providers of the SDK that keep everything in memory, and a plugin that uses them."""

    def __init__(self, **options: Any) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers, self.meters = TracerProvider(), MeterProvider([self.reader])
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.plugin = OpenTelemetryPlugin(self.tracers, self.meters, **options)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def span(self) -> ReadableSpan:
        (span,) = self.spans
        return span

    def points(self) -> dict[str, list[Any]]:
        """The data points of each metric."""
        data = self.reader.get_metrics_data()
        if data is None:
            return {}
        found = [metric for of in data.resource_metrics for scope in of.scope_metrics for metric in scope.metrics]
        return {metric.name.removeprefix("agent_memory.operation."): [*metric.data.data_points] for metric in found}

    def everything(self) -> str:
        data = self.reader.get_metrics_data()
        return "".join(span.to_json() for span in self.spans) + (data.to_json() if data else "")


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    made = Telemetry()
    yield made
    made.tracers.shutdown()
    made.meters.shutdown()


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def ids_of(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def parent(span: ReadableSpan) -> tuple[int, int]:
    assert span.parent is not None
    return span.parent.trace_id, span.parent.span_id


@pytest.mark.parametrize("root", ATOMIC, indirect=True)
@pytest.mark.parametrize("cls", [AgentMemoryService, AsyncAgentMemoryService])
def test_each_kind_has_its_span_and_no_content_leaves(root: Root, cls: type[Any], telemetry: Telemetry) -> None:
    async def play() -> None:
        options = {"storage_options": root.options, "versions": VersionLimits()}
        service = cls(root.url, plugins=[telemetry.plugin, Guard()], **options)
        await every_kind(service)
        await value(service.aclose() if cls is AsyncAgentMemoryService else service.close())

    asyncio.run(play())
    shown: dict[str, set[str]] = {}
    for span in telemetry.spans:
        assert span.name == facts(span)["gen_ai.operation.name"]
        shown.setdefault(str(facts(span)["agent_memory.operation.kind"]), set()).add(span.name)
    assert shown == {kind: {name} for kind, name in SPAN_NAMES.items()}
    kind = SpanKind.CLIENT if root.url.startswith("s3:") else SpanKind.INTERNAL
    assert {span.kind for span in telemetry.spans} == {kind}
    assert CANARY not in telemetry.everything()
    assert CANARY.upper() not in telemetry.everything()
    assert all(span.end_time and span.start_time and span.end_time >= span.start_time for span in telemetry.spans)
    assert {facts(span).get("gen_ai.memory.store.id") for span in telemetry.spans} == {"bob", None}


def test_every_kind_of_operation_has_a_span_name() -> None:
    assert set(SPAN_NAMES) == set(get_args(OperationKind))
    standard = {"create_memory", "update_memory", "upsert_memory", "delete_memory"}
    custom = {"read_memory", "stat_memory", "list_memory", "redact_memory", "prune_memory", "configure_memory"}
    assert set(SPAN_NAMES.values()) == standard | custom


def test_a_span_has_the_attributes_of_the_conventions(telemetry: Telemetry) -> None:
    with AgentMemoryService(MemoryBackend(), plugins=[telemetry.plugin]) as service:
        service.agent("bob").write("a.md", "12345")
    span = telemetry.span()
    assert (span.name, span.kind, span.parent) == ("upsert_memory", SpanKind.INTERNAL, None)
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.name == "agent_memory"
    assert facts(span).pop("agent_memory.operation.id")
    assert {name: fact for name, fact in facts(span).items() if name != "agent_memory.operation.id"} == {
        "gen_ai.operation.name": "upsert_memory",
        "gen_ai.provider.name": "agent_memory",
        "gen_ai.memory.store.id": "bob",
        "gen_ai.memory.record.id": "a.md",
        "agent_memory.operation.kind": "write",
        "agent_memory.operation.status": "ok",
        "agent_memory.operation.attempts": 1,
        "agent_memory.record.size": 5,
    }
    assert span.status.status_code is StatusCode.UNSET


def test_a_span_of_several_files_has_their_number_and_a_rename_has_both_names(telemetry: Telemetry) -> None:
    memory = AgentMemory.open(MemoryBackend(), plugins=[telemetry.plugin])
    memory.write("a.md", "x")
    memory.rename("a.md", "b.md")
    memory.list()
    _, renamed, listed = map(facts, telemetry.spans)
    assert (renamed["gen_ai.memory.record.id"], renamed["agent_memory.record.target"]) == ("a.md", "b.md")
    assert (listed["gen_ai.operation.name"], listed["gen_ai.memory.record.count"]) == ("list_memory", 1)
    assert "gen_ai.memory.record.id" not in listed
    assert "gen_ai.memory.store.id" not in listed, "a tree without agents"


class Traced(MemoryBackend):
    """A store whose client makes a span for each read."""

    def __init__(self, tracers: TracerProvider) -> None:
        super().__init__()
        self._tracer = tracers.get_tracer("client")

    def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        with self._tracer.start_as_current_span("GetObject"):
            return super().read(key, start, end, when)


@on_both
@by_both
def test_the_storages_spans_are_below_ours_and_ours_is_below_the_callers(
    kind: Kind, cls: type[AgentMemory], telemetry: Telemetry
) -> None:
    store = Traced(telemetry.tracers)
    store.write(Key.tree().join("a.md"), b"x")
    memory = cls.open(kind(store), plugins=[telemetry.plugin])
    with telemetry.tracers.get_tracer("caller").start_as_current_span("caller"):
        assert perform(memory, "read", "a.md") == "x"
    spans = {span.name: span for span in telemetry.spans}
    requests, ours, caller = spans["GetObject"], spans["read_memory"], spans["caller"]
    assert parent(requests) == ids_of(ours)
    assert parent(ours) == ids_of(caller)
    assert ours.kind is (SpanKind.CLIENT if kind is AsyncTwin else SpanKind.INTERNAL)


@on_both
@by_both
def test_the_span_of_a_refused_operation_is_below_the_callers(
    kind: Kind, cls: type[AgentMemory], telemetry: Telemetry
) -> None:
    memory = cls.open(kind(MemoryBackend()), plugins=[telemetry.plugin, Guard()])
    with telemetry.tracers.get_tracer("caller").start_as_current_span("caller"):
        with pytest.raises(OperationDenied):
            perform(memory, "write", "denied.md", "x")
    refused, caller = telemetry.spans
    assert (refused.name, facts(refused)["agent_memory.operation.status"]) == ("upsert_memory", "denied")
    assert refused.status.status_code is StatusCode.UNSET
    assert "error.type" not in facts(refused)
    assert parent(refused) == ids_of(caller)
    (point,) = telemetry.points()["refusals"]
    assert (point.value, point.attributes["gen_ai.operation.name"]) == (1, "upsert_memory")


@pytest.mark.parametrize(
    ("method", "args", "error"),
    [
        ("read", ("missing.md",), "file_not_found"),
        ("write", ("a.md", "x", ABSENT), "file_exists"),
        ("edit", ("a.md", lambda _: str(1 / 0)), "ZeroDivisionError"),
    ],
)
def test_a_failure_has_its_kind_and_no_text(
    method: str, args: tuple[Any, ...], error: str, telemetry: Telemetry
) -> None:
    store = MemoryBackend()
    store.write(Key.tree().join("a.md"), b"x")
    memory = AgentMemory.open(store, plugins=[telemetry.plugin])
    if args[-1] is ABSENT:
        method, args = "create", args[:-1]
    with pytest.raises((AgentMemoryError, ZeroDivisionError)):
        getattr(memory, method)(*args)
    span = telemetry.span()
    assert facts(span)["error.type"] == error
    assert (span.status.status_code, span.status.description, span.events) == (StatusCode.ERROR, None, ())
    (point,) = telemetry.points()["duration"]
    assert point.attributes["error.type"] == error


def test_a_cancelled_operation_has_a_span_with_the_status_unknown(telemetry: Telemetry) -> None:
    gate = AsyncGate()
    asyncio.run(cancelled(AsyncAgentMemory.open(gate, plugins=[telemetry.plugin]).read("a.md"), gate.reached))
    span = telemetry.span()
    assert facts(span)["agent_memory.operation.status"] == "unknown"
    assert facts(span)["error.type"] == "interrupted"
    assert span.status.status_code is StatusCode.ERROR


def test_metrics_have_the_durations_the_bytes_and_the_conflicts_and_no_name(telemetry: Telemetry) -> None:
    with AgentMemoryService(MemoryBackend(), plugins=[telemetry.plugin]) as service:
        memory = service.agent("private-agent")
        memory.write("private-path.md", "12345")
        memory.append("private-path.md", "678")
        memory.edit("private-path.md", str.upper)
        memory.edit("private-path.md", lambda text: text + "!")
        memory.read("private-path.md")
        with pytest.raises(ConflictError):
            memory.write("private-path.md", "x", when=SHA256("0" * 64))
        with pytest.raises(AgentMemoryError):
            memory.read("../private-path")
    points = telemetry.points()
    assert set(points) == {"duration", "storage.duration", "bytes", "conflicts", "refusals"}
    durations: list[HistogramDataPoint] = points["duration"]
    assert sum(point.count for point in durations) == 6
    assert all(
        0 < storage.sum < whole.sum for storage, whole in zip(points["storage.duration"], durations, strict=True)
    )
    sizes = {point.attributes["agent_memory.operation.kind"]: point.sum for point in points["bytes"]}
    assert sizes == {"write": 5, "append": 3, "edit": 9}
    assert [point.value for point in points["conflicts"]] == [1]
    assert [dict(point.attributes) for point in points["refusals"]] == [{"agent_memory.refusal.rule": "parent"}]
    data = telemetry.reader.get_metrics_data()
    assert data is None or "private" not in data.to_json()


def test_digests_hide_agents_and_paths_and_need_the_same_salt() -> None:
    telemetry, other = Telemetry(paths="digests", salt=SALT), Telemetry(paths="digests", salt=SALT.encode())
    for each in (telemetry, other):
        with AgentMemoryService(MemoryBackend(), plugins=[each.plugin]) as service:
            service.agent("bob").write("a.md", "x")
            service.agent("eve").write("a.md", "x")
            service.agent("bob").rename("a.md", "b.md")
        assert not any(f'"{name}"' in each.everything() for name in ("bob", "eve", "a.md", "b.md"))
    bob, eve, renamed = map(facts, telemetry.spans)
    assert (
        bob["gen_ai.memory.record.id"] == telemetry.plugin.digest("bob", "a.md") == renamed["gen_ai.memory.record.id"]
    )
    assert bob["gen_ai.memory.store.id"] == telemetry.plugin.digest("bob") != eve["gen_ai.memory.store.id"]
    assert renamed["agent_memory.record.target"] == telemetry.plugin.digest("bob", "b.md")
    assert bob["gen_ai.memory.record.id"] != eve["gen_ai.memory.record.id"]
    assert [facts(span)["gen_ai.memory.record.id"] for span in other.spans] == [
        facts(span)["gen_ai.memory.record.id"] for span in telemetry.spans
    ]
    assert (
        OpenTelemetryPlugin(paths="digests", salt="another text of 16").digest("bob") != bob["gen_ai.memory.store.id"]
    )


def test_without_names_a_span_names_no_agent_and_no_file() -> None:
    telemetry = Telemetry(paths="none")
    with AgentMemoryService(MemoryBackend(), plugins=[telemetry.plugin]) as service:
        service.agent("bob").write("a.md", "x")
    assert not {name for name in facts(telemetry.span()) if name.startswith("gen_ai.memory.")}
    with pytest.raises(ValueError, match="without a salt there are no digests"):
        telemetry.plugin.digest("bob")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"paths": "hashes"}, "paths must be one of names, digests, none, not 'hashes'"),
        ({"paths": "digests"}, "needs a salt"),
        ({"salt": SALT}, "only this value uses one"),
        ({"paths": "digests", "salt": "short"}, "at least 16"),
        ({"paths": "digests", "salt": 5}, "a text or bytes"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OpenTelemetryPlugin(**options)


def test_a_configuration_enables_it(tmp_path: Path) -> None:
    (tmp_path / "salt").write_bytes(SALT.encode())
    file = tmp_path / "agent-memory.toml"
    file.write_text(f'[plugins.opentelemetry]\npaths = "digests"\nsalt_file = "{tmp_path / "salt"}"\n')
    (plugin,) = plugins_from(file)
    assert plugin.digest("bob") == OpenTelemetryPlugin(paths="digests", salt=SALT).digest("bob")
    file.write_text('[plugins.opentelemetry]\npaths = "digests"\nsalt_file = "missing"\n')
    with pytest.raises(ValueError, match="salt_file cannot be read"):
        plugins_from(file)


def test_without_the_package_the_error_names_the_extra() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from agent_memory.errors import BackendNotAvailableError\n"
        "from agent_memory.plugins.configuration import made\n"
        "try: made('opentelemetry', {})\n"
        "except BackendNotAvailableError as error: print(error)\n"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "[plugins.opentelemetry]: opentelemetry-api is missing: pip install 'agent-memory-files[otel]'" in shown


class Interrupting:
    @hookimpl
    def agent_memory_after_operation(self) -> None:
        raise KeyboardInterrupt


def test_a_span_whose_report_was_skipped_ends_with_the_service(telemetry: Telemetry) -> None:
    with AgentMemory.open(MemoryBackend(), plugins=[telemetry.plugin, Interrupting()]) as memory:
        with pytest.raises(KeyboardInterrupt):
            memory.write("a.md", "x")
        assert telemetry.spans == ()
    assert telemetry.span().name == "upsert_memory"


def test_the_number_of_spans_without_a_report_is_bounded(telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    memory = AgentMemory.open(MemoryBackend(), plugins=[telemetry.plugin, Interrupting()])
    for number in range(10):
        with pytest.raises(KeyboardInterrupt):
            memory.write(f"{number}.md", "x")
    assert len(telemetry.spans) == 7
    assert len(telemetry.plugin._waiting) == 3


def test_concurrent_operations_have_one_span_each(telemetry: Telemetry) -> None:
    async def play() -> None:
        async with AsyncAgentMemoryService(AsyncTwin(MemoryBackend()), plugins=[telemetry.plugin]) as service:
            await asyncio.gather(*(service.agent("bob").write(f"{number}.md", "x") for number in range(200)))

    asyncio.run(play())
    ids = Counter(facts(span)["gen_ai.memory.record.id"] for span in telemetry.spans)
    assert ids == Counter(f"{number}.md" for number in range(200))
    assert telemetry.plugin._waiting == {}


class Collector(BaseHTTPRequestHandler):
    """A receiver of OTLP over HTTP, as a collector is; it keeps the bodies."""

    bodies: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.bodies.append(body)
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        pass


def test_the_protocol_of_a_collector_carries_the_span() -> None:
    Collector.bodies.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        tracers = TracerProvider()
        endpoint = f"http://127.0.0.1:{server.server_port}/v1/traces"
        tracers.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint)))
        with AgentMemoryService(MemoryBackend(), plugins=[OpenTelemetryPlugin(tracers, MeterProvider())]) as service:
            service.agent("bob").write("a.md", CANARY)
        tracers.shutdown()
        server.shutdown()
        thread.join()
    (body,) = Collector.bodies
    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    (span,) = resource.scope_spans[0].spans
    found = {each.key: each.value.string_value for each in span.attributes}
    assert (span.name, found["gen_ai.memory.record.id"]) == ("upsert_memory", "a.md")
    assert CANARY.encode() not in body


def test_an_outcome_without_a_context_that_reached_the_storage_makes_no_second_span(telemetry: Telemetry) -> None:
    operation = Operation(id="1", time=0.0, kind="read", agent=None, path="a.md")
    telemetry.plugin.agent_memory_after_operation(operation, Outcome("ok", 0.2, storage_duration=0.1))
    assert telemetry.spans == ()


def test_nothing_of_it_is_logged(telemetry: Telemetry, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        asyncio.run(every_kind_on_memory(telemetry))
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]
    assert json.loads(telemetry.spans[0].to_json())["name"]


async def every_kind_on_memory(telemetry: Telemetry) -> None:
    with AgentMemoryService(MemoryBackend(), plugins=[telemetry.plugin, Guard()], versions=VersionLimits()) as service:
        await every_kind(service)
