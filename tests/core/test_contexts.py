"""Context managers of plugins surround the storage's part of each operation, and change nothing of it."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, TypeAlias

import pluggy
import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryFileNotFoundError,
    AsyncAgentMemory,
    Operation,
    OperationDenied,
    hookimpl,
)
from agent_memory.backend import ANY, AnyBackend, BlockingBackend, ETag, ReadWhen, Snapshot, WriteWhen
from agent_memory.key import Key
from agent_memory.testing import RecordingPlugin
from agent_memory_memory import MemoryBackend
from tests.core.test_hooks import AsyncGate, AsyncTwin, Counting, cancelled, perform
from tests.faults.interrupts import count_places, interrupted_at
from tests.support.servers import Root

Kind: TypeAlias = Callable[[BlockingBackend], AnyBackend]
CURRENT: ContextVar[str] = ContextVar("current", default="")
SECONDS = 60  # a test's timeout for another thread
on_both = pytest.mark.parametrize("kind", [lambda store: store, AsyncTwin], ids=["blocking", "async"])
by_both = pytest.mark.parametrize("cls", [AgentMemory, AsyncAgentMemory])


class Context(AbstractContextManager[None]):
    """A context that sets a context variable, and notes its name, the exception and the thread."""

    def __init__(self, plugin: Contexts, operation: Operation) -> None:
        self._plugin, self._operation = plugin, operation

    def __enter__(self) -> None:
        self._plugin.log.append(f"enter {self._plugin.name}")
        self._token = CURRENT.set(self._operation.id)
        self._plugin.threads.append(threading.get_ident())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        CURRENT.reset(self._token)
        self._plugin.log.append(f"exit {self._plugin.name}")
        self._plugin.errors.append(error)
        self._plugin.threads.append(threading.get_ident())
        assert kind is (type(error) if error else None)
        return True


class Contexts:
    """A plugin that puts a `Context` around each operation."""

    def __init__(self, name: str = "a", log: list[str] | None = None) -> None:
        self.name, self.log = name, [] if log is None else log
        self.errors: list[BaseException | None] = []
        self.threads: list[int] = []

    @hookimpl
    def agent_memory_operation_context(self, operation: Operation) -> Context:
        return Context(self, operation)


class Seeing(MemoryBackend):
    """A store that notes the context variable in each read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        self.seen.append(CURRENT.get())
        return super().read(key, start, end, when)

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: Any = None) -> ETag:
        self.seen.append(CURRENT.get())
        return super().write(key, data, when, origin)


@on_both
@by_both
def test_the_storage_sees_the_context_variables_of_the_context(kind: Kind, cls: type[AgentMemory]) -> None:
    store, recorder, plugin = Seeing(), RecordingPlugin(), Contexts()
    memory = cls.open(kind(store), plugins=[recorder, plugin])
    perform(memory, "write", "a.md", "x")
    perform(memory, "edit", "a.md", str.upper)
    written, edited = (operation.id for operation in recorder.before)
    assert [*dict.fromkeys(store.seen)] == [written, edited], "each request, also of the store's settings"
    assert plugin.log == ["enter a", "exit a"] * 2
    assert (plugin.errors, CURRENT.get()) == ([None, None], "")


@pytest.mark.parametrize("root", ["ministack"], indirect=True)
@by_both
def test_a_request_to_s3_sees_the_context_variables_of_the_context(
    root: Root, cls: type[AgentMemory], monkeypatch: pytest.MonkeyPatch
) -> None:
    from aiobotocore.client import AioBaseClient

    requests: list[tuple[str, str]] = []
    send = AioBaseClient._make_api_call

    async def noted(self: Any, name: str, *args: Any) -> Any:
        requests.append((name, CURRENT.get()))
        return await send(self, name, *args)

    plugin, recorder = Contexts(), RecordingPlugin()
    memory = cls.open(root.url, storage_options=root.options, plugins=[recorder, plugin])

    async def play() -> None:
        async with memory if isinstance(memory, AsyncAgentMemory) else nullcontext():
            for method, *args in (("write", "a.md", "x"), ("append", "a.md", "y"), ("list",)):
                result = getattr(memory, method)(*args)
                if isinstance(memory, AsyncAgentMemory):
                    await result

    monkeypatch.setattr(AioBaseClient, "_make_api_call", noted)
    asyncio.run(play())
    ids = {operation.id for operation in recorder.before}
    assert {seen for _, seen in requests} == ids
    assert {name for name, _ in requests} >= {"PutObject", "ListObjectsV2"}
    if isinstance(memory, AgentMemory):
        memory.close()


