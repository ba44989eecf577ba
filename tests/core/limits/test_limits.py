"""The limits of a store: of one file, and of the bytes and files of each agent."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from agent_memory import (
    ABSENT,
    AgentMemory,
    AgentMemoryFileNotFoundError,
    AgentMemoryService,
    AsyncAgentMemoryService,
    Limits,
    Operation,
    OperationDenied,
    UnsupportedOperationError,
    VersionLimits,
    hookimpl,
)
from agent_memory.core import flows
from agent_memory.core.blocking import BlockingStore
from agent_memory.core.limits import quota
from agent_memory.key import Key
from agent_memory.registry import open_backend
from agent_memory.testing.recording import RecordingPlugin
from tests.support.servers import Root

ROOTS = pytest.mark.parametrize(
    "root", ["local", "memory", "ministack", pytest.param("seaweedfs", marks=pytest.mark.long)], indirect=True
)


def opened(root: Root, limits: Limits | None = None, **options: Any) -> AgentMemoryService:
    return AgentMemoryService(root.url, storage_options=root.options, limits=limits, **options)


def used(memory: AgentMemory) -> tuple[int, int]:
    entries = memory.list()
    return sum(entry.size for entry in entries), len(entries)


WRITES: dict[str, Callable[[AgentMemory, int], object]] = {
    "write": lambda memory, size: memory.write("a", "x" * size),
    "create": lambda memory, size: memory.create("a", "x" * size),
    "append": lambda memory, size: memory.append("a", "x" * size),
    "edit": lambda memory, size: memory.edit("a", lambda _: "x" * size, missing=""),
    "blocks": lambda memory, size: memory.write_blocks("a", [b"x" * size], size),
    "once": lambda memory, size: memory.once(f"{size}").write("a", "x" * size),
}


@ROOTS
@pytest.mark.parametrize("way", WRITES)
def test_a_file_may_reach_its_limit_but_not_exceed_it(root: Root, way: str) -> None:
    with opened(root, Limits(file_bytes=100)) as service:
        memory = service.agent("ann")
        with pytest.raises(OperationDenied, match="a file may have 100 bytes, and this one would have 101"):
            WRITES[way](memory, 101)
        assert used(memory) == (0, 0)
        WRITES[way](memory, 100)
        assert used(memory) == (100, 1)


@ROOTS
@pytest.mark.parametrize("way", WRITES)
def test_an_agent_may_reach_its_limits_but_not_exceed_them(root: Root, way: str) -> None:
    with opened(root, Limits(agent_bytes=1_000, agent_files=2)) as service:
        memory = service.agent("ann")
        memory.write("other", "x" * 900)
        with pytest.raises(OperationDenied, match="agent 'ann' may have 1,000 bytes and has 900; 101 more do not fit"):
            WRITES[way](memory, 101)
        WRITES[way](memory, 100)
        assert used(memory) == (1_000, 2)
        with pytest.raises(OperationDenied, match=r"may have 1,000 bytes|may have 2 files and has 2; 1 more"):
            memory.write("third", "x")
        service.agent("bob").write("a", "x" * 1_000)  # each agent has its own


@ROOTS
def test_the_separator_and_the_filters_count(root: Root) -> None:
    class Doubling:
        @hookimpl
        def agent_memory_filter_content(self, operation: Operation, content: bytes) -> bytes:  # noqa: ARG002
            return content * 2

    with opened(root, Limits(file_bytes=21)) as service:
        memory = service.agent("ann")
        memory.append("log", "x" * 10, separator="\n")
        with pytest.raises(OperationDenied, match="would have 22"):
            memory.append("log", "x" * 11, separator="\n")
        memory.append("log", "x" * 10, separator="\n")
        assert memory.stat("log").size == 21
    with opened(root, plugins=[Doubling()]) as service:
        with pytest.raises(OperationDenied, match="would have 22"):
            service.agent("ann").write("b", "x" * 11)
        service.agent("ann").write("b", "x" * 10)


@ROOTS
def test_a_file_over_its_limit_may_become_smaller_and_move_but_not_grow(root: Root) -> None:
    with opened(root) as service:
        memory = service.agent("ann")
        memory.write("big", "x" * 200)
        service.set_limits(Limits(file_bytes=100, agent_bytes=150, agent_files=1))
        etag = memory.write("big", "x" * 180).etag
        assert etag
        memory.edit("big", lambda text: text[:-10])
        memory.write("big", "x" * 160, when=memory.stat("big").etag or ABSENT)
        for grow in (
            lambda: memory.append("big", "x"),
            lambda: memory.write("big", "x" * 161),
            lambda: memory.edit("big", lambda text: text + "x"),
            lambda: memory.copy("big", "copy"),
            lambda: memory.create("new", "x"),
        ):
            with pytest.raises(OperationDenied):
                grow()
        assert used(memory) == (160, 1)
        memory.delete("big")
        memory.write("big", "x" * 100)


@pytest.mark.parametrize("root", ["local", "memory"], indirect=True)
def test_a_rename_in_one_step_needs_no_room(root: Root) -> None:
    with opened(root, Limits(agent_bytes=100, agent_files=2)) as service:
        memory = service.agent("ann")
        memory.write("d/a", "x" * 50)
        memory.write("d/b", "x" * 50)
        memory.rename("d/a", "c")
        memory.rename("d", "e")
        assert [entry.path for entry in memory.list()] == ["c", "e/b"]


@pytest.mark.parametrize("root", ["ministack"], indirect=True)
def test_a_rename_by_a_copy_needs_the_room_of_the_copy(root: Root) -> None:
    with opened(root, Limits(agent_bytes=100, agent_files=2)) as service:
        memory = service.agent("ann")
        memory.write("a", "x" * 51)
        with pytest.raises(OperationDenied, match="has 51; 51 more do not fit"):
            memory.rename("a", "b")
        memory.write("a", "x" * 50)
        memory.rename("a", "b")
        memory.rename("b", "c")
        assert used(memory) == (50, 1)


@ROOTS
def test_every_way_to_add_content_keeps_the_limits(root: Root) -> None:
    with opened(root, Limits(agent_bytes=300, agent_files=3), versions=VersionLimits()) as service:
        memory = service.agent("ann")
        memory.write("a", "1" * 100)
        memory.write("a", "2" * 10)
        first = memory.versions.list("a")[-1]
        memory.write("b", "x" * 200)
        with pytest.raises(OperationDenied, match="may have 300 bytes and has 210"):
            memory.copy("b", "c")
        memory.versions.restore("a", first)
        assert memory.read("a") == "1" * 100
        memory.delete("b")
        memory.write("c", "x" * 101)
        with pytest.raises(OperationDenied, match="may have 300 bytes and has 201"):
            memory.versions.restore("b", memory.versions.list("b")[0])
        memory.versions.undo(since=0)  # what does not fit is left
        assert used(memory)[0] <= 300


@ROOTS
def test_versions_and_receipts_count_by_option(root: Root) -> None:
    with opened(root, Limits(agent_bytes=3_000, count_versions=True), versions=VersionLimits()) as service:
        memory = service.agent("ann")
        memory.write("a", "1" * 1_000)
        written = 1
        with suppress(OperationDenied):
            while written < 9:
                memory.once(f"{written + 1}").write("a", f"{written + 1}" * 1_000)
                written += 1
        assert written == 2, "the current file and one version, with its facts"
        before = memory.read("a")
        with pytest.raises(OperationDenied):
            memory.write("a", "9" * 1_000)
        assert memory.read("a") == before


@ROOTS
def test_the_limits_are_the_stores_and_each_service_follows_them(root: Root, caplog: pytest.LogCaptureFixture) -> None:
    limits = Limits(file_bytes=10)
    with opened(root, limits) as service:
        assert service.limits() is None
        service.agent("ann").write("a", "x")
        assert service.limits() == limits
    with opened(root) as service:
        with pytest.raises(OperationDenied):
            service.agent("ann").write("a", "x" * 11)
        service.set_limits(Limits(file_bytes=20))
        service.agent("ann").write("a", "x" * 11)
        service.set_limits(None)
        service.set_limits(None)
        service.agent("ann").write("a", "x" * 100)
        service.set_limits(limits)
    with caplog.at_level(logging.WARNING, "agent_memory"), opened(root, Limits(file_bytes=30)) as service:
        with pytest.raises(OperationDenied):
            service.agent("ann").write("b", "x" * 11)
    assert "the store has other limits than the given ones, and keeps them" in caplog.text


def test_limits_that_mean_nothing_are_refused() -> None:
    cases: list[dict[str, Any]] = [
        {"file_bytes": 0},
        {"agent_bytes": -1},
        {"agent_files": 1.5},
        {"agent_files": True},
        {"count_versions": True},
        {"count_versions": 1, "agent_bytes": 1},
    ]
    for wrong in cases:
        with pytest.raises(ValueError, match="limits: "):
            Limits(**wrong)
    with pytest.raises(TypeError, match="must be a Limits or None"):
        AgentMemoryService("memory://", limits=100)  # type: ignore[arg-type]


def test_a_store_without_conditional_writes_keeps_only_the_limit_of_a_file(tmp_path: Path) -> None:
    url = f"simplecache::file://{tmp_path}"
    with AgentMemoryService(url) as service:
        if service.capabilities.compare_and_swap:
            pytest.skip("this filesystem has conditional writes")
        with pytest.raises(UnsupportedOperationError, match="limits of agents need conditional writes"):
            service.set_limits(Limits(agent_files=1))


@ROOTS
def test_what_another_program_wrote_counts_after_a_count(root: Root) -> None:
    with opened(root) as service:
        for name in ("one", "two", "three"):
            service.agent("ann").write(name, "x" * 10)
    with opened(root, Limits(agent_bytes=50, agent_files=4)) as service:
        memory = service.agent("ann")
        memory.write("four", "x" * 20)
        with pytest.raises(OperationDenied):
            memory.write("five", "x")
        with pytest.raises(OperationDenied):
            memory.append("one", "x")
        memory.delete("two")
        memory.append("one", "x" * 10)
        assert used(memory) == (50, 3)


@ROOTS
def test_a_deleted_file_of_another_program_makes_no_room(root: Root) -> None:
    with opened(root, Limits(agent_bytes=1_000)) as service, closing(_Other(root)) as other:
        memory = service.agent("ann")
        memory.write("ours", "x" * 400)
        other.write("foreign", b"x" * 900)
        memory.delete("foreign")
        for number in range(5):
            memory.write(f"{number}", "x" * 100)
        with pytest.raises(OperationDenied, match="may have 1,000 bytes and has 900"):
            memory.write("more", "x" * 101)


class _Other:
    """Another program: it writes without this package's rules."""

    def __init__(self, root: Root) -> None:
        self._memory = AgentMemory.open(open_backend(root.url, root.options))
        self._tree = self._memory._tree

    def write(self, name: str, data: bytes) -> None:
        BlockingStore(self._tree.backend).run(flows.write, Key.agent("ann").join(name), data)

    def close(self) -> None:
        self._memory.close()


