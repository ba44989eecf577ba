"""Hooks: called once per operation, with the documented facts and with each hook's failure policy."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import gc
import hashlib
import inspect
import logging
import re
import threading
import types
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NoReturn, TypeAlias

import pluggy
import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    AgentMemoryService,
    AppendError,
    AsyncAgentMemory,
    AsyncAgentMemoryService,
    ConflictError,
    InvalidAgentIdError,
    InvalidContentError,
    InvalidPathError,
    Limits,
    Operation,
    OperationDenied,
    Outcome,
    OutcomeUnknownError,
    PathTraversalError,
    ReadError,
    hookimpl,
    hookspecs,
)
from agent_memory.backend import (
    ANY,
    AnyBackend,
    Appended,
    AppendWhen,
    Backend,
    BlockingBackend,
    DeletedTree,
    Entry,
    ETag,
    NewOrigin,
    Page,
    ReadWhen,
    Snapshot,
    WriteWhen,
)
from agent_memory.core import hooks
from agent_memory.core.hooks import Hooks
from agent_memory.hookspecs import Plugin
from agent_memory.key import Key
from agent_memory.reading.reader import Reader
from agent_memory.runtime.threads import in_thread
from agent_memory.testing import RecordingPlugin
from agent_memory_memory import MemoryBackend
from tests.faults.interrupts import count_places, interrupted_at
from tests.support.loops import looped

AnyView: TypeAlias = AgentMemory | AsyncAgentMemory | AgentMemoryService | AsyncAgentMemoryService
OPERATION = Operation(id="1", time=0.0, kind="write", agent="bob", path="a.md")
OUTCOME = Outcome(status="ok", duration=0.0)
SECONDS = 60  # a test's timeout for another thread


# The tested methods and their views.


@dataclass(frozen=True)
class Case:
    """One public method: its arguments, and the facts that the hooks must receive."""

    operation: Operation
    args: tuple[Any, ...]
    content: bytes | None = None


def case(kind: str, *args: Any, content: bytes | None = None, **facts: Any) -> Case:
    facts = {"agent": None, "path": args[0] if args else "", **facts}
    return Case(Operation(id="", time=0.0, kind=kind, **facts), args, content)  # type: ignore[arg-type]


def of_bob(kind: str, *args: Any, **facts: Any) -> Case:
    made = case(kind, *args, agent="bob", **facts)
    return replace(made, args=("bob", *args))


async def in_two_reads(reader: Reader) -> bytes:
    return await reader.read(0, 1) + await reader.read(1, 3)


ON_A_TREE = {
    "read": case("read", "a.md"),
    "read_bytes": case("read", "a.md"),
    "read_many": replace(case("read", "a.md"), args=(["a.md"],)),
    "tail": case("read", "a.md", 2),
    "scan": case("read", "a.md", in_two_reads),
    "stat": case("stat", "a.md"),
    "exists": case("exists", "a.md"),
    "is_directory": case("exists", "dir"),
    "list": case("list", "dir"),
    "usage": case("list"),
    "write": case("write", "a.md", "new", size=3, content=b"new"),
    "write_blocks": case("write", "a.md", [b"\xff", b"\0"], 2, size=2, content=b"\xff\0"),
    "create": case("create", "new.md", "\u00e9", size=2, content="\u00e9".encode()),
    "append": case("append", "a.md", "new", size=3, content=b"new"),
    "edit": case("edit", "a.md", str.upper, content=b"OLD"),
    "edit_bytes": case("edit", "a.md", bytes.upper, content=b"OLD"),
    "delete": case("delete", "a.md"),
    "delete_tree": case("delete_tree", "dir"),
    "forget": case("forget", "dir"),
    "rename": case("rename", "a.md", "new.md", target="new.md"),
    "copy": case("copy", "a.md", "new.md", target="new.md"),
}
ON_A_SERVICE = {
    "read_memory_file": of_bob("read", "a.md"),
    "write_memory_file": of_bob("write", "a.md", "new", size=3, content=b"new"),
    "append_to_memory_file": of_bob("append", "a.md", "new", size=3, content=b"new"),
    "create_memory_file": of_bob("create", "new.md", "new", size=3, content=b"new"),
    "delete_memory_file": of_bob("delete", "a.md"),
    "rename_memory_file": of_bob("rename", "a.md", "new.md", target="new.md"),
    "list_memory_files": of_bob("list", path=""),
    "memory_file_exists": of_bob("exists", "a.md"),
    "forget_memory": of_bob("forget", "a.md"),
    "agent_ids": case("agent_ids"),
    "limits": case("list"),
    "set_limits": case("set_limits", Limits(file_bytes=9), path=""),
}
OF_VIEWS = {  # tests/core/versions tests the calls of `versions`
    *("open", "subtree", "read_only", "acting_as", "with_timeout", "once", "versions"),
    *("capabilities", "as_sync", "as_async"),
}
NO_OPERATIONS = {
    AgentMemory: OF_VIEWS | {"close"},
    AsyncAgentMemory: OF_VIEWS | {"aclose"},
    AgentMemoryService: {"agent", "capabilities", "close", "statistics"} | {"usage", "expire"},  # of each agent
    AsyncAgentMemoryService: {"agent", "capabilities", "aclose", "statistics"} | {"usage", "expire"},
}
READING = {"read", "stat", "exists", "list", "agent_ids"}
METHODS = [
    *((cls, name) for cls in (AgentMemory, AsyncAgentMemory) for name in ON_A_TREE),
    *((cls, name) for cls in (AgentMemoryService, AsyncAgentMemoryService) for name in ON_A_SERVICE),
]
CASES = {(cls, name): (ON_A_TREE | ON_A_SERVICE)[name] for cls, name in METHODS}


class Recorder(RecordingPlugin):
    """Record every hook call, and let a test wait for a report."""

    def __init__(self) -> None:
        super().__init__()
        self.reported = threading.Semaphore(0)

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:
        super().agent_memory_after_operation(operation, outcome)
        self.reported.release()


class Counting(MemoryBackend):
    """A backend that counts its requests."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: Counter[str] = Counter()

    def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        self.requests["read"] += 1
        return super().read(key, start, end, when)

    def stat(self, key: Key) -> Entry:
        self.requests["stat"] += 1
        return super().stat(key)

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        self.requests["write"] += 1
        return super().write(key, data, when, origin)

    def append(
        self,
        key: Key,
        data: bytes,
        *,
        separator: bytes = b"",
        when: AppendWhen = ANY,
        most: int | None = None,
        origin: NewOrigin | None = None,
    ) -> Appended:
        self.requests["append"] += 1
        return super().append(key, data, separator=separator, when=when, most=most, origin=origin)

    def delete(self, key: Key, when: ReadWhen = ANY) -> None:
        self.requests["delete"] += 1
        super().delete(key, when)

    def move_tree(self, source: Key, target: Key) -> int | None:
        self.requests["move_tree"] += 1
        return super().move_tree(source, target)

    def delete_tree(self, prefix: Key) -> DeletedTree:
        self.requests["delete_tree"] += 1
        return super().delete_tree(prefix)

    def erase(self, prefix: Key) -> DeletedTree:
        self.requests["erase"] += 1
        return super().erase(prefix)

    def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        self.requests["list"] += 1
        return super().list(prefix, recursive=recursive, after=after, limit=limit)


