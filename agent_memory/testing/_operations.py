"""Contract tests of appends, and of `AgentMemory` and its async twin on the backend, also by random operations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from agent_memory.backend import ANY, PRESENT, AnyBackend, Appends, AppendWhen, ETag
from agent_memory.core.precondition import SHA256
from agent_memory.errors import (
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileAlreadyExistsError,
    FileTooLargeError,
    ReadError,
    UnsupportedOperationError,
)
from agent_memory.memory import AsyncAgentMemory
from agent_memory.testing._model import sha256
from agent_memory.testing._store import ContractBase, ContractStore, refused
from agent_memory.testing.stateful import check_against_model

_TEXT = "é メモ\r\n\0 \U0001f600"
_STATES: dict[str, Callable[[ContractStore], SHA256 | ETag]] = {
    "content": lambda store: SHA256(sha256(store.read("file").data)),
    "version": lambda store: store.read("file").etag,
}
"""The two conditions that the current state of a file, and no other, meets."""


class AppendingContract(ContractBase):
    """Appending: the separator, missing files, and taken names."""

    @pytest.fixture
    def appending(self, store: ContractStore) -> ContractStore:
        """The store, if it promises appends: by create and compare-and-swap, or in the storage itself."""
        if self.promises(store, "atomic_create") and self.promises(store, "compare_and_swap"):
            return store
        store.write("tried", b"old")
        try:
            store.append("tried", b"new")
        except UnsupportedOperationError:
            with refused("compare_and_swap"):
                store.append("missing", b"new")
            assert (store.holds("tried"), store.holds("missing")) == (b"old", None)
            pytest.skip("the backend states that it cannot append, and refuses to")
        assert isinstance(store.backend, Appends), "without create and compare-and-swap, an append has to be refused"
        store.delete("tried")
        return store

    def test_an_append_adds_at_the_end(self, appending: ContractStore) -> None:
        appending.write("dir/log", b"one\r\n")
        for number, data in enumerate((b"two", b"", b"\xff\0", bytes(range(256)))):
            before = appending.read("dir/log").data
            effect = appending.append("dir/log", data)
            assert effect.size == len(before) + len(data), number
            assert effect.sha256 == sha256(data)
            assert appending.read("dir/log").data == before + data
        assert appending.names() == ("dir/log",)

    @pytest.mark.parametrize("data", [b"first", b""])
    def test_an_append_creates_what_is_missing(self, appending: ContractStore, data: bytes) -> None:
        effect = appending.append("new/dir/log", data, separator=b"\n")
        assert effect.size == len(data)
        assert appending.holds("new/dir/log") == data
        assert appending.stat("new/dir/log").size == len(data)

    def test_an_append_that_requires_the_file_does_not_create_it(self, appending: ContractStore) -> None:
        with pytest.raises(AgentMemoryFileNotFoundError):
            appending.append("dir/log", b"x", when=PRESENT)
        assert appending.level() == ([], [])
        appending.write("dir/log", b"")
        with pytest.raises(AgentMemoryFileNotFoundError):
            appending.append("dir", b"a directory is no file", when=PRESENT)
        appending.delete("dir/log")
        appending.write("dir", b"the name is free")
        appending.delete("dir")
        appending.write("dir/log", b"")
        appending.append("dir/log", b"x", when=PRESENT)
        assert appending.holds("dir/log") == b"x"

    @pytest.mark.parametrize(
        ("old", "separator", "whole"),
        [
            (b"", b"\n", b"new"),
            (b"old", b"\n", b"old\nnew"),
            (b"old\n", b"\n", b"old\nnew"),
            (b"old\n\n", b"\n", b"old\n\nnew"),
            (b"\n", b"\n", b"\nnew"),
            (b"old", b"", b"oldnew"),
            (b"old", b"\n\n", b"old\n\nnew"),
            (b"old\n", b"\n\n", b"old\n\n\nnew"),
            (b"old\n\n", b"\n\n", b"old\n\nnew"),
            (b"\n", b"\n\n", b"\n\n\nnew"),
            (b"-", b"a longer separator", b"-a longer separatornew"),
        ],
    )
    @pytest.mark.parametrize("when", [ANY, PRESENT], ids=["any", "present"])
    def test_a_separator_goes_between_and_only_where_it_is_missing(
        self, appending: ContractStore, old: bytes, separator: bytes, whole: bytes, when: AppendWhen
    ) -> None:
        appending.write("log", old)
        assert appending.append("log", b"new", separator=separator, when=when).size == len(whole)
        assert appending.holds("log") == whole

    def test_a_separator_is_judged_by_the_whole_file_after_many_appends(self, appending: ContractStore) -> None:
        for data in (b"a", b"b\n", b"c", b"", b"d"):
            appending.append("log", data, separator=b"\n")
        assert appending.holds("log") == b"a\nb\nc\nd"

    @pytest.mark.parametrize("when", [ANY, PRESENT], ids=["any", "present"])
    def test_an_append_over_the_given_size_is_refused(self, appending: ContractStore, when: AppendWhen) -> None:
        if not isinstance(appending.backend, Appends):
            return  # there is no verb that takes a size
        appending.write("log", b"old")
        for separator, most in ((b"\n", 5), (b"", 4)):
            with pytest.raises(FileTooLargeError):
                appending.call("append", "log", b"nw", separator=separator, when=when, most=most)
        assert appending.holds("log") == b"old"
        assert appending.call("append", "log", b"nw", separator=b"\n", when=when, most=6).size == 6
        with pytest.raises((FileTooLargeError, AgentMemoryFileNotFoundError)):
            appending.call("append", "new", b"data", when=when, most=3)
        assert appending.names() == ("log",)

    @pytest.mark.parametrize("when", [ANY, PRESENT], ids=["any", "present"])
    @pytest.mark.parametrize("name", ["dir", "dir/sub", "dir/file/below", "dir/file/far/below"])
    def test_a_taken_name_is_not_appended_to(self, appending: ContractStore, name: str, when: AppendWhen) -> None:
        appending.write("dir/file", b"1")
        appending.write("dir/sub/file", b"2")
        refusals = (FileAlreadyExistsError,) if when is ANY else (FileAlreadyExistsError, AgentMemoryFileNotFoundError)
        with pytest.raises(refusals):
            appending.append(name, b"x", when=when)
        assert appending.names() == ("dir/file", "dir/sub/file")
        assert appending.holds("dir/file") == b"1"

    def test_an_append_makes_a_new_version(self, appending: ContractStore) -> None:
        old = appending.write("log", b"one")
        effect = appending.append("log", b" two")
        new = appending.read("log").etag
        assert new != old
        assert effect.etag in (None, new)

    def test_an_append_to_a_large_file_keeps_all_of_it(self, appending: ContractStore) -> None:
        data = b"0123456789abcdef" * (self.large_bytes // 16)
        appending.write("large", data)
        appending.append("large", b"end", separator=b"\n")
        snapshot = appending.read("large")
        assert snapshot.size == len(data) + 4
        assert snapshot.data == data + b"\nend"


class OperationsContract(ContractBase):
    """Operations: every method of `AgentMemory`, for sync and for async callers."""

    def test_text_is_kept_byte_for_byte_and_nothing_else_is_read_as_text(self, store: ContractStore) -> None:
        memory = store.memory()
        result = memory.write("a/text.md", _TEXT)
        data = _TEXT.encode()
        assert (result.path, result.size, result.sha256) == ("a/text.md", len(data), sha256(data))
        assert memory.read("a/text.md") == _TEXT
        assert store.holds("a/text.md") == data
        memory.write("raw", b"\xff\xfe")
        with pytest.raises(ReadError):
            memory.read("raw")
        assert memory.read_bytes("raw") == b"\xff\xfe"

    @pytest.mark.parametrize("state", _STATES.values(), ids=_STATES)
    def test_a_condition_on_the_state_decides(
        self, changing: ContractStore, state: Callable[[ContractStore], SHA256 | ETag]
    ) -> None:
        memory = changing.memory()
        memory.write("file", "one")
        first = state(changing)
        memory.write("file", "two", when=first)
        second = state(changing)
        calls: list[Callable[[], object]] = [
            lambda: memory.write("file", "lost", when=first),
            lambda: memory.append("file", "lost", when=first),
            lambda: memory.edit("file", str.upper, when=first),
            lambda: memory.write("missing", "lost", when=second),
        ]
        for call in calls:
            with pytest.raises(ConflictError):
                call()
        assert memory.read("file") == "two"
        memory.edit("file", str.upper, when=second)
        memory.append("file", "+", when=state(changing))
        assert memory.read("file") == "TWO+"

    @pytest.mark.parametrize("state", _STATES.values(), ids=_STATES)
    def test_a_condition_on_the_state_decides_about_a_delete(
        self, deleting: ContractStore, state: Callable[[ContractStore], SHA256 | ETag]
    ) -> None:
        memory = deleting.memory()
        memory.write("file", "one")
        first = state(deleting)
        memory.write("file", "two")
        with pytest.raises(ConflictError):
            memory.delete("file", when=first)
        memory.delete("file", when=state(deleting))
        assert memory.list() == ()

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

    def test_an_async_caller_gets_the_same(self, deleting: ContractStore) -> None:
        asyncio.run(_use(AsyncAgentMemory.open(deleting.backend)))
        assert deleting.names() == ("c/log",)

    def test_random_operations_do_what_they_do_on_a_dict(self, deleting: ContractStore, backend: AnyBackend) -> None:
        assert deleting.backend is backend
        check_against_model(backend, examples=self.model_examples, steps=self.model_steps)


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
    with pytest.raises(AgentMemoryFileNotFoundError):
        await memory.read("b/log")
