"""The result of an earlier edit, by its idempotency key, on every backend."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryService,
    AsyncAgentMemory,
    ConflictError,
    EditResult,
    InvalidContentError,
    OperationDenied,
    ReadError,
    hookimpl,
)
from agent_memory.core.receipts import IdempotencyKey, Receipt, receipt_key
from agent_memory.plugins.redaction import RedactionPlugin
from agent_memory.testing.recording import RecordingPlugin
from agent_memory_memory import MemoryBackend
from tests.support.processes import in_processes
from tests.support.servers import Root
from tests.support.sizes import also

OLD = "old\n"


def plus(text: str) -> str:
    return text + "+\n"


def expected(text: str | None, existed: bool, path: str = "file") -> EditResult:
    data = (text or "").encode()
    return EditResult(path, len(data), "" if text is None else hashlib.sha256(data).hexdigest(), existed)


EDITS: dict[str, tuple[Callable[[AgentMemory], object], EditResult]] = {
    "replaces": (lambda m: m.edit("file", plus, idempotency_key="k"), expected("old\n+\n", True)),
    "empties": (lambda m: m.edit("file", lambda _: "", idempotency_key="k"), expected("", True)),
    "changes nothing": (lambda m: m.edit("file", lambda text: text, idempotency_key="k"), expected(OLD, True)),
    "deletes": (lambda m: m.edit("file", lambda _: None, idempotency_key="k"), expected(None, True)),
    "finds its file": (lambda m: m.edit("file", plus, missing="", idempotency_key="k"), expected("old\n+\n", True)),
    "creates": (lambda m: m.edit("new", plus, missing="", idempotency_key="k"), expected("+\n", False, "new")),
    "creates an empty file": (
        lambda m: m.edit("new", lambda text: text, missing="", idempotency_key="k"),
        expected("", False, "new"),
    ),
    "finds nothing to delete": (
        lambda m: m.edit("new", lambda _: None, missing="", idempotency_key="k"),
        expected(None, False, "new"),
    ),
    "has bytes": (
        lambda m: m.edit_bytes("file", lambda data: data + b"\xff", idempotency_key="k"),
        EditResult("file", 5, hashlib.sha256(b"old\n\xff").hexdigest(), True),
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
        assert memory.edit_result("k") is None
        edit(memory)
        for _ in range(2):
            assert memory.edit_result("k") == result


@every_edit
def test_the_result_is_that_of_the_first_call_and_of_a_repeated_one(root: Root, name: str) -> None:
    edit, _ = EDITS[name]
    with opened(root) as memory:
        first: Any = edit(memory)
        found = memory.edit_result("k")
        assert found is not None
        assert found[:3] == first[:3]
        repeated: Any = edit(memory)
        assert repeated[:3] == first[:3]
        assert memory.edit_result("k") == found


def test_later_changes_of_the_file_leave_the_result_as_it_is(root: Root) -> None:
    with opened(root) as memory:
        memory.edit("file", plus, idempotency_key="k")
        memory.write("file", "other")
        assert memory.edit_result("k") == expected("old\n+\n", True)
        memory.delete("file")
        assert memory.edit_result("k") == expected("old\n+\n", True)


@between_processes
def test_a_result_is_found_in_another_process(root: Root) -> None:
    with opened(root) as memory:
        memory.edit("file", plus, idempotency_key="k", fingerprint="f")
        results = in_processes(2, result_in_process, root)
        assert results == [memory.edit_result("k", fingerprint="f")] * 2


def result_in_process(_: int, barrier: Any, root: Root) -> EditResult | None:
    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        barrier.wait(60)
        return memory.edit_result("k", fingerprint="f")


@between_processes
def test_two_processes_at_once_make_one_edit_and_find_one_result(root: Root) -> None:
    with opened(root) as memory:
        results = in_processes(2, edit_in_process, root)
        assert results == [[None, expected("old\n+\n", True)]] * 2
        assert memory.read("file") == "old\n+\n"
        assert memory.edit_result("k") == expected("old\n+\n", True)


def edit_in_process(_: int, barrier: Any, root: Root) -> list[EditResult | None]:
    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        before = memory.edit_result("k")
        barrier.wait(60)
        memory.edit("file", plus, idempotency_key="k")
        return [before, memory.edit_result("k")]


# No edit with this key has finished.


def test_a_question_stores_nothing(tmp_path: Path) -> None:
    with AgentMemory.open(tmp_path) as memory:
        assert memory.edit_result("k") is None
    assert list(tmp_path.iterdir()) == []


def test_a_refused_edit_has_no_result(root: Root) -> None:
    def fail(text: str) -> str:
        raise LookupError(text)

    with opened(root) as memory:
        with pytest.raises(LookupError):
            memory.edit("file", fail, idempotency_key="k")
        with pytest.raises(ConflictError):
            memory.edit("file", plus, idempotency_key="k", expected_sha256="0" * 64)
        assert memory.edit_result("k") is None
        memory.edit("file", plus, idempotency_key="k")
        assert memory.edit_result("k") == expected("old\n+\n", True)


def left_behind(memory: AgentMemory, kind: str, fingerprint: str, until: float, content: bytes = b"") -> None:
    """The receipt of a call that has not told its end."""
    given, backend = IdempotencyKey("k", fingerprint), memory._tree.backend
    assert isinstance(backend, MemoryBackend)
    backend.write(receipt_key(None, given), Receipt.begun(given, kind, "file", content, until, 1e13).to_bytes())


@pytest.mark.parametrize("until", [1.0, 1e12], ids=["killed", "under way"])
def test_an_edit_that_has_not_told_its_end_has_no_result(until: float) -> None:
    memory = AgentMemory.open("memory://")
    left_behind(memory, "edit", "f", until)
    assert memory.edit_result("k", fingerprint="f") is None
    with pytest.raises(ConflictError, match="belongs to another call"):
        memory.edit_result("k", fingerprint="g")


def test_an_expired_result_is_gone(root: Root) -> None:
    with opened(root) as memory:
        memory.with_idempotency_window(1e-6).edit("file", plus, idempotency_key="k", fingerprint="f")
        assert memory.edit_result("k", fingerprint="f") is None
        assert memory.edit_result("k", fingerprint="g") is None


def test_a_forgotten_file_has_no_result() -> None:
    memory = AgentMemory.open("memory://")
    memory.edit("file", plus, missing="", idempotency_key="k")
    memory.edit("other", plus, missing="", idempotency_key="l")
    memory.forget("file")
    assert memory.edit_result("k") is None
    assert memory.edit_result("l") is not None


# The key belongs to another call.


@pytest.mark.parametrize(
    "other",
    [
        lambda m: m.write("file", "x", idempotency_key="k"),
        lambda m: m.append("file", "x", idempotency_key="k"),
        lambda m: m.create("new", "x", idempotency_key="k"),
        lambda m: m.delete("file", idempotency_key="k"),
        lambda m: m.edit("file", plus, idempotency_key="k", fingerprint="f"),
    ],
    ids=["write", "append", "create", "delete", "fingerprint"],
)
def test_the_key_of_another_call_is_refused(root: Root, other: Callable[[AgentMemory], object]) -> None:
    with opened(root) as memory:
        other(memory)
        with pytest.raises(ConflictError, match="belongs to another call"):
            memory.edit_result("k")


def test_only_the_same_fingerprint_finds_the_result(root: Root) -> None:
    with opened(root) as memory:
        memory.edit("file", plus, idempotency_key="k", fingerprint="f")
        assert memory.edit_result("k", fingerprint="f") == expected("old\n+\n", True)
        for other in ("", "F", "f "):
            with pytest.raises(ConflictError):
                memory.edit_result("k", fingerprint=other)


# Views.


def test_a_view_of_a_directory_finds_the_edits_of_its_files_by_their_names_in_it(root: Root) -> None:
    with opened(root) as memory:
        memory.edit("a/b/file", plus, missing="", idempotency_key="k")
        assert memory.edit_result("k") == expected("+\n", False, "a/b/file")
        assert memory.subtree("a").edit_result("k") == expected("+\n", False, "b/file")
        assert memory.subtree("a").subtree("b").edit_result("k") == expected("+\n", False)
        for other in ("a/c", "a/b/f", "a/b/file2", "ab"):
            with pytest.raises(ConflictError, match="belongs to another call"):
                memory.subtree(other).edit_result("k")


def test_an_edit_by_a_view_of_a_directory_is_found_by_the_whole_tree(root: Root) -> None:
    with opened(root) as memory:
        memory.subtree("a").edit("file", plus, missing="", idempotency_key="k")
        assert memory.edit_result("k") == expected("+\n", False, "a/file")


def test_a_view_with_other_permissions_or_windows_finds_the_result() -> None:
    memory = AgentMemory.open("memory://")
    memory.edit("file", plus, missing="", idempotency_key="k")
    views = (memory.read_only(), memory.acting_as("bob"), memory.with_idempotency_window(1), memory.with_timeout(9))
    for view in views:
        assert view.edit_result("k") == expected("+\n", False)


def test_a_result_belongs_to_one_agent() -> None:
    service = AgentMemoryService("memory://")
    service.agent("ann").edit("file", plus, missing="", idempotency_key="k")
    assert service.agent("ann").edit_result("k") == expected("+\n", False)
    assert service.agent("bob").edit_result("k") is None


# Async callers, hooks, and receipts of other makes.


@pytest.mark.asyncio
async def test_async_callers_get_the_same_result(root: Root) -> None:
    async with AsyncAgentMemory.open(root.url, storage_options=root.options) as memory:
        assert await memory.edit_result("k", fingerprint="f") is None
        await memory.edit("file", plus, missing="", idempotency_key="k", fingerprint="f")
        assert await memory.edit_result("k", fingerprint="f") == expected("+\n", False)
        assert await memory.subtree("a").edit_result("l") is None
        with pytest.raises(ConflictError):
            await memory.edit_result("k")


def test_a_sync_and_an_async_view_of_one_memory_find_the_same_result() -> None:
    memory = AgentMemory.open("memory://")
    memory.edit("file", plus, missing="", idempotency_key="k")
    assert memory.as_async().as_sync().edit_result("k") == expected("+\n", False)


def test_plugins_see_a_question_as_one_reading_operation() -> None:
    recorder = RecordingPlugin()
    memory = AgentMemory.open("memory://", plugins=[recorder])
    memory.subtree("a").edit_result("k")
    ((operation, outcome),) = recorder.after
    assert (operation.kind, operation.path, outcome.status) == ("stat", "a", "ok")
    assert recorder.before == [operation]


def test_a_guard_can_refuse_a_question() -> None:
    class Guard:
        @hookimpl
        def agent_memory_before_operation(self) -> None:
            raise OperationDenied("not today")

    backend = MemoryBackend()
    AgentMemory.open(backend).edit("file", plus, missing="", idempotency_key="k")
    with pytest.raises(OperationDenied, match="not today"):
        AgentMemory.open(backend, plugins=[Guard()]).edit_result("k")


def test_the_digest_is_that_of_the_stored_content() -> None:
    memory = AgentMemory.open("memory://", plugins=[RedactionPlugin()])
    memory.edit("file", lambda _: "ghp_" + "a1B2" * 9, missing="", idempotency_key="k")
    found = memory.edit_result("k")
    assert found is not None
    assert found.sha256 == hashlib.sha256(memory.read_bytes("file")).hexdigest()
    assert found.size == len(memory.read_bytes("file"))


@pytest.mark.parametrize("key", ["", "x" * 129, "\ud800", 7, b"k", None])
def test_a_malformed_key_is_refused(key: Any) -> None:
    with pytest.raises(InvalidContentError, match="idempotency_key must be"):
        AgentMemory.open("memory://").edit_result(key)


@pytest.mark.parametrize("fingerprint", ["x" * 4097, "\ud800", 7, None])
def test_a_malformed_fingerprint_is_refused(fingerprint: Any) -> None:
    with pytest.raises(InvalidContentError, match="fingerprint must be"):
        AgentMemory.open("memory://").edit_result("k", fingerprint=fingerprint)


def only_receipt(directory: Path) -> Path:
    (receipt,) = (directory / ".agent-memory" / "receipts" / "-").iterdir()
    return receipt


@pytest.mark.parametrize("damage", ["", "{}", "[1]", '{"existed": 1}'])
def test_a_damaged_receipt_is_told(tmp_path: Path, damage: str) -> None:
    with AgentMemory.open(tmp_path) as memory:
        memory.edit("file", plus, missing="", idempotency_key="k")
        fields = json.loads(only_receipt(tmp_path).read_text())
        text = json.dumps(fields | json.loads(damage)) if "existed" in damage else damage
        only_receipt(tmp_path).write_text(text)
        with pytest.raises(ReadError, match="receipt"):
            memory.edit_result("k")