BROKEN = {"read", "stat", "write", "append", "delete", "delete_tree", "erase", "list", "move_file"}


class Broken(Counting):
    """A backend whose requests all fail once ``broken`` is set."""

    broken = False

    def __getattribute__(self, name: str) -> Any:
        if name in BROKEN and self.broken:
            return self._fail
        return super().__getattribute__(name)

    def _fail(self, *_: object, **__: object) -> NoReturn:
        raise ReadError("the storage failed")


class AsyncTwin(Backend):
    """An async backend that wraps a blocking one."""

    def __init__(self, twin: BlockingBackend) -> None:
        self.twin = twin
        self.capabilities = twin.capabilities

    async def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        return self.twin.read(key, start, end, when)

    async def stat(self, key: Key) -> Entry:
        return self.twin.stat(key)

    async def erase(self, prefix: Key) -> DeletedTree:
        assert isinstance(self.twin, MemoryBackend)
        return self.twin.erase(prefix)

    async def erase_earlier(self, key: Key, is_meant: Callable[[Key], bool] | None = None) -> int:
        assert isinstance(self.twin, MemoryBackend)
        return self.twin.erase_earlier(key, is_meant)

    async def write(self, key: Key, data: bytes, when: WriteWhen = ANY) -> ETag:
        return self.twin.write(key, data, when)

    async def delete(self, key: Key, when: ReadWhen = ANY) -> None:
        self.twin.delete(key, when)

    async def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        return self.twin.list(prefix, recursive=recursive, after=after, limit=limit)


def opened(cls: type[AnyView], backend: AnyBackend, *plugins: object) -> AnyView:
    """A view of a store with ``a.md`` and ``dir/b.md``, which were written before any plugin was registered."""
    top = Key.agent("bob") if issubclass(cls, AgentMemoryService | AsyncAgentMemoryService) else Key.tree()
    store = backend.twin if isinstance(backend, AsyncTwin) else backend
    assert isinstance(store, Counting)
    for name in ("a.md", "dir/b.md"):
        store.write(top.join(name), b"old")
    if issubclass(cls, AgentMemory | AsyncAgentMemory):
        return cls.open(backend, plugins=plugins)
    view = cls(backend, plugins=plugins)
    store.requests.clear()
    return view


def perform(view: object, method: str, *args: Any) -> Any:
    """Call a sync or an async method."""

    async def awaited() -> Any:
        return await getattr(view, method)(*args)

    if inspect.iscoroutinefunction(getattr(view, method)):
        return asyncio.run(awaited())
    return getattr(view, method)(*args)


def seen(operation: Operation) -> Operation:
    """An operation without its id, its time and the kind of its backend, for comparisons."""
    return replace(operation, id="", time=0.0, remote=False)


every_method = looped(("cls", "method"), METHODS)
sync_and_async = looped("kind", [lambda store: store, AsyncTwin])
Kind: TypeAlias = Callable[[BlockingBackend], AnyBackend]


# Once per operation, for every public method.


@pytest.mark.parametrize("cls", NO_OPERATIONS, ids=lambda cls: cls.__name__)
def test_these_tests_cover_every_public_method(cls: type) -> None:
    public = {name for name in dir(cls) if not name.startswith("_")}
    assert public == {name for owner, name in METHODS if owner is cls} | NO_OPERATIONS[cls]


@every_method
@sync_and_async
def test_a_successful_operation_is_reported_once(cls: type[AnyView], method: str, kind: Kind) -> None:
    recorder, expected = Recorder(), CASES[cls, method]
    perform(opened(cls, kind(Counting()), recorder), method, *expected.args)
    assert [seen(operation) for operation in recorder.before] == [expected.operation]
    assert [operation for operation, _ in recorder.after] == recorder.before
    assert (recorder.outcome().status, recorder.outcome().error) == ("ok", None)
    assert recorder.checked == ([] if expected.content is None else [(recorder.before[0], expected.content)])
    assert recorder.rejected == []


@every_method
@sync_and_async
def test_a_failed_operation_is_reported_once(cls: type[AnyView], method: str, kind: Kind) -> None:
    recorder, expected, store = Recorder(), CASES[cls, method], Broken()
    view = opened(cls, kind(store), recorder)
    error = AppendError if expected.operation.kind == "append" else ReadError
    store.broken = True
    with pytest.raises(error, match="the storage failed"):
        perform(view, method, *expected.args)
    assert [seen(operation) for operation in recorder.before] == [expected.operation]
    assert [operation for operation, _ in recorder.after] == recorder.before
    assert (recorder.outcome().status, recorder.outcome().error) == ("error", error.kind)


@every_method
@sync_and_async
def test_a_denied_operation_is_reported_once_and_reaches_no_storage(
    cls: type[AnyView], method: str, kind: Kind
) -> None:
    class Guard:
        @hookimpl
        def agent_memory_before_operation(self) -> None:
            raise OperationDenied("not today")

    recorder, expected, store = Recorder(), CASES[cls, method], Counting()
    view = opened(cls, kind(store), recorder, Guard())
    store.requests.clear()
    with pytest.raises(OperationDenied, match="not today"):
        perform(view, method, *expected.args)
    assert [seen(operation) for operation, _ in recorder.after] == [expected.operation]
    assert (recorder.outcome().status, recorder.outcome().error) == ("denied", None)
    assert (recorder.before, recorder.checked, store.requests) == ([], [], Counter())


@pytest.mark.long
@every_method
@sync_and_async
def test_plugins_add_no_request(cls: type[AnyView], method: str, kind: Kind) -> None:
    requests = []
    for plugins in ([], [Recorder(), Recorder()]):
        store = Counting()
        view = opened(cls, kind(store), *plugins)
        store.requests.clear()
        perform(view, method, *CASES[cls, method].args)
        requests.append(store.requests)
    assert requests[0] == requests[1]


@every_method
def test_a_refused_name_is_reported_once_and_is_no_operation(cls: type[AnyView], method: str) -> None:
    args = CASES[cls, method].args
    for position, text in enumerate(args):
        if text not in ("a.md", "new.md", "dir"):
            continue
        recorder = Recorder()
        view = opened(cls, Counting(), recorder)
        with pytest.raises(PathTraversalError):
            perform(view, method, *args[:position], "../\n", *args[position + 1 :])
        agent = "bob" if args[0] == "bob" else None
        assert recorder.rejected == [(agent, r"'../\n'", "control", None)]
        assert (recorder.before, recorder.after) == ([], [])


