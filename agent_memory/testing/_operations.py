"""Contract tests of `AgentMemory` and its async twin on the backend, also by random operations and a model."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent_memory.backend import AnyBackend, ETag
from agent_memory.core.precondition import SHA256
from agent_memory.errors import (
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileAlreadyExistsError,
    FileTooLargeError,
    ReadError,
)
from agent_memory.integrations.toolkit import record_segment, segment_text, step, sync_facade
from agent_memory.key import encode_segment
from agent_memory.memory import AgentMemory, AsyncAgentMemory, WriteResult
from agent_memory.service import AgentMemoryService
from agent_memory.testing._store import ContractBase, ContractStore, refused
from agent_memory.testing.stateful import check_against_model

_TEXT = "é メモ\r\n\0 \U0001f600"


def _etag(result: WriteResult) -> ETag:
    assert result.etag is not None
    return result.etag


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class OperationsContract(ContractBase):
    """Operations: every method of `AgentMemory`, for sync and for async callers."""

    def test_text_is_kept_byte_for_byte(self, store: ContractStore) -> None:
        memory = store.memory()
        result = memory.write("a/text.md", _TEXT)
        assert (result.path, result.size, result.sha256) == ("a/text.md", len(_TEXT.encode()), _sha256(_TEXT))
        assert memory.read("a/text.md") == _TEXT
        assert store.holds("a/text.md") == _TEXT.encode()

    def test_what_is_no_text_is_read_as_bytes_only(self, store: ContractStore) -> None:
        memory = store.memory()
        memory.write("raw", b"\xff\xfe")
        with pytest.raises(ReadError):
            memory.read("raw")
        assert memory.read_bytes("raw") == b"\xff\xfe"

    def test_a_condition_on_the_content_decides(self, changing: ContractStore) -> None:
        memory = changing.memory()
        memory.write("file", "one")
        memory.write("file", "two", when=SHA256(_sha256("one")))
        memory.append("file", "+", when=SHA256(_sha256("two")))
        memory.edit("file", str.upper, when=SHA256(_sha256("two+")))
        calls: list[Callable[[], object]] = [
            lambda: memory.write("file", "lost", when=SHA256(_sha256("one"))),
            lambda: memory.append("file", "lost", when=SHA256(_sha256("one"))),
            lambda: memory.edit("file", str.lower, when=SHA256(_sha256("one"))),
            lambda: memory.write("missing", "lost", when=SHA256(_sha256(""))),
        ]
        for call in calls:
            with pytest.raises(ConflictError):
                call()
        assert memory.read("file") == "TWO+"

    def test_a_version_decides(self, changing: ContractStore) -> None:
        memory = changing.memory()
        first = _etag(memory.write("file", "one"))
        second = _etag(memory.write("file", "two", when=first))
        calls: list[Callable[[], object]] = [
            lambda: memory.write("file", "lost", when=first),
            lambda: memory.append("file", "lost", when=first),
            lambda: memory.edit("file", str.upper, when=first),
            lambda: memory.write("file", "lost", when=ETag("of another storage")),
            lambda: memory.write("missing", "lost", when=second),
        ]
        for call in calls:
            with pytest.raises(ConflictError):
                call()
        assert memory.read("file") == "two"
        third = _etag(memory.edit("file", str.upper, when=second))
        assert memory.append("file", "+", when=third).size == 4

    def test_a_version_decides_about_a_delete(self, deleting: ContractStore) -> None:
        memory = deleting.memory()
        first = _etag(memory.write("file", "one"))
        second = _etag(memory.write("file", "two"))
        with pytest.raises(ConflictError):
            memory.delete("file", when=first)
        memory.delete("file", when=second)
        assert memory.list() == ()

    def test_an_edit_creates_a_missing_file(self, creating: ContractStore) -> None:
        memory = creating.memory()
        result = memory.edit("a/new", lambda old: old + "x", missing="o")
        assert (result.path, result.size, result.sha256) == ("a/new", 2, _sha256("ox"))
        assert memory.edit_bytes("raw", lambda old: old + b"\xff", missing=b"").size == 1
        assert memory.read_bytes("raw") == b"\xff"
        with pytest.raises(FileAlreadyExistsError):
            memory.edit("a", str.upper, missing="")
        with pytest.raises(AgentMemoryFileNotFoundError):
            memory.edit("other", str.upper)

    def test_an_edit_whose_function_returns_none_deletes_the_file(self, deleting: ContractStore) -> None:
        memory = deleting.memory()
        memory.write("a/file", "x")
        assert memory.edit("a/file", lambda _: None).sha256 == ""
        assert memory.edit("a/file", lambda _: None, missing="").sha256 == ""
        assert memory.list(recursive=False) == ()

    def test_several_files_are_read_and_missing_ones_are_left_out(self, store: ContractStore) -> None:
        memory = store.memory()
        memory.write("a", "1")
        memory.write("b", b"\xff")
        assert memory.read_many(["b", "c", "a"], missing_ok=True, bytes=True) == {"b": b"\xff", "a": b"1"}
        with pytest.raises(AgentMemoryFileNotFoundError):
            memory.read_many(["a", "c"])

    def test_a_part_of_a_listing_is_cut_from_the_whole(self, store: ContractStore) -> None:
        memory = store.memory()
        for name in ("a", "d/2024-a", "d/2024-b", "d/2025-a", "d/sub/x"):
            memory.write(name, name)
        assert [e.path for e in memory.list("d", name_prefix="2024-")] == ["d/2024-a", "d/2024-b"]
        assert [e.path for e in memory.list(after="a", limit=2)] == ["d/2024-a", "d/2024-b"]
        assert [e.path for e in memory.list("d", recursive=False, after="d/2025-a")] == ["d/sub"]
        assert memory.is_directory("d")
        assert not memory.is_directory("a")

    def test_the_last_lines_of_a_file_are_read(self, store: ContractStore) -> None:
        memory = store.memory()
        memory.write("log", "".join(f"line {number}\n" for number in range(50_000)) + "end")
        assert memory.tail("log", 2) == "line 49999\nend"
        assert len(memory.tail("log", 20_000).splitlines()) == 20_000
        assert memory.tail("log", 60_000) == memory.read("log")

    def test_a_call_with_an_idempotency_key_is_made_once(self, changing: ContractStore) -> None:
        memory = changing.memory()
        first = memory.once("append").append("log", "line\n")
        assert memory.once("append").append("log", "line\n") == first
        assert memory.once("edit").edit("log", str.upper).size == 5
        memory.write("log", "later")
        memory.once("edit").edit("log", str.upper)
        with pytest.raises(ConflictError):
            memory.once("append").append("log", "another line\n")
        assert memory.read("log") == "later"
        assert [str(entry) for entry in memory.list()] == ["log"]

    def test_of_racing_calls_with_one_idempotency_key_one_is_made(self, changing: ContractStore) -> None:
        memory = changing.memory()
        with ThreadPoolExecutor(4) as threads:
            results = list(threads.map(lambda _: memory.once("k").append("log", "line\n"), range(8)))
        assert results == [results[0]] * 8
        assert memory.read("log") == "line\n"

    def test_any_text_names_a_file_and_is_found_again(self, creating: ContractStore) -> None:
        memory = sync_facade(creating.memory())
        texts = ("thread:1/ä", "記" * 200, "x" * 300)
        for text in texts:
            step(memory.write(f"threads/{step(record_segment(memory, text, '.json'))}", "x"))
            assert step(segment_text(memory, step(record_segment(memory, text)))) == text
        names = [entry.key.name for entry in step(memory.list("threads"))]
        assert {step(segment_text(memory, name, ".json")) for name in names} == {*texts}
        with pytest.raises(AgentMemoryFileNotFoundError):
            step(segment_text(memory, encode_segment("y" * 300)))

    def test_a_condition_on_the_content_decides_about_a_delete(self, deleting: ContractStore) -> None:
        memory = deleting.memory()
        memory.write("file", "one")
        with pytest.raises(ConflictError):
            memory.delete("file", when=SHA256(_sha256("two")))
        memory.delete("file", when=SHA256(_sha256("one")))
        assert memory.list() == ()

    def test_a_rename_moves_and_never_overwrites_or_is_refused(self, creating: ContractStore) -> None:
        memory = creating.memory()
        memory.write("a/one", "1")
        memory.write("b", "2")
        if not self.deletes(creating):
            for source, target in (("a/one", "c/d/one"), ("a", "c")):
                with refused("conditional_delete"):
                    memory.rename(source, target)
            assert creating.names() == ("a/one", "b")
            return
        assert memory.rename("a/one", "c/d/one").files == 1
        for source, target in (("b", "c/d/one"), ("b", "c/d"), ("c/d/one", "b"), ("b", "c/d/one/below")):
            with pytest.raises(FileAlreadyExistsError):
                memory.rename(source, target)
        assert {entry.path: memory.read(entry.path) for entry in memory.list()} == {"b": "2", "c/d/one": "1"}

    def test_a_directory_is_copied_moved_and_deleted_whole(self, deleting: ContractStore) -> None:
        memory = deleting.memory()
        for name in ("a/1", "a/b/2", "a/b/c/3", "ab/4"):
            memory.write(name, name)
        assert memory.copy("a", "copy").files == 3
        assert memory.rename("a", "moved/to").files == 3
        assert memory.delete_tree("copy/b").files == 2
        left = ["ab/4", "copy/1", "moved/to/1", "moved/to/b/2", "moved/to/b/c/3"]
        assert [str(entry) for entry in memory.list()] == left
        assert memory.read("moved/to/b/c/3") == "a/b/c/3"
        with pytest.raises(AgentMemoryFileNotFoundError):
            memory.delete_tree("a")
        assert memory.delete_tree("").files == 5
        assert memory.list(recursive=False) == ()

    def test_nothing_larger_than_max_bytes_is_written(self, changing: ContractStore) -> None:
        memory = changing.memory()
        changing.backend.max_bytes = 10
        memory.write("file", "0123456789")
        calls: list[Callable[[], object]] = [
            lambda: memory.write("file", "x" * 11),
            lambda: memory.create("new", "x" * 11),
            lambda: memory.append("new", "x" * 11),
            lambda: memory.edit("file", lambda text: text + "x"),
        ]
        for call in calls:
            with pytest.raises(FileTooLargeError):
                call()
        assert [str(entry) for entry in memory.list()] == ["file"]
        assert memory.read("file") == "0123456789"

    def test_agents_share_a_store_and_see_only_their_own(self, store: ContractStore) -> None:
        service = AgentMemoryService(store.backend)
        for agent in ("agent1", "agent11", "other"):
            service.write_memory_file(agent, "notes.md", agent)
        assert service.agent_ids() == ("agent1", "agent11", "other")
        assert [str(entry) for entry in service.list_memory_files("agent1")] == ["notes.md"]
        service.delete_memory_file("agent1", "notes.md")
        assert service.agent_ids() == ("agent11", "other")
        assert service.read_memory_file("agent11", "notes.md") == "agent11"

    def test_an_async_caller_gets_the_same(self, deleting: ContractStore) -> None:
        asyncio.run(_use(AsyncAgentMemory.open(deleting.backend)))
        assert deleting.names() == ("c/log",)

    def test_random_operations_do_what_they_do_on_a_dict(self, deleting: ContractStore, backend: AnyBackend) -> None:
        assert deleting.backend is backend
        check_against_model(backend, examples=self.model_examples, steps=self.model_steps)

    def test_a_view_of_a_directory_is_a_tree_of_its_own(self, store: ContractStore) -> None:
        memory: AgentMemory = store.memory().subtree("a/b")
        memory.write("c/file", "x")
        assert [str(entry) for entry in memory.list()] == ["c/file"]
        assert memory.stat("c/file").path == "c/file"
        assert store.names() == ("a/b/c/file",)


async def _use(memory: AsyncAgentMemory) -> None:
    await memory.write("a/log", "one")
    await asyncio.gather(*(memory.append(f"a/log{number}", f"{number}") for number in range(5)))
    assert await asyncio.gather(*(memory.read(f"a/log{number}") for number in range(5))) == list("01234")
    await memory.append("a/log", " two")
    await memory.edit("a/log", str.upper)
    assert (await memory.stat("a/log")).size == 7
    await memory.rename("a", "b")
    await memory.copy("b/log", "c/log")
    assert (await memory.delete_tree("b")).files == 6
    assert [str(entry) for entry in await memory.list()] == ["c/log"]
    assert not await memory.exists("b/log")
    with pytest.raises(AgentMemoryFileNotFoundError):
        await memory.read("b/log")
    with pytest.raises(FileAlreadyExistsError):
        await memory.create("c", "x")