@on_both
@by_both
def test_contexts_are_nested_in_the_order_of_the_plugins(kind: Kind, cls: type[AgentMemory]) -> None:
    log: list[str] = []

    class Surrounding:
        @hookimpl
        def agent_memory_before_operation(self) -> None:
            log.append("before")

        @hookimpl
        def agent_memory_filter_content(self) -> None:
            log.append("filter")

        @hookimpl
        def agent_memory_after_operation(self) -> None:
            log.append("after")

    memory = cls.open(kind(MemoryBackend()), plugins=[Contexts("first", log), Contexts("last", log), Surrounding()])
    perform(memory, "write", "a.md", "x")
    assert log == ["before", "filter", "enter last", "enter first", "exit first", "exit last", "after"]


@on_both
@by_both
def test_a_context_gets_the_exception_and_cannot_suppress_it(kind: Kind, cls: type[AgentMemory]) -> None:
    plugin = Contexts()
    memory = cls.open(kind(MemoryBackend()), plugins=[plugin])
    with pytest.raises(AgentMemoryFileNotFoundError) as raised:
        perform(memory, "read", "a.md")
    assert plugin.errors == [raised.value]
    assert CURRENT.get() == ""


def test_an_operation_that_is_refused_before_the_storage_has_no_context() -> None:
    class Guard:
        @hookimpl
        def agent_memory_before_operation(self, operation: Operation) -> None:
            if operation.path == "no.md":
                raise OperationDenied("no")

    plugin = Contexts()
    memory = AgentMemory.open(MemoryBackend(), plugins=[plugin, Guard()])
    for view, path in ((memory, "no.md"), (memory.read_only(), "a.md")):
        with pytest.raises(OperationDenied):
            view.write(path, "x")
    assert plugin.log == []


def test_a_plugin_may_return_no_context_or_be_a_generator_function_of_contextlib() -> None:
    log: list[str] = []

    class Some:
        @hookimpl
        @contextmanager
        def agent_memory_operation_context(self, operation: Operation) -> Iterator[None]:
            log.append(operation.kind)
            try:
                yield
            finally:
                log.append("left")

    class Nothing:
        @hookimpl
        def agent_memory_operation_context(self) -> None:
            return None

    memory = AgentMemory.open(MemoryBackend(), plugins=[Some(), Nothing()])
    memory.write("a.md", "x")
    with suppress(AgentMemoryFileNotFoundError):
        memory.read("b.md")
    assert log == ["write", "left", "read", "left"]


def test_a_generator_function_without_contextlib_is_refused_with_the_remedy() -> None:
    class Bare:
        @hookimpl
        def agent_memory_operation_context(self) -> Iterator[None]:
            yield

    with pytest.raises(pluggy.PluginValidationError, match="decorate it with @contextmanager"):
        AgentMemory.open(MemoryBackend(), plugins=[Bare()])


class Broken:
    """A plugin whose context fails at one step."""

    def __init__(self, step: str, error: BaseException) -> None:
        self._step, self._error = step, error

    def __enter__(self) -> None:
        self._fail_at("enter")

    def __exit__(self, *_: object) -> None:
        self._fail_at("exit")

    def _fail_at(self, step: str) -> None:
        if step == self._step:
            raise self._error

    @hookimpl
    def agent_memory_operation_context(self, operation: Operation) -> object:  # noqa: ARG002 - a trace shows it
        self._fail_at("hook")
        return "no context" if self._step == "value" else self


FAILED = r"failed in agent_memory_operation_context{} with ValueError: test_contexts\.py:\d+"
STEPS = {
    "hook": FAILED.format(""),
    "value": "returned a value from agent_memory_operation_context that is no context manager",
    "enter": FAILED.format(r"\.enter"),
    "exit": FAILED.format(r"\.exit"),
}


@pytest.mark.parametrize(("step", "shown"), STEPS.items())
@on_both
@by_both
def test_a_context_that_fails_is_logged_without_its_text_and_changes_nothing(
    kind: Kind, cls: type[AgentMemory], step: str, shown: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, last, recorder = Contexts("first"), Contexts("last"), RecordingPlugin()
    broken = Broken(step, ValueError("a secret"))
    memory = cls.open(kind(MemoryBackend()), plugins=[recorder, first, broken, last])
    perform(memory, "write", "a.md", "x")
    assert perform(memory, "read", "a.md") == "x"
    assert [outcome.status for _, outcome in recorder.after] == ["ok", "ok"]
    assert first.log + last.log == ["enter first", "exit first"] * 2 + ["enter last", "exit last"] * 2
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(lines) == 2
    assert all(re.fullmatch(f"the plugin 'Broken' {shown}", line) for line in lines), lines
    assert "secret" not in caplog.text


def test_a_trace_shows_each_step_of_a_context(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGENT_MEMORY_TRACE_PLUGINS", "1")
    with AgentMemory.open(MemoryBackend(), plugins=[Broken("exit", ValueError("a secret"))]) as memory:
        memory.write("a.md", "x")
    shown = capsys.readouterr().err
    pattern = r"Broken agent_memory_operation_context(\S*) \d+\.\d{3} ms write [0-9a-f]{16}(.*)"
    assert re.findall(pattern, shown) == [("", ""), (".enter", ""), (".exit", " raised ValueError")]
    assert "secret" not in shown


INTERRUPTS = pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])