@pytest.mark.parametrize(("cls", "method"), [pair for pair in METHODS if CASES[pair].operation.agent])
def test_a_refused_agent_id_is_reported_once_and_is_no_operation(cls: type[AnyView], method: str) -> None:
    args = CASES[cls, method].args
    recorder = Recorder()
    view = opened(cls, Counting(), recorder)
    with pytest.raises(InvalidAgentIdError):
        perform(view, method, "b/b", *args[1:])
    assert recorder.rejected == [(None, "'b/b'", "agent-id", None)]
    assert (recorder.before, recorder.after) == ([], [])


@pytest.mark.parametrize("cls", [AgentMemoryService, AsyncAgentMemoryService])
def test_asking_for_an_invalid_agent_or_subtree_is_reported_once(cls: type[AgentMemoryService]) -> None:
    recorder = Recorder()
    service = cls("memory://", plugins=[recorder])
    with pytest.raises(InvalidAgentIdError):
        service.agent("..")
    with pytest.raises(PathTraversalError):
        service.agent("bob").subtree("..")
    assert recorder.rejected == [(None, "'..'", "agent-id", None), ("bob", "'..'", "parent", None)]


@pytest.mark.parametrize("name", ON_A_TREE)
@pytest.mark.parametrize("cls", [AgentMemory, AsyncAgentMemory])
def test_a_read_only_view_reports_a_refusal_and_asks_no_guard_and_no_storage(cls: type[AgentMemory], name: str) -> None:
    recorder, store, expected = Recorder(), Counting(), ON_A_TREE[name]
    view = opened(cls, store, recorder)
    assert isinstance(view, AgentMemory | AsyncAgentMemory)
    store.requests.clear()
    view = view.read_only()
    if expected.operation.kind in READING:
        perform(view, name, *expected.args)
        assert recorder.outcome().status == "ok"
        return
    with pytest.raises(OperationDenied, match="read-only"):
        perform(view, name, *expected.args)
    assert [seen(operation) for operation, _ in recorder.after] == [expected.operation]
    assert recorder.outcome().status == "denied"
    assert (recorder.before, recorder.checked, store.requests) == ([], [], Counter())


def test_content_that_cannot_be_encoded_is_reported_and_reaches_no_guard_and_no_storage() -> None:
    recorder, store = Recorder(), Counting()
    memory = AgentMemory.open(store, plugins=[recorder])
    with pytest.raises(InvalidContentError):
        memory.write("a.md", "\ud800")
    assert recorder.outcome().error == "invalid_content"
    assert recorder.after[0][0].size is None
    assert (recorder.before, recorder.checked, store.requests) == ([], [], Counter())


def test_each_operation_is_reported_with_its_own_id_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 12.5)
    recorder = Recorder()
    memory = AgentMemory.open("memory://", plugins=[recorder])
    for _ in range(3):
        memory.exists("a.md")
    assert len({operation.id for operation in recorder.before}) == 3
    assert {operation.time for operation in recorder.before} == {12.5}


def test_the_facts_of_an_operation_cannot_be_changed() -> None:
    for facts in (OPERATION, OUTCOME):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(facts, dataclasses.fields(facts)[0].name, "other")


def test_a_call_below_a_subtree_is_reported_with_its_path_in_the_agents_tree() -> None:
    recorder = Recorder()
    service = AgentMemoryService("memory://", plugins=[recorder], actor="job")
    notes = service.agent("bob").subtree("notes").acting_as("alice", "call-1")
    notes.create("a.md", "x")
    notes.rename("a.md", "b.md")
    assert [(op.agent, op.path, op.target, op.actor, op.tool_call_id) for op in recorder.before] == [
        ("bob", "notes/a.md", None, "alice", "call-1"),
        ("bob", "notes/a.md", "notes/b.md", "alice", "call-1"),
    ]


def test_an_agent_named_by_a_str_enumeration_is_reported_by_its_value() -> None:
    class Agent(str, enum.Enum):  # noqa: UP042  # StrEnum formats as its value and would hide the error
        BOB = "bob"

    recorder = Recorder()
    AgentMemoryService("memory://", plugins=[recorder]).write_memory_file(Agent.BOB, "a.md", "x")
    (told,) = recorder.before
    assert f"agent={told.agent}" == "agent=bob"


# Content.


def test_an_edit_that_changes_nothing_is_not_checked() -> None:
    recorder = Recorder()
    memory = AgentMemory.open("memory://", plugins=[recorder])
    memory.write("a.md", "same")
    recorder.checked.clear()
    memory.edit("a.md", lambda text: text)
    assert recorder.checked == []


def test_an_edit_is_checked_once_per_attempt_and_reported_once() -> None:
    class Contended(MemoryBackend):
        races = 2

        def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
            if isinstance(when, ETag) and self.races:
                self.races -= 1
                super().write(key, b"theirs")
                raise ConflictError("somebody was faster")
            return super().write(key, data, when, origin)

    recorder = Recorder()
    memory = AgentMemory.open(Contended(), plugins=[recorder])
    memory.write("a.md", "mine")
    memory.edit("a.md", lambda text: text + "!")
    contents = [content for operation, content in recorder.checked if operation.kind == "edit"]
    assert contents == [b"mine!", b"theirs!", b"theirs!"]
    assert [operation.kind for operation in recorder.before] == ["write", "edit"]
    assert recorder.after[1][1].attempts == 3


@sync_and_async
def test_an_edit_that_deletes_its_file_asks_the_guards_once_more_and_is_reported_once(kind: Kind) -> None:
    recorder = Recorder()
    memory = opened(AsyncAgentMemory, kind(Counting()), recorder)
    perform(memory, "edit", "a.md", lambda _: None)
    edit, delete = recorder.before
    assert (edit.kind, delete) == ("edit", replace(edit, kind="delete"))
    assert [operation for operation, _ in recorder.after] == [edit]
    outcome = recorder.outcome()
    assert (outcome.status, outcome.files, outcome.size, outcome.sha256) == ("ok", 1, None, None)
    assert recorder.checked == []


@sync_and_async
def test_a_guard_of_deletions_also_refuses_an_edit_that_deletes(kind: Kind) -> None:
    class Keeps:
        @hookimpl
        def agent_memory_before_operation(self, operation: Operation) -> None:
            if operation.kind == "delete":
                raise OperationDenied("nothing is deleted here")

    memory = opened(AgentMemory, kind(Counting()), Keeps())
    with pytest.raises(OperationDenied, match="nothing is deleted here"):
        perform(memory, "edit", "a.md", lambda _: None)
    assert perform(memory, "read", "a.md")


