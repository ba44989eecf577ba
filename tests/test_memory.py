"""One memory: content, preconditions, edits, and its views."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_memory import (
    SHA256,
    AgentMemory,
    AgentMemoryService,
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

SHA_OF_OLD = "cba06b5736faf67e54b07b561eae94395e774c517a7d910a54369e1263ccfbd4"


@pytest.fixture
def memory() -> AgentMemory:
    return AgentMemory.open("memory://")


def test_text_is_stored_byte_for_byte(memory: AgentMemory) -> None:
    text = "\ufeffCRLF\r\nLF\nCR\rend\x00\x1b[0m\u2028日本\U0001f600"
    memory.write("a.md", text)
    assert memory.read("a.md") == text
    assert memory.read_bytes("a.md") == text.encode()


def test_a_file_that_is_not_utf8_raises_a_read_error_but_is_readable_as_bytes(memory: AgentMemory) -> None:
    memory.write("a.bin", b"caf\xe9")
    with pytest.raises(ReadError, match="not UTF-8 text: byte 3"):
        memory.read("a.bin")
    with pytest.raises(ReadError):
        memory.edit("a.bin", str.upper)
    assert memory.read_bytes("a.bin") == b"caf\xe9"


@pytest.mark.parametrize("content", [None, 3, ["a"], "lone \ud800 surrogate"])
def test_content_that_is_no_text_is_refused_and_nothing_is_written(memory: AgentMemory, content: str) -> None:
    memory.write("a.md", "old")
    for write in (memory.write, memory.append):
        with pytest.raises(InvalidContentError):
            write("a.md", content)
    with pytest.raises(InvalidContentError):
        memory.create("new.md", content)
    if content is not None:  # from an edit, None deletes the file
        with pytest.raises(InvalidContentError):
            memory.edit("a.md", lambda _: content)
    assert [(str(entry), memory.read(str(entry))) for entry in memory.list()] == [("a.md", "old")]


def test_content_is_a_text_or_bytes(memory: AgentMemory) -> None:
    memory.write("a.bin", bytearray(b"xy"))  # type: ignore[arg-type]  # harmless, so accepted
    assert memory.read_bytes("a.bin") == b"xy"
    for content in (None, 5, ["x"]):
        with pytest.raises(InvalidContentError, match="content must be a str or bytes, not"):
            memory.write("a.bin", content)  # type: ignore[arg-type]


def test_too_many_bytes_for_one_call_are_refused_and_the_old_content_stays() -> None:
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


def test_a_write_happens_only_if_its_precondition_on_the_content_holds(memory: AgentMemory) -> None:
    memory.write("a.md", "old")
    wrong = "0" * 64
    with pytest.raises(ConflictError):
        memory.write("a.md", "new", when=SHA256(wrong))
    with pytest.raises(ConflictError):
        memory.append("a.md", "new", when=SHA256(wrong))
    with pytest.raises(ConflictError):
        memory.edit("a.md", str.upper, when=SHA256(wrong))
    with pytest.raises(ConflictError):
        memory.delete("a.md", when=SHA256(wrong))
    assert memory.read("a.md") == "old"
    memory.append("a.md", "er", when=SHA256(SHA_OF_OLD.upper()))
    assert memory.read("a.md") == "older"
    for missing in (memory.write, memory.append):
        with pytest.raises(ConflictError):
            missing("missing.md", "x", when=SHA256(wrong))


@pytest.mark.parametrize("digest", ["", "abc", "g" * 64, SHA_OF_OLD + "\n", 5])
def test_a_malformed_digest_is_refused(memory: AgentMemory, digest: str) -> None:
    memory.write("a.md", "old")
    with pytest.raises(InvalidContentError, match="64 hexadecimal digits"):
        memory.write("a.md", "new", when=SHA256(digest))
    assert memory.read("a.md") == "old"


def test_an_edit_that_changes_nothing_writes_nothing(memory: AgentMemory) -> None:
    memory.write("a.md", "old")
    before = memory.stat("a.md")
    assert memory.edit("a.md", lambda text: text).sha256 == SHA_OF_OLD
    assert memory.stat("a.md") == before


def test_an_exception_of_the_change_function_reaches_the_caller_without_a_write(memory: AgentMemory) -> None:
    memory.write("a.md", "old")

    def change(_: str) -> str:
        raise KeyError("the caller's own")

    with pytest.raises(KeyError, match="the caller's own"):
        memory.edit("a.md", change)
    assert memory.read("a.md") == "old"


def test_an_edit_is_repeated_on_a_concurrent_write(memory: AgentMemory) -> None:
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


def test_rename_and_copy_never_overwrite(memory: AgentMemory) -> None:
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


def test_a_subtree_sees_only_its_own_files(memory: AgentMemory) -> None:
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


def test_a_read_only_view_reads_but_does_not_write(memory: AgentMemory) -> None:
    memory.write("d/a.md", "old")
    view = memory.read_only().subtree("d").acting_as("somebody")
    assert view.read("a.md") == "old"
    assert [str(entry) for entry in view.list()] == ["a.md"]
    writes: list[Callable[[], object]] = [
        lambda: view.write("a.md", "x"),
        lambda: view.write("a.md", b"x"),
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


def test_views_pass_their_actor_to_the_hooks() -> None:
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


def test_a_tree_opened_without_agents_hides_the_packages_own_data(tmp_path: Path) -> None:
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


def test_a_partial_operation_of_a_subtree_lists_paths_relative_to_it() -> None:
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


def test_a_listing_of_many_pages_counts_each_skipped_name_once() -> None:
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


def test_a_conflict_error_raised_by_the_change_function_is_not_retried(memory: AgentMemory) -> None:
    memory.write("a.md", "old")
    calls: list[str] = []

    def change(text: str) -> str:
        calls.append(text)
        raise ConflictError("the caller's own")

    with pytest.raises(ConflictError, match="the caller's own"):
        memory.edit("a.md", change)
    assert calls == ["old"]
