"""The limits plugin: no sequence of operations can exceed its limits."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent_memory import (
    SHA256,
    AgentMemory,
    AgentMemoryError,
    AgentMemoryService,
    AsyncAgentMemory,
    InvalidContentError,
    Operation,
    OperationDenied,
    Outcome,
    VersionLimits,
    hookimpl,
)
from agent_memory.backend import ANY, ETag, NewOrigin, Page, WriteWhen
from agent_memory.key import Key
from agent_memory.plugins import _usage
from agent_memory.plugins._agent_usage import Planned, PlannedChange
from agent_memory.plugins.limits import LimitsPlugin
from agent_memory_memory import MemoryBackend
from tests.support.servers import S3Server

_numbers = itertools.count()


@pytest.fixture
def memory() -> AgentMemory:
    return AgentMemory.open("memory://", plugins=[LimitsPlugin(10)])


@pytest.mark.parametrize("method", ["write", "create", "append"])
def test_a_write_may_reach_the_limit_but_not_exceed_it(memory: AgentMemory, method: str) -> None:
    with pytest.raises(OperationDenied, match=r"11 bytes.* 10\b"):
        getattr(memory, method)("a.md", "x" * 11)
    assert not memory.exists("a.md")
    getattr(memory, method)("a.md", "x" * 10)
    assert memory.stat("a.md").size == 10


def test_an_edit_may_reach_the_limit_but_not_exceed_it(memory: AgentMemory) -> None:
    memory.write("a.md", "x")
    with pytest.raises(OperationDenied):
        memory.edit("a.md", lambda text: text * 11)
    assert memory.read("a.md") == "x"
    memory.edit("a.md", lambda text: text * 10)
    assert memory.read("a.md") == "x" * 10


def test_a_limit_counts_bytes(memory: AgentMemory) -> None:
    memory.write("a.md", "\u00e9" * 5)
    with pytest.raises(OperationDenied):
        memory.write("a.md", "\u00e9" * 5 + "x")
    with pytest.raises(OperationDenied):
        memory.write("a.md", b"\xff" * 11)


def test_a_limit_of_zero_allows_only_empty_files() -> None:
    memory = AgentMemory.open("memory://", plugins=[LimitsPlugin(0)])
    memory.write("a.md", "")
    with pytest.raises(OperationDenied):
        memory.append("a.md", "x")


@pytest.mark.parametrize("limit", [True, 1.5, float("nan"), "10"])
def test_a_limit_that_is_no_integer_is_refused(limit: Any) -> None:
    with pytest.raises(ValueError, match="max_file_bytes must be a whole number of at least 0"):
        LimitsPlugin(limit)


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 0"):
        LimitsPlugin(-1)


def test_a_refusal_names_the_path_but_no_content(memory: AgentMemory) -> None:
    with pytest.raises(OperationDenied) as denied:
        memory.write("notes/a.md", "secret" * 200)
    assert str(denied.value).startswith("'notes/a.md': 1,200 bytes")
    assert "secret" not in str(denied.value)


def test_an_append_counts_the_existing_content(memory: AgentMemory) -> None:
    memory.append("a.md", "x" * 6)
    memory.append("a.md", "x" * 4)
    with pytest.raises(OperationDenied):
        memory.append("a.md", "x")
    assert memory.read("a.md") == "x" * 10


@pytest.mark.parametrize("see", ["read", "read_bytes", "stat", "exists"])
def test_an_append_counts_other_clients_content_after_a_read_or_stat(see: str) -> None:
    store = MemoryBackend()
    AgentMemory.open(store).write("a.md", "x" * 8)
    memory = AgentMemory.open(store, plugins=[LimitsPlugin(10)])
    getattr(memory, see)("a.md")
    with pytest.raises(OperationDenied):
        memory.append("a.md", "xxx")


def test_an_unseen_file_can_exceed_the_limit_by_one_append_at_most() -> None:
    store = MemoryBackend()
    AgentMemory.open(store).write("a.md", "x" * 8)
    memory = AgentMemory.open(store, plugins=[LimitsPlugin(10)])
    memory.append("a.md", "x" * 9)
    with pytest.raises(OperationDenied):
        memory.append("a.md", "x")
    assert memory.stat("a.md").size == 17


@pytest.mark.parametrize(
    "vanish",
    [
        lambda memory: memory.delete("a.md"),
        lambda memory: memory.delete_tree(""),
        lambda memory: memory.rename("a.md", "b.md"),
        lambda memory: memory.write("a.md", ""),
    ],
    ids=["delete", "delete_tree", "rename", "write"],
)
def test_a_removed_file_does_not_count(memory: AgentMemory, vanish: Callable[[AgentMemory], object]) -> None:
    memory.write("a.md", "x" * 10)
    vanish(memory)
    memory.append("a.md", "x" * 10)
    assert memory.read("a.md") == "x" * 10


@pytest.mark.parametrize("see", ["read", "stat"])
def test_a_file_removed_by_another_client_does_not_count_after_a_read_or_stat(see: str) -> None:
    store = MemoryBackend()
    memory = AgentMemory.open(store, plugins=[LimitsPlugin(10)])
    memory.write("a.md", "x" * 10)
    AgentMemory.open(store).delete("a.md")
    with contextlib.suppress(FileNotFoundError):
        getattr(memory, see)("a.md")
    memory.append("a.md", "x" * 10)
    assert memory.read("a.md") == "x" * 10


@pytest.mark.parametrize(
    "distract",
    [
        lambda memory: memory.delete("a.md", when=SHA256("0" * 64)),
        lambda memory: memory.read_only().delete("a.md"),
        lambda memory: memory.delete_tree("missing"),
        lambda memory: memory.rename("missing", "b.md"),
        lambda memory: memory.copy("missing", "b.md"),
        lambda memory: memory.read_only().delete_tree(""),
        lambda memory: memory.copy("a.md", "b.md"),
        lambda memory: memory.write("other.md", ""),
        lambda memory: memory.rename("other.md", "another.md"),
        lambda memory: memory.delete_tree("other"),
        lambda memory: memory.write("a.md", "x" * 11),
        lambda memory: memory.append("a.md", "x"),
        lambda memory: memory.create("a.md", "x"),
        lambda memory: memory.edit("a.md", lambda text: text + "x"),
    ],
    ids=[
        *("conflicting delete", "denied delete", "failed delete_tree", "failed rename", "failed copy"),
        *("denied delete_tree", "copy", "other write", "other rename", "other delete_tree"),
        *("vetoed write", "vetoed append", "failed create", "vetoed edit"),
    ],
)
def test_an_operation_in_between_does_not_free_any_limit(
    memory: AgentMemory, distract: Callable[[AgentMemory], object]
) -> None:
    memory.write("other.md", "")
    memory.write("other/a.md", "")
    memory.write("a.md", "x" * 10)
    with contextlib.suppress(AgentMemoryError):
        distract(memory)
    with pytest.raises(OperationDenied):
        memory.append("a.md", "x")


@pytest.mark.parametrize("move", ["rename", "copy"])
def test_a_renamed_or_copied_file_counts_under_its_new_name(memory: AgentMemory, move: str) -> None:
    memory.write("a.md", "x" * 10)
    getattr(memory, move)("a.md", "b.md")
    with pytest.raises(OperationDenied):
        memory.append("b.md", "x")


def test_files_of_the_same_name_are_counted_separately() -> None:
    with AgentMemoryService("memory://", plugins=[LimitsPlugin(10)]) as service:
        service.append_to_memory_file("bob", "a.md", "x" * 10)
        service.append_to_memory_file("eve", "a.md", "x" * 10)
        bob = service.agent("bob")
        bob.subtree("notes").append("a.md", "x" * 10)
        with pytest.raises(OperationDenied):
            bob.append("notes/a.md", "x")


def test_async_callers_have_the_same_limits() -> None:
    memory = AsyncAgentMemory.open("memory://", plugins=[LimitsPlugin(10)])

    async def fill() -> None:
        await memory.append("a.md", "x" * 10)
        with pytest.raises(OperationDenied):
            await memory.append("a.md", "x")

    asyncio.run(fill())


def _appended(path: str, size: int) -> tuple[Operation, Outcome]:
    operation = Operation(id="1", time=1.0, kind="append", agent=None, path=path, size=size)
    return operation, Outcome(status="ok", duration=0.0, size=size)


def test_memory_is_bounded_and_an_evicted_file_counts_at_least_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_memory.plugins._sizes._REMEMBERED", 3)
    monkeypatch.setattr("agent_memory.plugins._sizes._BUCKETS", 2)
    plugin = LimitsPlugin(10)
    told = [_appended(f"{number}.md", 10) for number in range(50)]
    for operation, outcome in told:
        plugin.agent_memory_before_operation(operation)
        plugin.agent_memory_after_operation(operation, outcome)
    for operation, _ in told:
        with pytest.raises(OperationDenied):
            plugin.agent_memory_check_content(operation, b"x")
    assert plugin._sizes
    assert len(plugin._sizes._known) == 3
    assert len(plugin._sizes._evicted) <= 2


@pytest.mark.parametrize("move", ["rename", "copy"])
def test_moving_more_files_than_are_remembered_still_tracks_the_remembered_ones(
    memory: AgentMemory, move: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("agent_memory.plugins._sizes._REMEMBERED", 3)
    for number in range(3):
        memory.write(f"dir/{number}.md", "x" * 10)
    getattr(memory, move)("dir", "new")
    assert [record for record in caplog.records if record.exc_info] == []
    with pytest.raises(OperationDenied):
        memory.append("new/2.md", "x")


def opened(url: str, **limits: Any) -> AgentMemoryService:
    return AgentMemoryService(url, plugins=[LimitsPlugin(root=url, **limits)])


def plain(url: str) -> AgentMemoryService:
    return AgentMemoryService(url)


@pytest.fixture
def url() -> str:
    return f"memory://limits-{next(_numbers)}"


@pytest.mark.parametrize("method", ["write", "create", "append"])
def test_an_agent_cannot_exceed_its_number_of_files(url: str, method: str) -> None:
    service = opened(url, max_files=2)
    bob = service.agent("bob")
    getattr(bob, method)("a.md", "x")
    getattr(bob, method)("b.md", "x")
    with pytest.raises(OperationDenied, match="3 files; an agent may have 2"):
        getattr(bob, method)("c.md", "x")
    bob.write("a.md", "another")
    bob.append("b.md", "more")
    getattr(service.agent("eve"), method)("a.md", "x")
    bob.delete("a.md")
    getattr(bob, method)("c.md", "x")
    assert [entry.path for entry in bob.list()] == ["b.md", "c.md"]


def test_an_edit_that_deletes_its_file_frees_its_room(url: str) -> None:
    bob = opened(url, max_files=1, max_bytes=5).agent("bob")
    bob.write("a.md", "12345")
    bob.edit("a.md", lambda _: None)
    bob.edit("b.md", lambda text: text + "45", missing="123")
    with pytest.raises(OperationDenied):
        bob.edit("c.md", lambda text: text, missing="")


def test_a_restored_file_counts(url: str) -> None:
    bob = opened(url, max_bytes=10).agent("bob")
    bob.versions.set_limits(VersionLimits())
    bob.write("a.md", "12345678")
    bob.write("a.md", "1")
    large = bob.versions.list("a.md")[1].id
    bob.write("b.md", "1234")
    with pytest.raises(OperationDenied, match="12 bytes in all; an agent may have 10"):
        bob.versions.restore("a.md", large)
    bob.write("b.md", "")
    bob.versions.restore("a.md", large)
    with pytest.raises(OperationDenied):
        bob.append("b.md", "123")
    with pytest.raises(OperationDenied, match="8 bytes; a file may have 7"):
        AgentMemoryService(url, plugins=[LimitsPlugin(max_file_bytes=7)]).agent("bob").versions.restore("a.md", large)


def test_an_agent_cannot_exceed_its_number_of_bytes(url: str) -> None:
    bob = opened(url, max_bytes=10).agent("bob")
    bob.write("a.md", "12345")
    bob.append("b.md", "1234")
    for change in (
        lambda: bob.append("b.md", "56"),
        lambda: bob.write("a.md", "1234567"),
        lambda: bob.create("c.md", "12"),
        lambda: bob.edit("a.md", lambda text: text + "67"),
        lambda: bob.copy("a.md", "c.md"),
    ):
        with pytest.raises(OperationDenied, match="bytes in all; an agent may have 10"):
            change()
    bob.edit("a.md", lambda text: text + "6")
    bob.write("a.md", "")
    bob.write("c.md", "123456")
    bob.rename("c.md", "d.md")
    with pytest.raises(OperationDenied):
        bob.append("d.md", "7")
    bob.delete_tree("")
    bob.write("e.md", "1234567890")


def test_existing_files_are_counted(url: str) -> None:
    plain(url).write_memory_file("bob", "a.md", "12345")
    bob = opened(url, max_files=2, max_bytes=10).agent("bob")
    with pytest.raises(OperationDenied):
        bob.append("a.md", "678901")
    bob.append("a.md", "67890")
    bob.write("b.md", "")
    with pytest.raises(OperationDenied):
        bob.write("c.md", "")


def test_an_agent_that_is_over_its_limits_may_still_shrink(url: str) -> None:
    plain(url).write_memory_file("bob", "a.md", "x" * 20)
    plain(url).write_memory_file("bob", "b.md", "x" * 20)
    bob = opened(url, max_files=1, max_bytes=10).agent("bob")
    bob.write("a.md", "x" * 19)
    with pytest.raises(OperationDenied):
        bob.append("a.md", "x")
    bob.delete("b.md")
    bob.write("a.md", "x" * 10)


def test_the_plugin_lists_the_files_again_before_a_refusal_and_otherwise_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr(_usage.time, "monotonic", lambda: now)  # type: ignore[attr-defined]
    backend = Listing()
    service = AgentMemoryService(backend, plugins=[LimitsPlugin(max_files=3, root=backend)])
    other = AgentMemoryService(backend)
    bob = service.agent("bob")
    for turn in range(20):
        bob.append("a.md", f"{turn}")
    assert backend.listings == 1
    for path in ("b.md", "c.md"):
        other.write_memory_file("bob", path, "x")
    bob.write("d.md", "x")  # the plugin has not seen the other client's files
    bob.delete("d.md")
    now += 10
    bob.write("d.md", "x")
    assert backend.listings == 1
    bob.delete("d.md")
    now += 300
    with pytest.raises(OperationDenied):
        bob.write("d.md", "x")
    assert backend.listings == 2
    other.delete_memory_file("bob", "b.md")
    with pytest.raises(OperationDenied):
        bob.write("d.md", "x")
    assert backend.listings == 2, "it had counted just now"
    now += 10
    bob.write("d.md", "x")
    assert backend.listings == 3


class Listing(MemoryBackend):
    """A backend that counts its listings."""

    def __init__(self) -> None:
        super().__init__()
        self.listings = 0

    def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        self.listings += 1
        return super().list(prefix, recursive=recursive, after=after, limit=limit)


def test_concurrent_threads_of_one_service_do_not_exceed_the_limits(url: str) -> None:
    for _ in range(20):
        service = opened(f"{url}-{next(_numbers)}", max_files=5)
        barrier = threading.Barrier(8)

        def create(number: int, service: AgentMemoryService = service, barrier: threading.Barrier = barrier) -> bool:
            barrier.wait(60)
            try:
                service.create_memory_file("bob", f"{number}.md", "x")
            except OperationDenied:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(create, range(8))) == 5
        assert len(service.list_memory_files("bob")) == 5


@pytest.mark.parametrize("limits", [{"max_files": 1}, {"max_bytes": 1}, {"max_files": -1, "root": "memory://"}])
def test_invalid_limits_of_agents_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"root=|at least 0"):
        LimitsPlugin(**limits)


def test_the_limits_of_agents_hold_on_s3(ministack: S3Server) -> None:
    url, options = ministack.new_url(), ministack.options
    with (
        LimitsPlugin(max_files=2, root=url, storage_options=options) as limits,
        AgentMemoryService(url, storage_options=options, plugins=[limits]) as service,
    ):
        service.write_memory_file("bob", "a.md", "x")
        service.write_memory_file("bob", "b.md", "x")
        with pytest.raises(OperationDenied):
            service.write_memory_file("bob", "c.md", "x")


class Slow(MemoryBackend):
    """A backend that waits in a write of ``x`` until ``go_on`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.slow = False

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        if self.slow and key.name == "x":
            self.begun.set()
            assert self.go_on.wait(60)
        return super().write(key, data, when, origin)


def test_a_file_deleted_during_its_rewrite_still_counts() -> None:
    backend = Slow()
    service = AgentMemoryService(backend, plugins=[LimitsPlugin(max_files=1, max_bytes=100, root=backend)])
    bob = service.agent("bob")
    bob.write("x", "1" * 100)
    backend.slow = True
    rewriting = threading.Thread(target=bob.write, args=("x", "2" * 100))
    rewriting.start()
    assert backend.begun.wait(60)
    bob.delete("x")
    with pytest.raises(OperationDenied):
        bob.write("y", "3" * 100)
    backend.go_on.set()
    rewriting.join(60)
    assert [entry.path for entry in bob.list()] == ["x"]


class Late:
    """An observer that delays the later observers for one kind of operation until ``go_on`` is set."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.held, self.go_on = threading.Event(), threading.Event()

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:  # noqa: ARG002 - the hook's
        if operation.kind == self.kind and not self.held.is_set():
            self.held.set()
            assert self.go_on.wait(60)


@pytest.mark.parametrize("kind", ["append", "delete"])
def test_operations_reported_in_another_order_do_not_free_any_limit(url: str, kind: str) -> None:
    late = Late(kind)
    limits = LimitsPlugin(root=url, max_files=2, max_bytes=100)
    bob = AgentMemoryService(url, plugins=[limits, late]).agent("bob")
    bob.write("a.md", "x" * 10)
    first = {"append": lambda: bob.append("a.md", "y" * 10), "delete": lambda: bob.delete("a.md")}[kind]
    held = threading.Thread(target=first)
    held.start()
    assert late.held.wait(60)
    if kind == "append":
        limits_left = 100 - 80
        bob.edit("a.md", lambda text: text + "z" * 60)
    else:
        limits_left = 100 - 10
        bob.write("a.md", "x" * 10)
    late.go_on.set()
    held.join(60)
    bob.write("b.md", "")
    with pytest.raises(OperationDenied):
        bob.write("c.md", "")
    with pytest.raises(OperationDenied):
        bob.append("b.md", "x" * (limits_left + 1))
    bob.append("b.md", "x" * limits_left)


def test_only_the_exceeded_limit_refuses_an_operation(url: str) -> None:
    for path in ("a.md", "b.md", "c.md"):
        plain(url).write_memory_file("bob", path, "x" * 10)
    few = opened(url, max_files=2, max_bytes=1000).agent("bob")
    few.append("a.md", "y")
    with pytest.raises(OperationDenied, match="4 files"):
        few.write("d.md", "")
    small = opened(url, max_files=10, max_bytes=20).agent("bob")
    small.write("d.md", "")
    with pytest.raises(OperationDenied, match="32 bytes"):
        small.append("d.md", "y")


def _create_in_child(service: AgentMemoryService) -> None:
    service.create_memory_file("bob", "child.md", "x")


def test_a_forked_child_drops_the_parents_operations_in_progress(tmp_path: Path) -> None:
    limits = LimitsPlugin(100, max_files=2, root=tmp_path / "root")
    service = AgentMemoryService(tmp_path / "root", plugins=[limits])
    service.create_memory_file("bob", "a.md", "x")
    assert limits._usage
    limits._usage._agents["bob"].begin("of a thread", PlannedChange("b.md", Planned("b.md", 1)))
    assert limits._sizes
    with limits._sizes._lock, limits._usage._guard:
        child = multiprocessing.get_context("fork").Process(target=_create_in_child, args=(service,))
        child.start()
    child.join(60)
    assert child.exitcode == 0


def test_a_separator_has_at_most_64_bytes() -> None:
    memory = AgentMemory.open("memory://")
    memory.append("a.md", "x")
    memory.append("a.md", "y", separator="-" * 64)
    with pytest.raises(InvalidContentError, match="at most 64 bytes"):
        memory.append("a.md", "z", separator="-" * 65)
    assert memory.read("a.md").endswith("y")