@pytest.mark.parametrize("method", ["write", "create", "append", "edit"])
@sync_and_async
def test_a_content_guard_stops_the_write(method: str, kind: Kind) -> None:
    class Guard:
        @hookimpl
        def agent_memory_check_content(self, content: bytes) -> None:
            raise OperationDenied(f"{len(content)} bytes are too many")

    recorder, store = Recorder(), Counting()
    view = opened(AgentMemory, kind(store), recorder, Guard())
    store.requests.clear()
    with pytest.raises(OperationDenied, match="bytes are too many"):
        perform(view, method, *ON_A_TREE[method].args)
    assert set(store.requests) <= {"read"}
    assert recorder.outcome().status == "denied"


# Guards fail closed.


def calls(log: list[str], name: str, error: BaseException | None = None) -> object:
    """A plugin whose guards and observers log its name, and then raise ``error`` if it is given."""

    def note() -> None:
        log.append(name)
        if error:
            raise error

    class Plugin:
        @hookimpl
        def agent_memory_before_operation(self) -> None:
            note()

        @hookimpl
        def agent_memory_check_content(self) -> None:
            note()

        @hookimpl
        def agent_memory_after_operation(self) -> None:
            note()

        @hookimpl
        def agent_memory_key_rejected(self) -> None:
            note()

    return Plugin()


REJECTED = InvalidPathError("no", "punctuation", "a.md", "'a?.md'")
GUARDED: list[Callable[[Hooks], object]] = [
    lambda hooks: hooks.before(OPERATION),
    lambda hooks: hooks.apply_filters(OPERATION, b"x"),
]
OBSERVED: list[Callable[[Hooks], object]] = [
    lambda hooks: hooks.report(OPERATION, OUTCOME)(),
    lambda hooks: hooks.key_rejected("bob", REJECTED, "ops"),
]
guarded = pytest.mark.parametrize("ask", GUARDED, ids=["before", "check"])
observed = pytest.mark.parametrize("tell", OBSERVED, ids=["after", "rejected"])


def test_the_refusal_of_a_guard_that_fails_names_the_plugin_and_the_log_has_the_line_of_code(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hooks = Hooks([calls([], "broken", KeyError("the content"))])
    hook = "agent_memory_before_operation"
    with pytest.raises(OperationDenied, match=f"^refused: the plugin 'Plugin' failed in {hook} with KeyError$"):
        hooks.before(OPERATION)
    (line,) = caplog.messages
    assert re.fullmatch(rf"the plugin 'Plugin' failed in {hook} with KeyError: test_hooks\.py:\d+", line)
    assert "the content" not in caplog.text
    caplog.clear()
    with pytest.raises(OperationDenied, match=r"^no$"):
        Hooks([calls([], "strict", OperationDenied("no"))]).before(OPERATION)
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("status", "message"),
    [("ok", "^the storage completed the operation, but the required plugin 'Required' "), ("error", "^the required ")],
)
def test_a_required_observer_that_fails_says_the_operation_was_done_only_if_it_was(
    status: Literal["ok", "error"], message: str
) -> None:
    class Required(Plugin):
        required = True

        @hookimpl
        def agent_memory_after_operation(self) -> None:
            raise OSError

    with pytest.raises(OutcomeUnknownError, match=message):
        Hooks([Required()]).report(OPERATION, replace(OUTCOME, status=status))()


@pytest.mark.parametrize("call", [*GUARDED, *OBSERVED], ids=["before", "check", "after", "rejected"])
def test_the_plugin_registered_last_is_called_first(call: Callable[[Hooks], object]) -> None:
    log: list[str] = []
    call(Hooks([calls(log, "first"), calls(log, "second"), calls(log, "third")]))
    assert log == ["third", "second", "first"]


class Filter:
    """A filter that appends a mark to the content, and logs the content that it received."""

    def __init__(self, mark: bytes, log: list[bytes]) -> None:
        self._mark = mark
        self._log = log

    @hookimpl
    def agent_memory_filter_content(self, content: bytes) -> bytes | None:
        self._log.append(content)
        return content + self._mark if self._mark else None

    @hookimpl
    def agent_memory_check_content(self, content: bytes) -> None:
        self._log.append(b"checked: " + content)


def test_filters_are_chained_and_guards_see_the_result_of_the_last_filter() -> None:
    log: list[bytes] = []
    memory = AgentMemory.open("memory://", plugins=[Filter(b"1", log), Filter(b"", log), Filter(b"2", log)])
    assert memory.write("a.md", "x").size == 3
    assert log == [b"x", b"x2", b"x2", *[b"checked: x21"] * 3]
    assert memory.read("a.md") == "x21"
    log.clear()
    memory.append("a.md", "y")
    assert (log[0], log[-1]) == (b"y", b"checked: y21")
    log.clear()
    result = memory.edit("a.md", str.upper)
    assert (log[0], log[-1]) == (b"X21Y21", b"checked: X21Y2121")
    assert result.sha256 == hashlib.sha256(b"X21Y2121").hexdigest()
    assert memory.read("a.md") == "X21Y2121"


def test_an_edit_undone_by_a_filter_writes_nothing() -> None:
    class Undo:
        @hookimpl
        def agent_memory_filter_content(self, content: bytes) -> bytes:
            return content.replace(b"!", b"")

    backend = Counting()
    memory = AgentMemory.open(backend, plugins=[Undo()])
    memory.write("a.md", "x")
    backend.requests.clear()
    assert memory.edit("a.md", lambda text: text + "!").size == 1
    assert "write" not in backend.requests


@pytest.mark.parametrize("answer", ["text", bytearray(b"x"), 5, False])
def test_a_filter_that_returns_no_bytes_refuses_the_write(answer: object) -> None:
    class Wrong:
        @hookimpl
        def agent_memory_filter_content(self) -> object:
            return answer

    memory = AgentMemory.open("memory://", plugins=[Wrong()])
    with pytest.raises(OperationDenied, match="not bytes"):
        memory.write("a.md", "x")
    assert not memory.exists("a.md")


class Understated(bytes):
    """Bytes that report a wrong length."""

    def __len__(self) -> int:
        return 0


def test_a_bytes_subclass_from_a_filter_is_used_as_plain_bytes() -> None:
    class Subclassing:
        @hookimpl
        def agent_memory_filter_content(self) -> bytes:
            return Understated(b"12345")

    seen: list[bytes] = []
    memory = AgentMemory.open("memory://", plugins=[Filter(b"", seen), Subclassing()])
    assert memory.write("a.md", "x").size == 5
    assert seen[-1] == b"checked: 12345"
    assert memory.read("a.md") == "12345"
    limited = AgentMemory.open("memory://", plugins=[Subclassing()], limits=Limits(file_bytes=3))
    with pytest.raises(OperationDenied, match="may have 3 bytes, and this one would have 5"):
        limited.write("a.md", "x")