def test_a_tree_without_agents_has_limits_too(tmp_path: Path) -> None:
    with AgentMemory.open(tmp_path, limits=Limits(agent_bytes=100, agent_files=2)) as memory:
        memory.write("a", "x" * 60)
        memory.subtree("dir").write("b", "x" * 40)
        with pytest.raises(OperationDenied, match="this memory may have"):
            memory.append("a", "x")
        assert memory.read("a") == "x" * 60


@ROOTS
def test_most_appends_cost_no_further_request(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []
    renewed = quota.Quota._renewed

    async def count(self: quota.Quota, *args: Any, **options: Any) -> Any:
        counted.append(1)
        return await renewed(self, *args, **options)

    monkeypatch.setattr(quota.Quota, "_renewed", count)
    with opened(root, Limits(agent_bytes=1_000_000, agent_files=100)) as service:
        for _ in range(50):
            service.agent("ann").append("log", "x" * 100, separator="\n")
    assert len(counted) <= 3


@ROOTS
def test_a_process_that_ended_in_order_reserves_nothing(root: Root) -> None:
    limits = Limits(agent_bytes=6_400, agent_files=640)
    for name in ("a", "b", "c"):
        with opened(root, limits) as service:
            service.agent("ann").write(name, "x" * 100)
    with opened(root) as service:
        service.agent("ann").write("rest", "x" * 6_100)


def test_a_process_that_was_killed_reserves_its_portion_for_three_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = AgentMemoryService(tmp_path, limits=Limits(agent_bytes=64_000))
    first.agent("ann").write("a", "x" * 1_000)  # it is never closed
    with AgentMemoryService(tmp_path) as service:
        memory = service.agent("ann")
        with pytest.raises(OperationDenied, match=r"has 1,000, and [\d,]+ are reserved by other calls"):
            memory.write("rest", "x" * 63_000)
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 181)
        memory.write("rest", "x" * 63_000)
    monkeypatch.undo()
    first.close()