@INTERRUPTS
@pytest.mark.parametrize("step", ["hook", "enter"])
@on_both
@by_both
def test_an_interrupt_at_the_beginning_prevents_the_operation_and_leaves_the_other_contexts(
    kind: Kind, cls: type[AgentMemory], step: str, interrupt: type[BaseException]
) -> None:
    store, recorder = Counting(), RecordingPlugin()
    first, last = Contexts("first"), Contexts("last")
    memory = cls.open(kind(store), plugins=[recorder, first, Broken(step, interrupt()), last])
    with pytest.raises(interrupt):
        perform(memory, "write", "a.md", "x")
    assert (first.log, last.log) == ([], ["enter last", "exit last"])
    assert not store.requests
    assert (recorder.outcome().status, recorder.outcome().error) == ("error", "interrupted")


@INTERRUPTS
@on_both
@by_both
def test_an_interrupt_at_the_end_leaves_the_other_contexts_and_the_change_is_reported(
    kind: Kind, cls: type[AgentMemory], interrupt: type[BaseException]
) -> None:
    store, recorder = Counting(), RecordingPlugin()
    first, last = Contexts("first"), Contexts("last")
    broken = [Broken("exit", interrupt()) for _ in range(2)]
    memory = cls.open(kind(store), plugins=[recorder, first, *broken, last])
    with pytest.raises(interrupt):
        perform(memory, "write", "a.md", "x")
    assert (first.log, last.log) == (["enter first", "exit first"], ["enter last", "exit last"])
    assert store.read(Key.tree().join("a.md")).data == b"x"
    assert recorder.outcome().status == "ok"


@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@on_both
def test_an_interrupt_at_any_place_leaves_every_context_and_skips_no_required_report(kind: Kind) -> None:
    class Required(RecordingPlugin):
        required = True

    log: list[str] = []
    recorder, store = Required(), Counting()
    memory = AgentMemory.open(kind(store), plugins=[recorder, Contexts("first", log), Contexts("last", log)])
    memory.write("a.md", "before")
    places = count_places(lambda: memory.write("a.md", "first"))
    assert places > 50
    entered = 0
    for place in range(1, places + 1):
        log.clear()
        recorder.after.clear()
        interrupted_at(place, lambda: memory.write("a.md", str(place)))  # noqa: B023 - called at once
        whole = ["enter last", "enter first", "exit first", "exit last"]
        assert log in ([], [whole[0], whole[3]], whole), place
        assert CURRENT.get() == "", place
        changed = store.read(Key.tree().join("a.md")).data == str(place).encode()
        assert recorder.after or not changed, place
        entered += log == whole
    assert entered > 10


def test_a_cancelled_operation_leaves_its_context_in_its_own_task() -> None:
    plugin, gate = Contexts(), AsyncGate()
    asyncio.run(cancelled(AsyncAgentMemory.open(gate, plugins=[plugin]).read("a.md"), gate.reached))
    assert plugin.log == ["enter a", "exit a"]
    assert isinstance(plugin.errors[0], asyncio.CancelledError)
    assert plugin.threads == [threading.get_ident()] * 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_context_of_a_dropped_event_loop_is_never_left() -> None:
    plugin, gate = Contexts(), AsyncGate()

    def drop() -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(AsyncAgentMemory.open(gate, plugins=[plugin]).read("a.md"))
        loop.run_until_complete(asyncio.wait([task], timeout=0.05))
        assert gate.reached.wait(SECONDS)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # what a test that drops a loop expects
        loop.close()

    thread = threading.Thread(target=drop)
    thread.start()
    thread.join(SECONDS)
    gc.collect()
    assert plugin.log == ["enter a"]


def test_an_operation_that_waits_for_a_lock_keeps_its_context_variables(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A waiting flow leaves its thread, and may continue in another one."""
    plugin, holding = Contexts(), threading.Event()

    async def play() -> None:
        async with AsyncAgentMemory.open(tmp_path, plugins=[plugin]) as memory:
            await memory.write("a.md", "x")
            holder = asyncio.create_task(asyncio.to_thread(held, memory.as_sync()))
            await asyncio.to_thread(holding.wait, SECONDS)
            await asyncio.gather(*(memory.append("a.md", "y") for _ in range(5)))
            await holder

    def held(memory: AgentMemory) -> None:
        def change(text: str) -> str:
            holding.set()
            return text + "!" * 1000

        memory.edit("a.md", change)

    asyncio.run(play())
    assert plugin.log.count("enter a") == plugin.log.count("exit a") == 7
    assert set(plugin.errors) == {None}
    assert "failed in" not in caplog.text


def never(*_: object) -> NoReturn:
    raise AssertionError


def test_without_such_a_plugin_no_context_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_memory.core.operation.OperationContexts", never)
    with AgentMemory.open(MemoryBackend(), plugins=[RecordingPlugin()]) as memory:
        memory.write("a.md", "x")