def test_a_filter_that_raises_refuses_the_write_without_its_message() -> None:
    class Crash:
        @hookimpl
        def agent_memory_filter_content(self) -> None:
            raise ValueError("a secret it read")

    memory = AgentMemory.open("memory://", plugins=[Crash()])
    with pytest.raises(OperationDenied, match="ValueError") as denied:
        memory.append("a.md", "x")
    assert "secret" not in str(denied.value)
    assert not memory.exists("a.md")


@guarded
def test_a_denial_reaches_the_caller_unchanged_and_no_further_guard_is_asked(ask: Callable[[Hooks], object]) -> None:
    log: list[str] = []
    veto = OperationDenied("not today")
    with pytest.raises(OperationDenied) as denied:
        ask(Hooks([calls(log, "first"), calls(log, "second", veto)]))
    assert denied.value is veto
    assert log == ["second"]


@guarded
def test_a_guard_that_raises_refuses_the_operation_without_its_message(ask: Callable[[Hooks], object]) -> None:
    crash = ValueError("a secret it read")
    with pytest.raises(OperationDenied, match="ValueError") as denied:
        ask(Hooks([calls([], "guard", crash)]))
    assert denied.value.__cause__ is crash
    assert "secret" not in str(denied.value)


@guarded
def test_a_guard_that_raises_an_error_of_this_package_refuses_with_its_message(ask: Callable[[Hooks], object]) -> None:
    with pytest.raises(OperationDenied, match="over budget") as denied:
        ask(Hooks([calls([], "guard", ConflictError("over budget"))]))
    assert isinstance(denied.value.__cause__, ConflictError)


@guarded
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_guard_reaches_the_caller(
    ask: Callable[[Hooks], object], interrupt: type[BaseException]
) -> None:
    with pytest.raises(interrupt):
        ask(Hooks([calls([], "guard", interrupt())]))


def test_without_plugins_no_hook_is_called() -> None:
    hooks = Hooks()
    assert (hooks.guards, hooks.see_content, hooks.observers) == (False, False, False)
    for call in (*GUARDED, *OBSERVED):
        call(hooks)


# Observers fail open.


@observed
def test_an_observer_that_raises_is_logged_and_the_others_are_still_called(
    tell: Callable[[Hooks], object], caplog: pytest.LogCaptureFixture
) -> None:
    log: list[str] = []
    tell(Hooks([calls(log, "first"), calls(log, "second", ValueError("it broke")), calls(log, "third")]))
    assert log == ["third", "second", "first"]
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("agent_memory", logging.ERROR)
    assert "Plugin" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is ValueError


INTERRUPTS = [KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit]
any_interrupt = pytest.mark.parametrize("interrupt", INTERRUPTS)


@observed
@any_interrupt
def test_after_an_interrupt_in_an_observer_only_the_required_ones_are_called(
    tell: Callable[[Hooks], object], interrupt: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    log: list[str] = []
    first = interrupt("first")
    required, last = calls(log, "required"), calls(log, "required last", ValueError())
    for each in (required, last):
        each.required = True  # type: ignore[attr-defined]
    hooks = Hooks([last, calls(log, "skipped"), required, calls(log, "d", first), calls(log, "e", ValueError())])
    with pytest.raises(interrupt) as raised:
        tell(hooks)
    assert raised.value is first
    assert log == ["e", "d", "required", "required last"]
    assert [record.exc_info and record.exc_info[0] for record in caplog.records] == [ValueError, ValueError]
    assert ["the required plugin 'Plugin' could not report it" in note for note in first.__notes__] == [True]


@any_interrupt
@sync_and_async
def test_a_write_whose_observer_is_interrupted_is_stored_and_reported_to_the_required_ones(
    interrupt: type[BaseException], kind: Kind
) -> None:
    recorder, store = RequiredRecorder(), Counting()
    view = opened(AgentMemory, kind(store), recorder, calls([], "before it", None), Observer(interrupt()))
    with pytest.raises(interrupt):
        perform(view, "write", "a.md", "new")
    assert store.read(Key.tree().join("a.md")).data == b"new"
    assert [outcome.status for _, outcome in recorder.after] == ["ok"]


@any_interrupt
def test_a_failure_is_reported_to_required_observers_although_one_is_interrupted(
    interrupt: type[BaseException],
) -> None:
    recorder = RequiredRecorder()
    memory = AgentMemory.open("memory://", plugins=[recorder, Observer(interrupt())])
    with pytest.raises(interrupt) as raised:
        memory.read("a.md")
    assert isinstance(raised.value.__context__, AgentMemoryFileNotFoundError)
    assert recorder.outcome().error == "file_not_found"


@pytest.mark.filterwarnings(  # Python prints and ignores an interrupt in `__del__`
    "ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"
)
def test_a_required_observer_is_called_although_an_interrupt_comes_anywhere_after_the_change() -> None:
    """At each place of the report: before the first observer, between two of them, in one, and after the last one."""

    recorder, optional, store = RequiredRecorder(), Recorder(), Counting()
    memory = AgentMemory.open(store, plugins=[recorder, optional])
    skipped = 0

    def write(text: str) -> Callable[[], object]:
        return lambda: memory.write("a.md", text)

    for place in range(1, count_places(write("first")) + 1):
        recorder.after.clear()
        optional.after.clear()
        interrupted_at(place, write(str(place)))
        changed = store.read(Key.tree().join("a.md")).data == str(place).encode()
        assert len({operation.id for operation, _ in recorder.after}) == 1 or not changed, place
        assert len(recorder.after) <= 2, place
        assert len(optional.after) <= 1, place
        skipped += changed and not optional.after
    assert skipped, "no place was between the change and the observer that may be skipped"


class Observer:
    """An observer that raises in its first ``times`` calls, and records every call."""

    def __init__(self, error: BaseException, times: int = 1_000) -> None:
        self.error = error
        self.times = times
        self.told: list[str] = []

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation) -> None:
        self.told.append(operation.id)
        if len(self.told) <= self.times:
            raise self.error


class RequiredObserver(Observer):
    required: ClassVar[bool] = True


class RequiredRecorder(Recorder):
    required: ClassVar[bool] = True


@pytest.mark.parametrize(("times", "notes"), [(1, 0), (2, 1), (1_000, 1)])
def test_an_interrupted_required_observer_is_called_once_more(times: int, notes: int) -> None:
    recorder, observer = RequiredRecorder(), RequiredObserver(KeyboardInterrupt(), times)
    memory = AgentMemory.open("memory://", plugins=[observer, recorder])
    with pytest.raises(KeyboardInterrupt) as raised:
        memory.write("a.md", "x")
    assert observer.told == [recorder.after[0][0].id] * 2
    assert len(getattr(raised.value, "__notes__", [])) == notes
    assert len(recorder.after) == 1