@pytest.mark.parametrize("root", ["local", "memory", "ministack"], indirect=True)
def test_an_append_to_a_file_that_is_not_known_needs_no_room_for_a_file(root: Root) -> None:
    with opened(root, Limits(agent_files=2)) as service:
        for name in ("a", "b"):
            service.agent("ann").write(name, "x")
    with opened(root) as service:
        memory = service.agent("ann")
        memory.append("a", "y")
        with pytest.raises(OperationDenied, match="may have 2 files and has 2; 1 more"):
            memory.append("c", "z")
        assert memory.read("a") == "xy"


def test_a_large_change_of_an_open_process_is_not_reserved_beside_its_bytes(tmp_path: Path) -> None:
    with AgentMemoryService(tmp_path, limits=Limits(agent_bytes=64_000, agent_files=9)) as first:
        first.agent("ann").write("a", "x" * 30_000)
        with AgentMemoryService(tmp_path) as second:
            second.agent("ann").delete("a")
            second.agent("ann").write("b", "x" * 60_000)
            with pytest.raises(OperationDenied, match=r"has 60,000, and ([1-9]?\d\d|1,000) are reserved"):
                second.agent("ann").write("c", "x" * 4_000)


def test_a_damaged_ledger_is_counted_anew(tmp_path: Path) -> None:
    with AgentMemoryService(tmp_path, limits=Limits(agent_bytes=100)) as service:
        service.agent("ann").write("a", "x" * 60)
    (ledger,) = tmp_path.glob(".agent-memory/limits/ann/*")
    for damage in (b"", b"{}", b"[]", b'{"used": [-5, 0]}', b"\xff", ledger.read_bytes().replace(b"60", b'"60"')):
        ledger.write_bytes(damage)
        with AgentMemoryService(tmp_path) as service:
            with pytest.raises(OperationDenied, match="has 60"):
                service.agent("ann").write("b", "x" * 41)
            service.agent("ann").write("b", "x" * 40)
            service.agent("ann").delete("b")


