"""The service and its trees: the same for sync and async callers, narrow views, nothing beside what was asked."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryFileNotFoundError,
    AgentMemoryService,
    AsyncAgentMemory,
    AsyncAgentMemoryService,
    BackendNotAvailableError,
    ConflictError,
    FileAlreadyExistsError,
    FileTooLargeError,
    InvalidContentError,
    InvalidPathError,
    Operation,
    OperationDenied,
    PartialOperationError,
    PathTraversalError,
    ReadError,
    hookimpl,
)
from agent_memory.backend import Page
from agent_memory.key import Key
from agent_memory_memory import MemoryBackend
from tests.support.servers import Root

KINDS = [(AgentMemory, AsyncAgentMemory), (AgentMemoryService, AsyncAgentMemoryService)]


def public_methods(cls: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(member)
        for name, member in inspect.getmembers(cls, inspect.isroutine)
        if not name.startswith("_")
    }


@pytest.mark.parametrize(("sync", "asynchronous"), KINDS)
def test_sync_and_async_have_the_same_methods_and_arguments(sync: type, asynchronous: type) -> None:
    here, there = public_methods(sync), public_methods(asynchronous)
    assert here.pop("close").parameters == there.pop("aclose").parameters
    assert here.keys() == there.keys()
    for name in here.keys() - {"agent"}:
        assert here[name].parameters == there[name].parameters, name
    waits = {name for name in there if inspect.iscoroutinefunction(getattr(asynchronous, name))}
    assert there.keys() - waits <= {"open", "agent", "subtree", "read_only", "acting_as", "with_timeout", "filesystem"}


def test_the_async_service_does_what_the_sync_one_does(root: Root) -> None:
    async def use() -> tuple[object, ...]:
        async with AsyncAgentMemoryService(root.url, storage_options=root.options) as service:
            written = await service.write_memory_file("bob", "a.md", "one\n")
            await service.append_to_memory_file("bob", "a.md", "two\n")
            await service.create_memory_file("bob", "b.md", "b")
            await service.rename_memory_file("bob", "b.md", "c/d.md")
            memory = service.agent("bob")
            await memory.edit("a.md", str.upper)
            await memory.copy("c", "e")
            await memory.delete_tree("c")
            await service.delete_memory_file("bob", "e/d.md")
            with pytest.raises(AgentMemoryFileNotFoundError):
                await service.read_memory_file("bob", "e/d.md")
            with pytest.raises(PathTraversalError):
                await memory.read("../x")
            exists = await service.memory_file_exists("bob", "a.md")
            return written.size, exists, await service.read_memory_file("bob", "a.md"), await service.agent_ids()

    assert asyncio.run(use()) == (4, True, "ONE\nTWO\n", ("bob",))
    with AgentMemoryService(root.url, storage_options=root.options) as service:
        assert [str(entry) for entry in service.list_memory_files("bob")] == ["a.md"]


@pytest.fixture
def memory() -> AgentMemory:
    return AgentMemory.open("memory://")


def test_text_is_stored_byte_for_byte(memory: AgentMemory) -> None:
    text = "\ufeffCRLF\r\nLF\nCR\rend\x00\x1b[0m\u2028日本\U0001f600"
    memory.write("a.md", text)
    assert memory.read("a.md") == text
    assert memory.read_bytes("a.md") == text.encode()


def test_what_is_not_utf8_is_a_read_error_and_still_readable_as_bytes(memory: AgentMemory) -> None:
    memory.write_bytes("a.bin", b"caf\xe9")
    with pytest.raises(ReadError, match="not UTF-8 text: byte 3"):
        memory.read("a.bin")
    with pytest.raises(ReadError):
        memory.edit("a.bin", str.upper)
    assert memory.read_bytes("a.bin") == b"caf\xe9"


@pytest.mark.parametrize("content", [None, 3, b"bytes", ["a"], "lone \ud800 surrogate"])
def test_content_that_is_no_text_is_refused_and_nothing_is_written(memory: AgentMemory, content: str) -> None:
    memory.write("a.md", "old")
    for write in (memory.write, memory.append):
        with pytest.raises(InvalidContentError):
            write("a.md", content)
    with pytest.raises(InvalidContentError):
        memory.create("new.md", content)
    with pytest.raises(InvalidContentError):
        memory.edit("a.md", lambda _: content)
    assert [(str(entry), memory.read(str(entry))) for entry in memory.list()] == [("a.md", "old")]


def test_write_bytes_takes_bytes_only(memory: AgentMemory) -> None:
    memory.write_bytes("a.bin", bytearray(b"xy"))  # type: ignore[arg-type]  # harmless, so taken
    assert memory.read_bytes("a.bin") == b"xy"
    with pytest.raises(InvalidContentError, match="content must be bytes, not str"):
        memory.write_bytes("a.bin", "text")  # type: ignore[arg-type]


def test_more_bytes_than_one_call_may_carry_are_refused_and_the_old_content_stays() -> None:
    backend = MemoryBackend()
    backend.max_bytes = 10
    with AgentMemory.open(backend) as memory:
        memory.write("a.md", "0123456789")
        for write in (memory.write, memory.append):
            with pytest.raises(FileTooLargeError, match="11 bytes are more than the limit of 10"):
                write("a.md", "0123456789a")
        with pytest.raises(FileTooLargeError):
            memory.edit("a.md", lambda text: text * 2)
        assert memory.read("a.md") == "0123456789"
        memory.append("a.md", "x")
        with pytest.raises(FileTooLargeError):
            memory.read("a.md")


SHA_OF_OLD = "cba06b5736faf67e54b07b561eae94395e774c517a7d910a54369e1263ccfbd4"


def test_a_precondition_on_content_decides_whether_anything_is_written(memory: AgentMemory) -> None:
    memory.write("a.md", "old")
    wrong = "0" * 64
    with pytest.raises(ConflictError):
        memory.write("a.md", "new", expected_sha256=wrong)
    with pytest.raises(ConflictError):
        memory.append("a.md", "new", expected_sha256=wrong)
    with pytest.raises(ConflictError):
        memory.edit("a.md", str.upper, expected_sha256=wrong)
    with pytest.raises(ConflictError):
        memory.delete("a.md", expected_sha256=wrong)
    assert memory.read("a.md") == "old"
    memory.append("a.md", "er", expected_sha256=SHA_OF_OLD.upper())
    assert memory.read("a.md") == "older"
    for missing in (memory.write, memory.append):
        with pytest.raises(ConflictError):
            missing("missing.md", "x", expected_sha256=wrong)


@pytest.mark.parametrize("digest", ["", "abc", "g" * 64, SHA_OF_OLD + "\n", 5])
def test_a_malformed_digest_is_refused_as_such(memory: AgentMemory, digest: str) -> None:
    memory.write("a.md", "old")
    with pytest.raises(InvalidContentError, match="64 hexadecimal digits"):
        memory.write("a.md", "new", expected_sha256=digest)
    assert memory.read("a.md") == "old"


def test_an_edit_that_changes_nothing_writes_nothing(memory: AgentMemory) -> None:
    memory.write("a.md", "old")
    before = memory.stat("a.md")
    assert memory.edit("a.md", lambda text: text).sha256 == SHA_OF_OLD
    assert memory.stat("a.md") == before


def test_what_a_change_raises_reaches_the_caller_and_nothing_is_written(memory: AgentMemory) -> None:
    memory.write("a.md", "old")

    def change(_: str) -> str:
        raise KeyError("the caller's own")

    with pytest.raises(KeyError, match="the caller's own"):
        memory.edit("a.md", change)
    assert memory.read("a.md") == "old"


def test_an_edit_sees_what_others_wrote_meanwhile(memory: AgentMemory) -> None:
    memory.write("a.md", "old")
    seen: list[str] = []

    def change(text: str) -> str:
        if not seen:
            memory.append("a.md", "er")
        seen.append(text)
        return text + "!"

    memory.edit("a.md", change)
    assert seen == ["old", "older"]
    assert memory.read("a.md") == "older!"


def test_rename_never_overwrites_and_keeps_both(memory: AgentMemory) -> None:
    memory.write("a.md", "a")
    memory.write("d/b.md", "b")
    memory.write("e/b.md", "c")
    for source, target in [("a.md", "d/b.md"), ("a.md", "a.md"), ("d", "e"), ("d", "a.md"), ("a.md", "d")]:
        for move in (memory.rename, memory.copy):
            with pytest.raises(FileAlreadyExistsError):
                move(source, target)
    with pytest.raises(InvalidPathError) as refused:
        memory.rename("d", "d/inside")
    assert refused.value.rule == "into-itself"
    left = {str(entry): memory.read(str(entry)) for entry in memory.list()}
    assert left == {"a.md": "a", "d/b.md": "b", "e/b.md": "c"}


def test_a_subtree_sees_its_own_files_and_nothing_above(memory: AgentMemory) -> None:
    memory.write("secret.md", "secret")
    view = memory.subtree("notes/2026/")
    assert view.write("a.md", "x").path == "a.md"
    assert [str(entry) for entry in view.list()] == ["a.md"]
    assert str(view.stat("a.md")) == "a.md"
    assert memory.read("notes/2026/a.md") == "x"
    for escape in ("../secret.md", "/secret.md", "a/../../secret.md"):
        with pytest.raises(PathTraversalError):
            view.read(escape)
    with pytest.raises(PathTraversalError):
        memory.subtree("../other")
    assert view.subtree("").delete_tree("").files == 1
    assert view.delete_tree("").files == 0
    assert memory.exists("secret.md")


def test_a_read_only_view_reads_and_writes_nothing(memory: AgentMemory) -> None:
    memory.write("d/a.md", "old")
    view = memory.read_only().subtree("d").acting_as("somebody")
    assert view.read("a.md") == "old"
    assert [str(entry) for entry in view.list()] == ["a.md"]
    writes: list[Callable[[], object]] = [
        lambda: view.write("a.md", "x"),
        lambda: view.write_bytes("a.md", b"x"),
        lambda: view.append("a.md", "x"),
        lambda: view.create("b.md", "x"),
        lambda: view.edit("a.md", str.upper),
        lambda: view.delete("a.md"),
        lambda: view.delete_tree(""),
        lambda: view.rename("a.md", "b.md"),
        lambda: view.copy("a.md", "b.md"),
    ]
    for write in writes:
        with pytest.raises(OperationDenied):
            write()
    assert [(str(entry), memory.read(str(entry))) for entry in memory.list()] == [("d/a.md", "old")]


def test_views_tell_the_hooks_who_acts() -> None:
    seen: list[tuple[str | None, str | None]] = []

    class Observer:
        @hookimpl
        def agent_memory_before_operation(self, operation: Operation) -> None:
            seen.append((operation.actor, operation.tool_call_id))

    with AgentMemoryService("memory://", plugins=[Observer()], actor="ops") as service:
        memory = service.agent("bob")
        memory.list()
        memory.acting_as("model", "call-1").list()
        memory.acting_as("model", "call-1").acting_as("human").list()
    assert seen == [("ops", None), ("model", "call-1"), ("human", None)]


def test_agents_see_nothing_of_each_other() -> None:
    with AgentMemoryService("memory://") as service:
        service.write_memory_file("bob", "a.md", "bob's")
        service.write_memory_file("bobby", "a.md", "bobby's")
        assert [str(entry) for entry in service.list_memory_files("bob")] == ["a.md"]
        assert service.agent("bob").delete_tree("").files == 1
        assert service.agent_ids() == ("bobby",)


def test_a_tree_opened_by_itself_hides_our_own_data(tmp_path: Path) -> None:
    internal = tmp_path / ".agent-memory" / "audit"
    internal.mkdir(parents=True)
    (internal / "log.jsonl").write_text("ours")
    with AgentMemory.open(tmp_path) as memory:
        memory.write("a.md", "x")
        assert [str(entry) for entry in memory.list()] == ["a.md"]
        assert [str(entry) for entry in memory.list(recursive=False)] == ["a.md"]
        for path in (".agent-memory/audit/log.jsonl", ".Agent-Memory/x"):
            with pytest.raises(InvalidPathError):
                memory.read(path)
        memory.delete_tree("")
    assert (internal / "log.jsonl").read_text() == "ours"


def test_a_source_checkout_is_no_root(tmp_path: Path) -> None:
    (tmp_path / "agent_memory").mkdir()
    (tmp_path / "agent_memory" / "__init__.py").touch()
    with pytest.raises(InvalidPathError) as refused:
        AgentMemoryService(tmp_path)
    assert refused.value.rule == "source-checkout"
    assert str(tmp_path) not in str(refused.value)


def test_a_memory_url_without_a_name_is_private_and_with_one_is_shared() -> None:
    AgentMemory.open("memory://").write("a.md", "x")
    assert AgentMemory.open("memory://").list() == ()
    AgentMemory.open("memory://shared-by-name").write("a.md", "x")
    assert AgentMemory.open("memory://shared-by-name").read("a.md") == "x"


@pytest.mark.parametrize("root", [None, 3, b"bytes", ["a"]])
def test_a_root_of_another_type_is_refused(root: str) -> None:
    with pytest.raises(TypeError, match="root is a"):
        AgentMemoryService(root)


def test_an_empty_root_an_unknown_scheme_and_unknown_options_are_refused() -> None:
    with pytest.raises(ValueError, match="root is empty"):
        AgentMemoryService("")
    with pytest.raises(BackendNotAvailableError, match="nosuch://"):
        AgentMemoryService("nosuch://somewhere")
    with pytest.raises(TypeError, match="takes no storage options"):
        AgentMemoryService("memory://", storage_options={"key": "secret"})
    with pytest.raises(TypeError, match="already open"):
        AgentMemoryService(MemoryBackend(), storage_options={"key": "secret"})


def test_a_home_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    AgentMemory.open("~/memories").write("a.md", "x")
    assert (tmp_path / "memories" / "a.md").read_text() == "x"


def test_what_is_left_of_a_subtrees_operation_is_named_as_the_subtree_names_it() -> None:
    backend = MemoryBackend()
    with AgentMemory.open(backend) as memory:
        view = memory.subtree("notes")
        view.write("d/a.md", "x")
        view.write("d/b.md", "y" * 11)
        backend.max_bytes = 10
        with pytest.raises(PartialOperationError) as partial:
            view.copy("d", "e")
        assert (partial.value.done, partial.value.left) == (("d/a.md",), ("d/b.md",))
        assert [str(entry) for entry in view.list()] == ["d/a.md", "d/b.md", "e/a.md"]


def test_a_listing_counts_skipped_names_once_however_many_pages() -> None:
    class Paged(MemoryBackend):
        def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
            return super().list(prefix, recursive=recursive, after=after, limit=min(limit, 2))

    backend = Paged()
    filesystem: Any = backend._fs
    for foreign in ("/a:b", "/c "):
        filesystem.pipe_file(foreign, b"theirs")
    with AgentMemory.open(backend) as memory:
        for name in "abcdefg":
            memory.write(name, "x")
        assert memory.delete_tree("").skipped == 2


def test_a_conflict_that_a_change_raises_itself_is_raised_at_once(memory: AgentMemory) -> None:
    memory.write("a.md", "old")
    calls: list[str] = []

    def change(text: str) -> str:
        calls.append(text)
        raise ConflictError("the caller's own")

    with pytest.raises(ConflictError, match="the caller's own"):
        memory.edit("a.md", change)
    assert calls == ["old"]