def test_an_interrupted_observer_that_is_not_required_is_called_only_once() -> None:
    observer = Observer(KeyboardInterrupt(), 1)
    memory = AgentMemory.open("memory://", plugins=[observer])
    with pytest.raises(KeyboardInterrupt):
        memory.write("a.md", "x")
    assert len(observer.told) == 1


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_listening_does_not_stop_the_other_observers(interrupt: type[BaseException]) -> None:
    class Listener(Observer):
        def listening(self) -> bool:
            raise self.error

    recorder = Recorder()
    memory = AgentMemory.open("memory://", plugins=[recorder, Listener(interrupt(), 0)])
    with pytest.raises(interrupt):
        memory.write("a.md", "x")
    assert [outcome.status for _, outcome in recorder.after] == ["ok"]


@any_interrupt
@sync_and_async
@pytest.mark.parametrize("hook", ["before_operation", "filter_content", "check_content"])
def test_an_interrupt_in_a_guard_prevents_the_write_and_is_reported_to_observers(
    interrupt: type[BaseException], kind: Kind, hook: str
) -> None:
    class Guard:
        pass

    def stop(self: Guard, operation: Operation) -> None:  # noqa: ARG001 - the hook's
        raise interrupt

    setattr(Guard, f"agent_memory_{hook}", hookimpl(stop))
    recorder, store = Recorder(), Counting()
    view = opened(AgentMemory, kind(store), recorder, Guard())
    store.requests.clear()
    with pytest.raises(interrupt):
        perform(view, "write", "a.md", "new")
    assert store.requests == Counter()
    assert (recorder.outcome().status, recorder.outcome().error) == ("error", "interrupted")


class Required:
    """A required observer: an operation is not complete without its report."""

    required: ClassVar[bool] = True

    def __init__(self, error: Exception) -> None:
        self.error = error

    @hookimpl
    def agent_memory_after_operation(self) -> None:
        raise self.error

    @hookimpl
    def agent_memory_key_rejected(self) -> None:
        raise self.error


def test_a_failing_required_observer_stops_the_caller_after_the_others_were_called() -> None:
    log: list[str] = []
    crash = ValueError("disk full")
    hooks = Hooks([calls(log, "first"), Required(crash), calls(log, "last", ValueError("it broke"))])
    with pytest.raises(OutcomeUnknownError, match="Required") as unknown:
        hooks.report(OPERATION, OUTCOME)()
    assert unknown.value.__cause__ is crash
    assert log == ["last", "first"]


@pytest.mark.parametrize("cls", [AgentMemory, AsyncAgentMemory])
@sync_and_async
def test_a_write_that_a_required_observer_could_not_report_is_stored(cls: type[AgentMemory], kind: Kind) -> None:
    store = Counting()
    view = opened(cls, kind(store), Required(ValueError("disk full")))
    with pytest.raises(OutcomeUnknownError):
        perform(view, "write", "a.md", "new")
    assert store.read(Key.tree().join("a.md")).data == b"new"


def test_a_failure_that_cannot_be_reported_still_raises_its_own_error() -> None:
    memory = AgentMemory.open("memory://", plugins=[Required(ValueError("disk full"))])
    with pytest.raises(AgentMemoryFileNotFoundError):
        memory.read("a.md")


@pytest.mark.parametrize("method", ["read", "subtree", "list"])
def test_a_refused_name_that_cannot_be_reported_still_raises_its_own_error(method: str) -> None:
    memory = AgentMemory.open("memory://", plugins=[Required(ValueError("disk full"))])
    with pytest.raises(PathTraversalError):
        perform(memory, method, "../a")


def test_a_refused_agent_id_that_cannot_be_reported_still_raises_its_own_error() -> None:
    service = AgentMemoryService("memory://", plugins=[Required(ValueError("disk full"))])
    with pytest.raises(InvalidAgentIdError):
        service.agent("..")


# Valid and invalid plugins.


def test_the_hooks_and_their_arguments_are_the_documented_ones() -> None:
    specs = {name: spec for name, spec in vars(hookspecs).items() if name.startswith("agent_memory_")}
    assert {name: list(inspect.signature(spec).parameters) for name, spec in specs.items()} == {
        "agent_memory_register_backends": ["register"],
        "agent_memory_before_operation": ["operation"],
        "agent_memory_filter_content": ["operation", "content"],
        "agent_memory_check_content": ["operation", "content"],
        "agent_memory_check_read": ["operation", "content", "start", "size"],
        "agent_memory_check_size": ["operation", "size"],
        "agent_memory_operation_context": ["operation"],
        "agent_memory_after_operation": ["operation", "outcome"],
        "agent_memory_key_rejected": ["agent", "text", "reason", "actor"],
    }
    assert all(inspect.getdoc(spec) for spec in specs.values())


def test_the_fields_of_operation_and_outcome_are_the_documented_ones() -> None:
    assert [field.name for field in dataclasses.fields(Operation)] == [
        *("id", "time", "kind", "agent", "path", "target", "size", "actor", "tool_call_id", "remote")
    ]
    assert [field.name for field in dataclasses.fields(Outcome)] == [
        *("status", "duration", "size", "etag", "sha256", "before_sha256", "attempts", "files", "skipped", "error"),
        *("replayed", "version_id", "versions_searched", "storage_duration"),
    ]


class Misspelt:
    @hookimpl
    def agent_memory_before_operations(self, operation: Operation) -> None: ...


class WrongArgument:
    @hookimpl
    def agent_memory_before_operation(self, operation: Operation, path: str) -> None: ...


class Wrapper:
    @hookimpl(wrapper=True)
    def agent_memory_before_operation(self) -> Iterator[None]:
        yield


class OldWrapper:
    @hookimpl(hookwrapper=True)
    def agent_memory_after_operation(self) -> Iterator[None]:
        yield


class Asynchronous:
    @hookimpl
    async def agent_memory_before_operation(self) -> None:
        raise OperationDenied("never awaited")


class AsynchronousObserver:
    @hookimpl
    async def agent_memory_after_operation(self, outcome: Outcome) -> None: ...


class AsynchronousStatic:
    @staticmethod
    @hookimpl
    async def agent_memory_key_rejected(text: str) -> None: ...


class Generator:
    @hookimpl
    def agent_memory_before_operation(self) -> Iterator[None]:
        yield
        raise OperationDenied("never run")


class AsynchronousGenerator:
    @hookimpl
    async def agent_memory_check_content(self) -> AsyncIterator[None]:
        yield
        raise OperationDenied("never run")