def test_forgetting_an_agent_leaves_no_ledger(tmp_path: Path) -> None:
    with AgentMemoryService(tmp_path, limits=Limits(agent_bytes=100)) as service:
        service.agent("ann").write("a", "x" * 60)
        service.forget_memory("ann")
        assert not [path for path in tmp_path.rglob("*") if "ann" in str(path.relative_to(tmp_path))]
        service.agent("ann").write("a", "x" * 100)


@ROOTS
def test_a_refusal_is_reported_as_one(root: Root) -> None:
    recording = RecordingPlugin()
    with opened(root, Limits(agent_files=1), plugins=[recording]) as service:
        service.agent("ann").write("a", "x")
        with pytest.raises(OperationDenied) as raised:
            service.agent("ann").write("b", "secret content")
        assert (raised.value.agent, raised.value.path, raised.value.operation) == ("ann", "b", "write")
        assert "secret" not in str(raised.value)
    assert [outcome.status for _, outcome in recording.after][-1] == "denied"


def test_async_callers_have_the_same_limits(tmp_path: Path) -> None:
    async def play() -> Sequence[object]:
        async with AsyncAgentMemoryService(tmp_path, limits=Limits(agent_files=10)) as service:
            assert await service.limits() is None
            memory = service.agent("ann")
            writes = (memory.write(f"{number}", "x") for number in range(30))
            found = await asyncio.gather(*writes, return_exceptions=True)
            assert len(await memory.list()) == 10
            await service.set_limits(Limits(agent_files=11))
            await memory.write("one more", "x")
            return found

    ends = asyncio.run(play())
    assert sum(isinstance(each, OperationDenied) for each in ends) == 20


def test_a_missing_file_is_missing_also_within_limits(tmp_path: Path) -> None:
    with AgentMemoryService(tmp_path, limits=Limits(file_bytes=5, agent_bytes=10)) as service:
        memory = service.agent("ann")
        for call in (
            lambda: memory.delete("a"),
            lambda: memory.rename("a", "b"),
            lambda: memory.edit("a", str.upper),
        ):
            with pytest.raises(AgentMemoryFileNotFoundError):
                call()


def test_limits_that_were_off_for_a_while_count_anew(tmp_path: Path) -> None:
    with AgentMemoryService(tmp_path, limits=Limits(agent_bytes=1_000)) as service:
        memory = service.agent("ann")
        memory.write("a", "x" * 100)
        service.set_limits(None)
        memory.write("b", "x" * 900)
        service.set_limits(Limits(agent_bytes=1_000))
        with pytest.raises(OperationDenied, match="has 1,000; 1 more"):
            memory.write("c", "x")


def test_a_write_in_parts_is_not_refused_because_another_process_replaced_the_file(tmp_path: Path) -> None:
    with AgentMemoryService(tmp_path, limits=Limits(agent_bytes=1 << 20)) as one, AgentMemoryService(tmp_path) as two:
        one.agent("ann").write("a", "x" * 100)
        two.agent("ann").write("a", "another")
        one.agent("ann").write_blocks("a", [b"y" * 50], 50)
        assert two.agent("ann").read("a") == "y" * 50


def test_a_child_of_a_fork_takes_a_lease_of_its_own(tmp_path: Path) -> None:
    with AgentMemoryService(tmp_path, limits=Limits(agent_files=3)) as service:
        memory = service.agent("ann")
        memory.write("a", "x")
        with service._quotas.of("ann")._lock:
            child = os.fork()
            if child == 0:  # pragma: no cover - in the child
                try:
                    memory.write("b", "x")
                    os._exit(0)
                finally:
                    os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        memory.write("c", "x")
        with pytest.raises(OperationDenied):
            memory.write("d", "x")
