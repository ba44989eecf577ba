"""The recorded result of an earlier call, by its idempotency key, on every backend."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_memory import (
    SHA256,
    AgentMemory,
    AgentMemoryService,
    AsyncAgentMemory,
    ConflictError,
    InvalidContentError,
    OperationDenied,
    OutcomeUnknownError,
    ReadError,
    RecordedResult,
    UnsupportedOperationError,
    WriteResult,
    hookimpl,
)
from agent_memory.core.receipts import CallFacts, IdempotencyKey, Receipt, receipt_key
from agent_memory.plugins.redaction import RedactionPlugin
from agent_memory.testing.recording import RecordingPlugin
from agent_memory_memory import MemoryBackend
from tests.support.processes import in_processes
from tests.support.servers import Root
from tests.support.sizes import also

OLD = "old\n"


def plus(text: str) -> str:
    return text + "+\n"


def expected(text: str | None, existed: bool, path: str = "file") -> RecordedResult:
    data = (text or "").encode()
    digest = "" if text is None else hashlib.sha256(data).hexdigest()
    return RecordedResult(path, existed, len(data), digest, None)


def without_etag(result: RecordedResult | None) -> RecordedResult | None:
    return result and replace(result, etag=None)


EDITS: dict[str, tuple[Callable[[AgentMemory], object], RecordedResult]] = {
    "replaces": (lambda m: m.once("k").edit("file", plus), expected("old\n+\n", True)),
    "empties": (lambda m: m.once("k").edit("file", lambda _: ""), expected("", True)),
    "changes nothing": (lambda m: m.once("k").edit("file", lambda text: text), expected(OLD, True)),
    "deletes": (lambda m: m.once("k").edit("file", lambda _: None), expected(None, True)),
    "finds its file": (lambda m: m.once("k").edit("file", plus, missing=""), expected("old\n+\n", True)),
    "creates": (lambda m: m.once("k").edit("new", plus, missing=""), expected("+\n", False, "new")),
    "creates an empty file": (
        lambda m: m.once("k").edit("new", lambda text: text, missing=""),
        expected("", False, "new"),
    ),
    "finds nothing to delete": (
        lambda m: m.once("k").edit("new", lambda _: None, missing=""),
        expected(None, False, "new"),
    ),
    "has bytes": (
        lambda m: m.once("k").edit_bytes("file", lambda data: data + b"\xff"),
        RecordedResult("file", True, 5, hashlib.sha256(b"old\n\xff").hexdigest(), None),
    ),
}
between_processes = pytest.mark.parametrize("root", ["local", *also(["ministack", "seaweedfs", "moto"])], indirect=True)
every_edit = pytest.mark.parametrize("name", EDITS)


def opened(root: Root) -> AgentMemory:
    memory = AgentMemory.open(root.url, storage_options=root.options)
    memory.write("file", OLD)
    return memory


@every_edit
def test_the_result_of_an_edit_is_found_by_its_key(root: Root, name: str) -> None:
    edit, result = EDITS[name]
    with opened(root) as memory:
        assert memory.once("k").result() is None
        edit(memory)
        for _ in range(2):
            assert without_etag(memory.once("k").result()) == result


@every_edit
def test_the_result_is_that_of_the_first_call_and_of_a_repeated_one(root: Root, name: str) -> None:
    edit, _ = EDITS[name]
    with opened(root) as memory:
        first: Any = edit(memory)
        found = memory.once("k").result()
        assert found is not None
        assert (found.path, found.size, found.sha256) == (first.path, first.size, first.sha256)
        assert edit(memory) == first
        assert memory.once("k").result() == found


def test_later_changes_of_the_file_leave_the_result_as_it_is(root: Root) -> None:
    with opened(root) as memory:
        memory.once("k").edit("file", plus)
        memory.write("file", "other")
        assert without_etag(memory.once("k").result()) == expected("old\n+\n", True)
        memory.delete("file")
        assert without_etag(memory.once("k").result()) == expected("old\n+\n", True)


@between_processes
def test_a_result_is_found_in_another_process(root: Root) -> None:
    with opened(root) as memory:
        memory.once("k", of="f").edit("file", plus)
        results = in_processes(2, result_in_process, root)
        assert results == [memory.once("k", of="f").result()] * 2


def result_in_process(_: int, barrier: Any, root: Root) -> RecordedResult | None:
    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        barrier.wait(60)
        return memory.once("k", of="f").result()


@between_processes
def test_two_processes_at_once_make_one_edit_and_find_one_result(root: Root) -> None:
    with opened(root) as memory:
        results = in_processes(2, edit_in_process, root)
        assert [[each and without_etag(each) for each in pair] for pair in results] == [
            [None, expected("old\n+\n", True)]
        ] * 2
        assert memory.read("file") == "old\n+\n"
        assert without_etag(memory.once("k").result()) == expected("old\n+\n", True)


def edit_in_process(_: int, barrier: Any, root: Root) -> list[RecordedResult | None]:
    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        before = memory.once("k").result()
        barrier.wait(60)
        memory.once("k").edit("file", plus)
        return [before, memory.once("k").result()]


# No edit with this key has finished.


def test_a_question_stores_nothing(tmp_path: Path) -> None:
    with AgentMemory.open(tmp_path) as memory:
        assert memory.once("k").result() is None
    assert list(tmp_path.iterdir()) == []


def test_a_refused_edit_has_no_result(root: Root) -> None:
    def fail(text: str) -> str:
        raise LookupError(text)

    with opened(root) as memory:
        with pytest.raises(LookupError):
            memory.once("k").edit("file", fail)
        with pytest.raises(ConflictError):
            memory.once("k").edit("file", plus, when=SHA256("0" * 64))
        assert memory.once("k").result() is None
        memory.once("k").edit("file", plus)
        assert without_etag(memory.once("k").result()) == expected("old\n+\n", True)


def left_behind(memory: AgentMemory, kind: str, fingerprint: str, until: float, content: bytes = b"") -> None:
    """The receipt of a call that has not told its end."""
    given, backend = IdempotencyKey("k", fingerprint), memory._tree.backend
    assert isinstance(backend, MemoryBackend)
    backend.write(
        receipt_key(None, given), Receipt.begun(given, CallFacts(kind, "file", content), until, 1e13).to_bytes()
    )


@pytest.mark.parametrize("until", [1.0, 1e12], ids=["killed", "under way"])
def test_a_call_that_has_not_told_its_end_has_no_result_yet(until: float) -> None:
    memory = AgentMemory.open("memory://")
    left_behind(memory, "edit", "f", until)
    with pytest.raises(OutcomeUnknownError):
        memory.once("k", of="f").result()
    with pytest.raises(ConflictError, match="belongs to another call"):
        memory.once("k", of="g").result()


def test_an_expired_result_is_gone(root: Root) -> None:
    with opened(root) as memory:
        memory.once("k", of="f", window=1e-6).edit("file", plus)
        assert memory.once("k", of="f").result() is None
        assert memory.once("k", of="g").result() is None


def test_a_forgotten_file_has_no_result() -> None:
    memory = AgentMemory.open("memory://")
    memory.once("k").edit("file", plus, missing="")
    memory.once("l").edit("other", plus, missing="")
    memory.forget("file")
    assert memory.once("k").result() is None
    assert memory.once("l").result() is not None


# The key belongs to another call.


@pytest.mark.parametrize(
    "other",
    [
        lambda m: m.once("k", of="f").write("file", "x"),
        lambda m: m.once("k", of="f").rename("file", "moved"),
        lambda m: m.once("k", of="f").edit("file", plus),
    ],
    ids=["write", "rename", "edit"],
)
def test_the_key_of_another_call_is_refused(root: Root, other: Callable[[AgentMemory], object]) -> None:
    with opened(root) as memory:
        other(memory)
        with pytest.raises(ConflictError, match="belongs to another call"):
            memory.once("k").result()


CHANGES: dict[str, tuple[Callable[[Any], object], tuple[str, bool | None, int]]] = {
    "write": (lambda m: m.write("file", "x"), ("file", None, 1)),
    "write bytes": (lambda m: m.write("file", b"xy"), ("file", None, 2)),
    "write blocks": (lambda m: m.write_blocks("file", [b"x", b"y"], 2), ("file", None, 2)),
    "append": (lambda m: m.append("file", "x"), ("file", None, 5)),
    "create": (lambda m: m.create("new", "x"), ("new", False, 1)),
    "delete": (lambda m: m.delete("file"), ("file", True, 0)),
    "delete a directory": (lambda m: m.delete_tree("d"), ("d", None, 0)),
    "rename": (lambda m: m.rename("file", "moved"), ("file", True, len(OLD))),
    "rename a directory": (lambda m: m.rename("d", "e"), ("d", True, 0)),
    "copy": (lambda m: m.copy("file", "copied"), ("file", None, len(OLD))),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_is_made_once_and_its_result_is_recorded(root: Root, name: str) -> None:
    change, (path, existed, size) = CHANGES[name]
    with opened(root) as memory:
        memory.write("d/file", "x")
        first = change(memory.once("k"))
        files = {entry.path: memory.read_bytes(entry.path) for entry in memory.list()}
        found = memory.once("k").result()
        assert found is not None
        assert (found.path, found.existed, found.size) == (path, existed, size)
        repeated = change(memory.once("k"))
        assert {entry.path: memory.read_bytes(entry.path) for entry in memory.list()} == files
        if isinstance(first, WriteResult):
            assert isinstance(repeated, WriteResult)
            assert replace(first, etag=None) == replace(repeated, etag=None)
        else:
            assert repeated == first


@pytest.mark.parametrize("name", CHANGES)
def test_another_change_with_the_key_is_refused(root: Root, name: str) -> None:
    with opened(root) as memory:
        memory.write("d/file", "x")
        memory.once("k").write("other", "x")
        before = [entry.path for entry in memory.list()]
        with pytest.raises(ConflictError, match="belongs to another call"):
            CHANGES[name][0](memory.once("k"))
        assert [entry.path for entry in memory.list()] == before


@pytest.mark.parametrize(
    ("change", "other"),
    [
        (lambda m: m.rename("file", "a"), lambda m: m.rename("file", "b")),
        (lambda m: m.copy("file", "a"), lambda m: m.copy("file", "b")),
        (lambda m: m.write_blocks("file", [b"xy"], 2), lambda m: m.write_blocks("file", [b"xyz"], 3)),
    ],
    ids=["rename", "copy", "write_blocks"],
)
def test_calls_with_other_arguments_are_other_calls(change: Callable[[Any], object], other: Any) -> None:
    memory = AgentMemory.open("memory://")
    memory.write("file", OLD)
    change(memory.once("k"))
    with pytest.raises(ConflictError):
        other(memory.once("k"))


def test_the_recorded_etag_is_a_precondition(root: Root) -> None:
    with opened(root) as memory:
        memory.once("k").write("file", "x")
        found = memory.once("k").result()
        assert found is not None
        assert found.etag == memory.stat("file").etag
        assert found.etag is not None
        memory.write("file", "y", when=found.etag)
        with pytest.raises(ConflictError):
            memory.write("file", "z", when=found.etag)


REFUSED: dict[str, Callable[[Any], object]] = {
    "forget": lambda m: m.forget("file"),
    "undo": lambda m: m.versions.undo(actor="ann"),
    "redact": lambda m: m.versions.redact("file", "id", reason="x"),
    "prune": lambda m: m.versions.prune(),
    "set_limits": lambda m: m.versions.set_limits(None),
}


@pytest.mark.parametrize("name", REFUSED)
def test_calls_that_end_in_the_same_state_each_time_take_no_key(name: str) -> None:
    memory = AgentMemory.open("memory://")
    memory.write("file", OLD)
    with pytest.raises(UnsupportedOperationError, match="takes no idempotency key"):
        REFUSED[name](memory.once("k"))
    assert memory.read("file") == OLD


def test_only_the_same_fingerprint_finds_the_result(root: Root) -> None:
    with opened(root) as memory:
        memory.once("k", of="f").edit("file", plus)
        assert without_etag(memory.once("k", of="f").result()) == expected("old\n+\n", True)
        for other in ("", "F", "f "):
            with pytest.raises(ConflictError):
                memory.once("k", of=other).result()


# Views.


def test_a_view_of_a_directory_finds_the_edits_of_its_files_by_their_names_in_it(root: Root) -> None:
    with opened(root) as memory:
        memory.once("k").edit("a/b/file", plus, missing="")
        assert without_etag(memory.once("k").result()) == expected("+\n", False, "a/b/file")
        assert without_etag(memory.subtree("a").once("k").result()) == expected("+\n", False, "b/file")
        assert without_etag(memory.subtree("a").subtree("b").once("k").result()) == expected("+\n", False)
        for other in ("a/c", "a/b/f", "a/b/file2", "ab"):
            with pytest.raises(ConflictError, match="belongs to another call"):
                memory.subtree(other).once("k").result()


def test_an_edit_by_a_view_of_a_directory_is_found_by_the_whole_tree(root: Root) -> None:
    with opened(root) as memory:
        memory.subtree("a").once("k").edit("file", plus, missing="")
        assert without_etag(memory.once("k").result()) == expected("+\n", False, "a/file")


def test_a_view_with_other_permissions_or_windows_finds_the_result() -> None:
    memory = AgentMemory.open("memory://")
    memory.once("k").edit("file", plus, missing="")
    views = (memory.read_only(), memory.acting_as("bob"), memory.with_timeout(9))
    for view in views:
        assert without_etag(view.once("k").result()) == expected("+\n", False)


def test_a_result_belongs_to_one_agent() -> None:
    service = AgentMemoryService("memory://")
    service.agent("ann").once("k").edit("file", plus, missing="")
    assert without_etag(service.agent("ann").once("k").result()) == expected("+\n", False)
    assert service.agent("bob").once("k").result() is None


# Async callers, hooks, and receipts of other makes.


@pytest.mark.asyncio
async def test_async_callers_get_the_same_result(root: Root) -> None:
    async with AsyncAgentMemory.open(root.url, storage_options=root.options) as memory:
        assert await memory.once("k", of="f").result() is None
        await memory.once("k", of="f").edit("file", plus, missing="")
        assert without_etag(await memory.once("k", of="f").result()) == expected("+\n", False)
        assert await memory.subtree("a").once("l").result() is None
        with pytest.raises(ConflictError):
            await memory.once("k").result()


def test_a_sync_and_an_async_view_of_one_memory_find_the_same_result() -> None:
    memory = AgentMemory.open("memory://")
    memory.once("k").edit("file", plus, missing="")
    assert without_etag(memory.as_async().as_sync().once("k").result()) == expected("+\n", False)


def test_plugins_see_a_question_as_one_reading_operation() -> None:
    recorder = RecordingPlugin()
    memory = AgentMemory.open("memory://", plugins=[recorder])
    memory.subtree("a").once("k").result()
    ((operation, outcome),) = recorder.after
    assert (operation.kind, operation.path, outcome.status) == ("stat", "a", "ok")
    assert recorder.before == [operation]


def test_a_guard_can_refuse_a_question() -> None:
    class Guard:
        @hookimpl
        def agent_memory_before_operation(self) -> None:
            raise OperationDenied("not today")

    backend = MemoryBackend()
    AgentMemory.open(backend).once("k").edit("file", plus, missing="")
    with pytest.raises(OperationDenied, match="not today"):
        AgentMemory.open(backend, plugins=[Guard()]).once("k").result()


def test_the_digest_is_that_of_the_stored_content() -> None:
    memory = AgentMemory.open("memory://", plugins=[RedactionPlugin()])
    memory.once("k").edit("file", lambda _: "ghp_" + "a1B2" * 9, missing="")
    found = memory.once("k").result()
    assert found is not None
    assert found.sha256 == hashlib.sha256(memory.read_bytes("file")).hexdigest()
    assert found.size == len(memory.read_bytes("file"))


@pytest.mark.parametrize("key", ["", "x" * 129, "\ud800", 7, b"k", None])
def test_a_malformed_key_is_refused(key: Any) -> None:
    with pytest.raises(InvalidContentError, match="key must be"):
        AgentMemory.open("memory://").once(key).result()


@pytest.mark.parametrize("fingerprint", ["x" * 4097, "\ud800", 7, None])
def test_a_malformed_fingerprint_is_refused(fingerprint: Any) -> None:
    with pytest.raises(InvalidContentError, match="of must be"):
        AgentMemory.open("memory://").once("k", of=fingerprint).result()


def only_receipt(directory: Path) -> Path:
    (receipt,) = (directory / ".agent-memory" / "receipts" / "-").iterdir()
    return receipt


@pytest.mark.parametrize("damage", ["", "{}", "[1]", '{"existed": 1}'])
def test_a_damaged_receipt_is_told(tmp_path: Path, damage: str) -> None:
    with AgentMemory.open(tmp_path) as memory:
        memory.once("k").edit("file", plus, missing="")
        fields = json.loads(only_receipt(tmp_path).read_text())
        text = json.dumps(fields | json.loads(damage)) if "existed" in damage else damage
        only_receipt(tmp_path).write_text(text)
        with pytest.raises(ReadError, match="receipt"):
            memory.once("k").result()