@pytest.mark.parametrize(
    "plugin",
    [
        *(Misspelt, WrongArgument, Wrapper, OldWrapper),
        *(Asynchronous, AsynchronousObserver, AsynchronousStatic, Generator, AsynchronousGenerator),
    ],
)
@pytest.mark.parametrize(
    "opens",
    [
        lambda plugin: Hooks([plugin]),
        lambda plugin: AgentMemory.open("memory://", plugins=[plugin]),
        lambda plugin: AsyncAgentMemoryService("memory://", plugins=[calls([], "sound"), plugin]),
    ],
    ids=["hooks", "open", "service"],
)
def test_a_plugin_whose_hook_would_never_run_is_refused(plugin: type, opens: Callable[[object], object]) -> None:
    with pytest.raises(pluggy.PluginValidationError):
        opens(plugin())


def test_the_refusal_of_a_plugin_names_the_plugin_and_the_fault() -> None:
    with pytest.raises(pluggy.PluginValidationError, match=r"'Wrapper'.*agent_memory_before_operation.*wrapper"):
        Hooks([Wrapper()])
    with pytest.raises(pluggy.PluginValidationError, match=r"'Asynchronous'.*async def"):
        Hooks([Asynchronous()])


def test_a_module_and_two_instances_of_one_class_are_valid_plugins() -> None:
    log: list[str] = []
    module = types.ModuleType("a_plugin")
    vars(module)["agent_memory_before_operation"] = hookimpl(lambda: log.append("module"))
    Hooks([calls(log, "one"), module, calls(log, "another")]).before(OPERATION)
    assert log == ["another", "module", "one"]


def test_a_plugin_is_called_only_for_its_own_service() -> None:
    mine, yours = Recorder(), Recorder()
    with AgentMemoryService("memory://", plugins=[mine]) as one, AgentMemoryService("memory://", plugins=[yours]):
        one.write_memory_file("bob", "a.md", "x")
    assert (len(mine.after), len(yours.after)) == (1, 0)


# Cancellation.


class Gate(MemoryBackend):
    """A backend whose reads wait until ``open`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.open = threading.Event(), threading.Event()

    def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        self.reached.set()
        assert self.open.wait(SECONDS)
        return super().read(key, start, end, when)


class AsyncGate(AsyncTwin):
    """An async backend whose reads never return."""

    def __init__(self) -> None:
        super().__init__(MemoryBackend())
        self.reached = threading.Event()

    async def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        self.reached.set()
        await asyncio.Event().wait()
        return await super().read(key, start, end, when)


async def cancelled(operation: Coroutine[Any, Any, object], *stages: threading.Event) -> None:
    """Start an operation and cancel it once at each stage, when the stage is reached."""
    task = asyncio.ensure_future(operation)
    for stage in stages:
        assert await asyncio.to_thread(stage.wait, SECONDS)
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_cancelled_operation_on_an_async_backend_is_reported_once_as_unknown() -> None:
    recorder, gate = Recorder(), AsyncGate()
    asyncio.run(cancelled(AsyncAgentMemory.open(gate, plugins=[recorder]).read("a.md"), gate.reached))
    assert (recorder.outcome().status, recorder.outcome().error) == ("unknown", "interrupted")


def test_a_cancelled_operation_on_a_blocking_backend_is_reported_once_with_its_outcome() -> None:
    recorder, gate = Recorder(), Gate()
    gate.write(Key.tree().join("a.md"), b"text")
    memory = AsyncAgentMemory.open(gate, plugins=[recorder])

    async def cancel_then_go_on() -> None:
        await cancelled(memory.read("a.md"), gate.reached)
        assert recorder.after == []
        gate.open.set()
        assert await asyncio.to_thread(recorder.reported.acquire, timeout=SECONDS)
        await memory.exists("a.md")

    asyncio.run(cancel_then_go_on())
    assert [operation.kind for operation in recorder.before] == ["read", "exists"]
    ended = [(operation.kind, outcome.status) for operation, outcome in recorder.after]
    assert ended == [("read", "ok"), ("exists", "ok")]


class Slow:
    """The base of a slow guard or observer: signals ``reached``, then waits for ``open``."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.open.wait(SECONDS)


@pytest.mark.parametrize("is_async", [True, False])
def test_an_operation_cancelled_during_a_guard_is_reported_once_and_does_nothing(is_async: bool) -> None:
    class Guard(Slow):
        @hookimpl
        def agent_memory_before_operation(self) -> None:
            self.wait()

    recorder, guard, store = Recorder(), Guard(), Counting()
    memory = AsyncAgentMemory.open(AsyncTwin(store) if is_async else store, plugins=[recorder, guard])

    async def cancel_and_let_the_guard_end() -> None:
        call = asyncio.ensure_future(memory.write("a.md", "x"))
        assert await asyncio.to_thread(guard.reached.wait, SECONDS)
        call.cancel()
        await asyncio.sleep(0)
        guard.open.set()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await asyncio.to_thread(recorder.reported.acquire, timeout=SECONDS)

    asyncio.run(cancel_and_let_the_guard_end())
    assert (recorder.outcome().status, recorder.outcome().error) == ("error", "interrupted")
    assert store.requests == Counter()


def test_an_operation_cancelled_again_during_its_report_is_reported_once() -> None:
    class Observer(Slow):
        @hookimpl
        def agent_memory_after_operation(self) -> None:
            self.wait()

    recorder, observer, gate = Recorder(), Observer(), AsyncGate()
    memory = AsyncAgentMemory.open(gate, plugins=[recorder, observer])

    async def cancel_twice_and_let_the_observer_end() -> None:
        await cancelled(memory.read("a.md"), gate.reached, observer.reached)
        observer.open.set()
        assert await asyncio.to_thread(recorder.reported.acquire, timeout=SECONDS)

    asyncio.run(cancel_twice_and_let_the_observer_end())
    assert recorder.outcome().status == "unknown"


def test_a_success_cancelled_during_its_report_is_reported_once_as_a_success() -> None:
    class Observer(Slow):
        @hookimpl
        def agent_memory_after_operation(self) -> None:
            self.wait()

    recorder, observer = Recorder(), Observer()
    memory = AsyncAgentMemory.open(AsyncTwin(MemoryBackend()), plugins=[recorder, observer])

    async def cancel_and_let_the_observer_end() -> None:
        await cancelled(memory.write("a.md", "x"), observer.reached)
        observer.open.set()
        assert await asyncio.to_thread(recorder.reported.acquire, timeout=SECONDS)

    asyncio.run(cancel_and_let_the_observer_end())
    assert recorder.outcome().status == "ok"


