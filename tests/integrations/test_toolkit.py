"""The parts that adapters share: JSON lines with a count of damaged ones, and names of files for any text."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from agent_memory import AgentMemory, Entry, Operation, OperationDenied, acting_as, hookimpl
from agent_memory.errors import AgentMemoryFileNotFoundError
from agent_memory.integrations import toolkit
from agent_memory.integrations.toolkit import (
    ReadCache,
    _cache,
    from_json,
    model_tools,
    record_segment,
    records,
    segment_text,
    step,
    sync_facade,
    sync_view,
)
from agent_memory.key import encode_segment
from agent_memory.reading.lines import MAX_LINE
from agent_memory.testing import RecordingPlugin
from tests.integrations.kit import ADDITIONS, PROCESSES, race, rounds
from tests.support.servers import Root


def an_object(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_every_record_is_returned_and_every_damaged_line_is_counted(end: bytes) -> None:
    memory = AgentMemory.open("memory://")
    lines = [b'\xef\xbb\xbf{"a":1}', b"5", b"{", b"", b' {"a":2} ', b"\xff", b'\xef\xbb\xbf{"a":3}', b"\xef\xbb\xbf"]
    memory.write("a.jsonl", end.join(lines))
    found = step(records(sync_view(memory), "a.jsonl", an_object))
    assert found is not None
    assert (found, found.damaged) == ([{"a": 1}, {"a": 2}, {"a": 3}], 3)
    last = step(records(sync_view(memory), "a.jsonl", an_object, 2))
    assert last is not None
    assert (last, last.damaged) == ([{"a": 2}, {"a": 3}], 1)


def test_a_line_that_is_too_long_is_counted() -> None:
    memory = AgentMemory.open("memory://")
    memory.write("a.jsonl", b"{}\n" + b" " * (MAX_LINE + 2**21) + b"\n{}\n")
    for found in (
        step(records(sync_view(memory), "a.jsonl", an_object)),
        step(records(sync_view(memory), "a.jsonl", an_object, 5)),
    ):
        assert found is not None
        assert (found, found.damaged) == ([{}, {}], 1)


def test_a_missing_file_has_no_records() -> None:
    memory = sync_view(AgentMemory.open("memory://"))
    assert step(records(memory, "a.jsonl", an_object)) is None
    assert step(records(memory, "a.jsonl", an_object, 1)) is None
    assert step(records(memory, "a.jsonl", an_object, 0)) == []


@pytest.mark.parametrize("data", [b"\xff", b"{", b"NaN", b"[" * 100_000, '{"a":1}'.encode("utf-16")])
def test_damaged_json_is_none(data: bytes) -> None:
    assert from_json(data) is None


def test_any_text_names_a_file_and_is_found_again() -> None:
    memory = sync_facade(AgentMemory.open("memory://"))
    texts = ("thread:1/ä", "記" * 200, "x" * 300)
    for text in texts:
        step(memory.write(f"threads/{step(record_segment(memory, text, '.json'))}", "x"))
        assert step(segment_text(memory, step(record_segment(memory, text)))) == text
    names = [entry.key.name for entry in step(memory.list("threads"))]
    assert {step(segment_text(memory, name, ".json")) for name in names} == {*texts}
    with pytest.raises(AgentMemoryFileNotFoundError):
        step(segment_text(memory, encode_segment("y" * 300)))


class Reads:
    """Reads files through a cache, and tells what it read from the storage."""

    def __init__(self, memory: AgentMemory) -> None:
        self.memory = memory
        self.cache = ReadCache(memory)

    def read(self, entries: Sequence[Entry] | None = None) -> tuple[dict[str, bytes], list[int]]:
        """The contents of files, by default of all, and the sizes of those that were read for it."""
        sizes = list[int]()
        view = sync_view(self.memory)
        with patch.object(_cache, "read_each", self._counted(sizes)):
            return step(self.cache.read(view, self.memory.list() if entries is None else entries)), sizes

    def _counted(self, sizes: list[int]) -> Any:
        async def read_each(*args: Any) -> dict[str, bytes]:
            found = await toolkit.read_each(*args)
            sizes.extend(map(len, found.values()))
            return found

        return read_each


def aged(path: Path, seconds: float) -> None:
    """Set the time of a file to some seconds ago, as if it had not changed since."""
    moment = time.time() - seconds
    os.utime(path, (moment, moment))


def test_an_unchanged_file_is_read_once_and_a_changed_one_again(tmp_path: Path) -> None:
    with AgentMemory.open(tmp_path) as memory:
        reads = Reads(memory)
        for name in ("a", "b"):
            memory.write(name, "1")
            aged(tmp_path / name, 10)
        assert reads.read() == ({"a": b"1", "b": b"1"}, [1, 1])
        assert reads.read() == ({"a": b"1", "b": b"1"}, [])
        memory.write("a", "2")
        assert reads.read() == ({"a": b"2", "b": b"1"}, [1])
        memory.delete("b")
        aged(tmp_path / "a", 5)
        assert reads.read() == ({"a": b"2"}, [1])
        assert reads.read() == ({"a": b"2"}, [])


def test_a_file_that_changed_a_moment_ago_is_read_each_time(tmp_path: Path) -> None:
    """Another change at the same moment could leave the same size and time."""
    with AgentMemory.open(tmp_path) as memory:
        reads = Reads(memory)
        memory.write("a", "1")
        moment = (tmp_path / "a").stat().st_mtime_ns
        assert reads.read() == ({"a": b"1"}, [1])
        memory.write("a", "2")
        os.utime(tmp_path / "a", ns=(moment, moment))
        assert reads.read() == ({"a": b"2"}, [1])


def test_a_file_without_a_time_is_read_each_time() -> None:
    memory = AgentMemory.open("memory://")
    memory.write("a", "1")
    entries = [replace(entry, modified=0.0) for entry in memory.list()]
    reads = Reads(memory)
    assert [reads.read(entries) for _ in range(2)] == [({"a": b"1"}, [1])] * 2


def test_the_cache_is_bounded_and_keeps_what_was_used_last(tmp_path: Path) -> None:
    sizes = {"a": 40_000_000, "b": 20_000_000, "c": 30_000_000}
    with AgentMemory.open(tmp_path) as memory:
        reads = Reads(memory)
        for name, size in sizes.items():
            memory.write(name, b"x" * size)
            aged(tmp_path / name, 10)
        by_name = {entry.path: entry for entry in memory.list()}
        found = [reads.read([by_name[name]])[1] for name in ("a", "b", "a", "c", "c", "b")]
        assert found == [[sizes["a"]], [sizes["b"]], [], [sizes["c"]], [], [sizes["b"]]]


class OnlyAnn:
    """A guard: other actors may not read."""

    @hookimpl
    def agent_memory_before_operation(self, operation: Operation) -> None:
        if operation.kind == "read" and operation.actor != "ann":
            raise OperationDenied("only ann may read")


def test_guards_and_observers_see_also_a_file_that_is_not_read_again(tmp_path: Path) -> None:
    recorder = RecordingPlugin()
    with AgentMemory.open(tmp_path, plugins=[OnlyAnn(), recorder]) as memory:
        reads = Reads(memory)
        memory.write("a", "1")
        aged(tmp_path / "a", 10)
        for _ in range(2):
            with acting_as("bob"):
                assert reads.read() == ({}, [])
            with acting_as("ann"):
                assert reads.read()[0] == {"a": b"1"}
    seen = [(each.actor, outcome.status) for each, outcome in recorder.after if each.kind == "read"]
    assert seen == [("bob", "denied"), ("ann", "ok")] * 2


def test_nothing_is_kept_if_a_plugin_checks_the_contents_that_are_read(tmp_path: Path) -> None:
    class Checks:
        @hookimpl
        def agent_memory_check_read(self, content: bytes) -> None:
            del content

    with AgentMemory.open(tmp_path, plugins=[Checks()]) as memory:
        reads = Reads(memory)
        memory.write("a", "1")
        aged(tmp_path / "a", 10)
        assert [reads.read() for _ in range(2)] == [({"a": b"1"}, [1])] * 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_cache_works_in_a_child_that_was_forked_during_a_use(tmp_path: Path) -> None:
    with AgentMemory.open(tmp_path) as memory:
        reads = Reads(memory)
        memory.write("a", "1")
        aged(tmp_path / "a", 10)
        reads.read()
        held, release = threading.Event(), threading.Event()

        def hold() -> None:
            with reads.cache._lock:
                held.set()
                release.wait(60)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(60)
        child = os.fork()
        if not child:
            signal.alarm(30)
            os._exit(0 if reads.read()[0] == {"a": b"1"} else 1)
        release.set()
        thread.join()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def append_note(memory: AgentMemory, process: int, number: int) -> None:
    tool = {each.name: each for each in model_tools(memory.as_async())}["memory_append"]
    answer = asyncio.run(tool.call({"path": "/memories/log.md", "text": f"{process} {number}"}, f"{process}-{number}"))
    assert not answer.is_error, answer.output


@rounds(5, 1)
def test_a_race_of_the_tools_loses_no_note(shared_place: Root) -> None:
    race(shared_place, append_note)
    with AgentMemory.open(shared_place.url, storage_options=shared_place.options) as memory:
        lines = memory.read("log.md").splitlines()
    assert sorted(lines) == sorted(f"{p} {n}" for p in range(PROCESSES) for n in range(ADDITIONS))


@pytest.mark.parametrize("arguments", ["", "[]", "{", 7, None, {"path": None}, '{"path": 7}', {}])
def test_a_tool_tells_the_model_what_was_wrong(arguments: object) -> None:
    memory = AgentMemory.open("memory://")
    for tool in model_tools(memory.as_async(), versions=True):
        answer = asyncio.run(tool.call(arguments))
        assert answer.is_error or tool.name == "memory_versions", tool.name
    assert memory.list() == ()