def test_a_report_that_waits_for_a_thread_survives_a_second_cancellation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Observer:
        told = threading.Event()

        @hookimpl
        def agent_memory_after_operation(self) -> None:
            self.told.set()

    monkeypatch.setattr("agent_memory.runtime.threads.THREADS", 1)
    monkeypatch.setattr("agent_memory.runtime.threads._executors", {})
    observer, gate, busy = Observer(), AsyncGate(), Slow()
    memory = AsyncAgentMemory.open(gate, plugins=[observer])

    async def cancel_twice_while_the_only_thread_is_busy() -> None:
        other = asyncio.ensure_future(in_thread(busy.wait))
        task = asyncio.ensure_future(memory.read("a.md"))
        for stage in (gate.reached, busy.reached):
            assert await asyncio.to_thread(stage.wait, SECONDS)
            task.cancel()
            await asyncio.sleep(0)
        busy.open.set()
        await other
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(observer.told.wait, SECONDS)

    asyncio.run(cancel_twice_while_the_only_thread_is_busy())


def test_a_failing_required_observer_does_not_swallow_a_cancellation() -> None:
    gate = AsyncGate()
    memory = AsyncAgentMemory.open(gate, plugins=[Required(ValueError("disk full"))])
    asyncio.run(cancelled(memory.read("a.md"), gate.reached))


def test_an_interrupt_in_the_change_function_is_reported_once_as_unknown() -> None:
    recorder = Recorder()
    memory = AgentMemory.open("memory://", plugins=[recorder])
    memory.write("a.md", "x")
    recorder.after.clear()

    def interrupt(_: str) -> NoReturn:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        memory.edit("a.md", interrupt)
    assert (recorder.outcome().status, recorder.outcome().error) == ("unknown", "interrupted")


def test_an_error_in_the_callers_function_is_reported_once_by_its_type() -> None:
    recorder = Recorder()
    memory = AgentMemory.open("memory://", plugins=[recorder])
    memory.write("a.md", "x")
    recorder.after.clear()
    with pytest.raises(ZeroDivisionError):
        memory.edit("a.md", lambda _: str(1 / 0))
    assert (recorder.outcome().status, recorder.outcome().error) == ("error", "ZeroDivisionError")
    assert not issubclass(ZeroDivisionError, AgentMemoryError)


def test_a_guard_that_returns_a_value_refuses_the_operation() -> None:
    class Returns:
        @hookimpl
        def agent_memory_before_operation(self) -> bool:
            return False

    with AgentMemory.open("memory://", plugins=[Returns()]) as memory:
        with pytest.raises(OperationDenied, match="guards raise to refuse"):
            memory.write("a.md", "x")


def test_a_hook_without_its_decorator_is_refused() -> None:
    class Unmarked:
        def agent_memory_before_operation(self) -> None: ...

    with pytest.raises(pluggy.PluginValidationError, match="without @hookimpl"):
        AgentMemory.open("memory://", plugins=[Unmarked()])


class Choosy:
    """An observer whose ``listening`` decides whether it receives successes."""

    def __init__(self, answer: Callable[[], bool]) -> None:
        self.listening = answer
        self.heard: list[str] = []

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:
        self.heard.append(f"{operation.kind} {outcome.status}")


def test_an_observer_that_does_not_listen_receives_only_failures() -> None:
    choosy = Choosy(lambda: False)
    memory = AgentMemory.open(MemoryBackend(), plugins=[choosy])
    memory.write("a.md", "x")
    with pytest.raises(AgentMemoryFileNotFoundError):
        memory.read("missing.md")
    assert choosy.heard == ["read error"]


def test_an_observer_whose_listening_fails_receives_the_report(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> bool:
        raise RuntimeError("broken")

    choosy = Choosy(fail)
    AgentMemory.open(MemoryBackend(), plugins=[choosy]).write("a.md", "x")
    assert choosy.heard == ["write ok"]
    assert "the plugin 'Choosy' failed in listening()" in caplog.text


def test_a_listening_attribute_that_is_no_method_is_refused() -> None:
    with pytest.raises(pluggy.PluginValidationError, match="listening must be a method"):
        AgentMemory.open(MemoryBackend(), plugins=[Choosy(True)])  # type: ignore[arg-type]


def test_the_log_names_a_plugin_that_is_slow_in_a_hook(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("agent_memory.core.hooks.SLOW_SECONDS", 0.0)
    with AgentMemory.open("memory://", plugins=[Recorder()]) as memory:
        memory.write("a.md", "x")
    slow = [record.getMessage() for record in caplog.records if "took" in record.getMessage()]
    assert {line.rpartition(" ")[2] for line in slow} == {
        "agent_memory_before_operation", "agent_memory_check_content", "agent_memory_after_operation",
    }  # fmt: skip
    assert "the plugin 'Recorder' took 0.0 s in agent_memory_before_operation" in slow


class Buffered:
    """A plugin that writes in ``flush``, and fails there."""

    @hookimpl
    def agent_memory_after_operation(self) -> None:
        pass

    def flush(self) -> None:
        raise OSError("the disk is full")


class Closing:
    """A plugin without a base class; it has no equality and is not hashable."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, is_shared: bool = False) -> None:
        self.is_shared = is_shared
        self.closed = 0

    def __eq__(self, other: object) -> bool:
        return self is other

    def close(self) -> None:
        self.closed += 1

    @hookimpl
    def agent_memory_after_operation(self) -> None:
        pass


@pytest.mark.parametrize(("is_shared", "closed"), [(False, 1), (True, 0)])
def test_the_last_service_that_is_closed_closes_a_plugin_unless_it_is_shared(is_shared: bool, closed: int) -> None:
    plugin = Closing(is_shared)
    first, second = (AgentMemoryService("memory://", plugins=[plugin]) for _ in range(2))
    first.close()
    first.close()
    assert plugin.closed == 0
    second.close()
    second.close()
    assert plugin.closed == closed


def test_a_service_that_was_dropped_keeps_no_plugin_open() -> None:
    plugin = Closing()
    AgentMemoryService("memory://", plugins=[plugin])
    gc.collect()
    with AgentMemoryService("memory://", plugins=[plugin]):
        pass
    assert plugin.closed == 1


def test_a_failure_in_flush_is_logged_and_the_service_closes(caplog: pytest.LogCaptureFixture) -> None:
    with AgentMemoryService("memory://", plugins=[Buffered()]) as service:
        service.write_memory_file("bob", "a.md", "text")
    (record,) = caplog.records
    assert record.getMessage() == "the plugin 'Buffered' failed in flush()"
    assert record.exc_info
    assert str(record.exc_info[1]) == "the disk is full"


def test_a_service_that_is_collected_while_another_one_opens_blocks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    other = AgentMemory.open("memory://")

    class Collecting(weakref.WeakSet[Hooks]):
        """A set whose creation makes the garbage collector run the finaliser of another service."""

        def __init__(self) -> None:
            other.close()
            super().__init__()

    monkeypatch.setattr(hooks, "WeakSet", Collecting)
    opening = threading.Thread(target=AgentMemory.open, args=("memory://",), daemon=True)
    opening.start()
    opening.join(10)
    assert not opening.is_alive()
