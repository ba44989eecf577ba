"""Calls with an idempotency key: made once, whichever process repeats them, on every backend."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agent_memory import (
    SHA256,
    AgentMemory,
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    AgentMemoryService,
    AsyncAgentMemory,
    ConflictError,
    FileAlreadyExistsError,
    InvalidContentError,
    Limits,
    Operation,
    OperationDenied,
    Outcome,
    OutcomeUnknownError,
    ReadError,
    UnsupportedOperationError,
    WriteError,
    WriteResult,
    hookimpl,
)
from agent_memory.backend import ANY, ETag, NewOrigin, ReadWhen, Snapshot, WriteWhen
from agent_memory.core import idempotency
from agent_memory.core import receipts as receipts_module
from agent_memory.core.receipts import SKEW_SECONDS, CallFacts, IdempotencyKey, Receipt, receipt_key
from agent_memory.key import Key
from agent_memory.plugins.redaction import RedactionPlugin
from agent_memory.testing.recording import RecordingPlugin
from agent_memory_memory import MemoryBackend
from tests.support.processes import in_processes
from tests.support.servers import ATOMIC, Root
from tests.support.sizes import long_except

OLD = "old\n"


def plus(text: str) -> str:
    return text + "+\n"


@dataclass(frozen=True)
class Call:
    """One call that changes ``file`` each time it is made, and its effect on the content."""

    make: Callable[[AgentMemory], object]
    other: Callable[[AgentMemory], object]
    before: str | None
    after: str | None
    of: str = ""

    def once(self, memory: AgentMemory, key: str = "k", **window: float) -> AgentMemory:
        """The view in which the call is made at most once."""
        return memory.once(key, of=self.of, **window)


CALLS = {
    "write": Call(lambda m: m.write("file", "new\n"), lambda m: m.write("file", "other\n"), OLD, "new\n"),
    "append": Call(
        lambda m: m.append("file", "line\n"),
        lambda m: m.append("file", "other\n"),
        OLD,
        "old\nline\n",
    ),
    "create": Call(lambda m: m.create("file", "new\n"), lambda m: m.create("file", "other\n"), None, "new\n"),
    "edit": Call(
        lambda m: m.edit("file", plus),
        lambda m: m.edit("file", plus),
        OLD,
        "old\n+\n",
        of="plus",
    ),
    "edit that deletes": Call(lambda m: m.edit("file", lambda _: None), lambda m: m.edit("other", plus), OLD, None),
    "delete": Call(lambda m: m.delete("file"), lambda m: m.delete("other"), OLD, None),
}
every_call = pytest.mark.parametrize("name", CALLS)


def content(memory: AgentMemory) -> str | None:
    return memory.read("file") if memory.exists("file") else None


def ready(root: Root, call: Call) -> AgentMemory:
    memory = AgentMemory.open(root.url, storage_options=root.options)
    if call.before is not None:
        memory.write("file", call.before)
    return memory


def restore(memory: AgentMemory, call: Call) -> None:
    """Bring the file back to its content before the call."""
    memory.delete("file") if call.before is None else memory.write("file", call.before)


def facts(result: object) -> object:
    """A result without the etag, which a repeated call does not return."""
    return replace(result, etag=None) if isinstance(result, WriteResult) else result


@every_call
def test_a_repeated_call_is_made_once_and_gets_the_first_result(root: Root, name: str) -> None:
    call = CALLS[name]
    with ready(root, call) as memory:
        first = call.make(call.once(memory))
        assert content(memory) == call.after
        assert [facts(call.make(call.once(memory))) for _ in range(3)] == [facts(first)] * 3
        assert content(memory) == call.after
        assert [entry.path for entry in memory.list()] == (["file"] if call.after is not None else [])


@every_call
def test_a_repeated_call_changes_nothing_after_later_changes(root: Root, name: str) -> None:
    call = CALLS[name]
    with ready(root, call) as memory:
        call.make(call.once(memory))
        memory.write("file", "later\n")
        call.make(call.once(memory))
        assert memory.read("file") == "later\n"


@every_call
def test_another_key_is_another_call(root: Root, name: str) -> None:
    call = CALLS[name]
    with ready(root, call) as memory:
        call.make(call.once(memory, "k1"))
        restore(memory, call)
        call.make(call.once(memory, "k2"))
        assert content(memory) == call.after


@every_call
def test_the_key_of_another_call_is_refused_and_nothing_is_changed(root: Root, name: str) -> None:
    call = CALLS[name]
    with ready(root, call) as memory:
        call.make(call.once(memory))
        others = [(call.other, "other" if call.of else ""), *((each.make, each.of) for each in CALLS.values())]
        for other, of in others:
            if other == call.make:
                continue
            with pytest.raises(ConflictError, match="belongs to another call"):
                other(memory.once("k", of=of))
        assert content(memory) == call.after


@every_call
def test_an_expired_key_may_be_used_again(root: Root, name: str) -> None:
    call = CALLS[name]
    with ready(root, call) as memory:
        call.make(call.once(memory, window=1e-6))
        restore(memory, call)
        call.make(call.once(memory))
        assert content(memory) == call.after


@every_call
def test_a_refused_call_frees_its_key(root: Root, name: str) -> None:
    call = CALLS[name]
    with ready(root, call) as memory:
        other = "y" if call.before is None else None
        memory.write("file", "y") if other else memory.delete("file")
        if name in ("write", "append"):
            with pytest.raises(ConflictError):
                getattr(memory.once("k"), name)("file", "x", when=SHA256("0" * 64))
        else:
            with pytest.raises((FileAlreadyExistsError, AgentMemoryFileNotFoundError)):
                call.make(call.once(memory))
        restore(memory, call)
        call.make(call.once(memory))
        assert content(memory) == call.after


@pytest.mark.parametrize("error", [LookupError, KeyboardInterrupt, SystemExit])
def test_the_exception_of_an_edits_function_frees_its_key(root: Root, error: type[BaseException]) -> None:
    def fail(text: str) -> str:
        raise error(text)

    with ready(root, CALLS["edit"]) as memory:
        with pytest.raises(error):
            memory.once("k").edit("file", fail)
        memory.once("k").edit("file", plus)
        assert memory.read("file") == "old\n+\n"


def make_in_process(_: int, barrier: Any, root: Root, name: str, rounds: int) -> list[object]:
    results = []
    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        for turn in range(rounds):
            barrier.wait(60)
            view = memory.subtree(f"{turn}")
            results.append(facts(CALLS[name].make(CALLS[name].once(view, f"k{turn}"))))
    return results


@pytest.mark.parametrize("root", ATOMIC, indirect=True)
@long_except(("append",), "name", dict(zip(CALLS, CALLS, strict=True)))
def test_of_simultaneous_calls_of_many_processes_one_is_made(root: Root, name: str) -> None:
    if root.url.startswith("memory:"):
        pytest.skip("processes do not share it")
    call, rounds = CALLS[name], 5
    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        for turn in range(rounds if call.before is not None else 0):
            memory.write(f"{turn}/file", OLD)
        results = in_processes(4, make_in_process, root, name, rounds)
        assert all(each == results[0] for each in results)
        assert [content(memory.subtree(f"{turn}")) for turn in range(rounds)] == [call.after] * rounds


@every_call
def test_of_simultaneous_calls_of_many_threads_one_is_made(root: Root, name: str) -> None:
    call, barrier = CALLS[name], threading.Barrier(8)
    with ready(root, call) as memory, ThreadPoolExecutor(8) as threads:

        def make(_: int) -> object:
            barrier.wait(60)
            return facts(call.make(call.once(memory)))

        results = list(threads.map(make, range(8)))
        assert results == [results[0]] * 8
        assert content(memory) == call.after


def test_of_simultaneous_async_calls_one_is_made(root: Root) -> None:
    async def race() -> str:
        memory = AsyncAgentMemory.open(root.url, storage_options=root.options)
        results = await asyncio.gather(*(memory.once("k").append("file", "x\n") for _ in range(20)))
        assert {facts(result) for result in results} == {facts(results[0])}
        text = await memory.read("file")
        await memory.aclose()
        return text

    assert asyncio.run(race()) == "x\n"


# Calls that did not tell their end.


def left_behind(memory: AgentMemory, until: float) -> None:
    """The receipt of an append whose process was killed."""
    given, backend = IdempotencyKey("k"), memory._tree.backend
    receipt = Receipt.begun(given, CallFacts("append", "file", b"x"), until, 1e13)
    assert isinstance(backend, MemoryBackend)
    backend.write(receipt_key(None, given), receipt.to_bytes())


def test_a_call_whose_process_was_killed_is_never_made_again() -> None:
    memory = AgentMemory.open("memory://")
    left_behind(memory, until=1.0)
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError, match="may or may not"):
            memory.once("k").append("file", "x")
    assert not memory.exists("file")


def test_a_call_waits_for_another_one_no_longer_than_its_own_timeout() -> None:
    memory = AgentMemory.open("memory://").with_timeout(0.2)
    left_behind(memory, until=1e12)
    with pytest.raises(OutcomeUnknownError):
        memory.once("k").append("file", "x")


class Flaky(MemoryBackend):
    """Fails writes of receipts and files as told."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: dict[str, list[AgentMemoryError]] = {"receipt": [], "file": []}
        self.applies = True

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        faults = self.faults["receipt" if key.base.startswith(".agent-memory") else "file"]
        fault = faults.pop(0) if faults else None
        if fault and not (self.applies and isinstance(fault, OutcomeUnknownError)):
            raise fault
        etag = super().write(key, data, when, origin)
        if fault:
            raise fault
        return etag


def test_a_claim_whose_answer_was_lost_is_found_again() -> None:
    for applies in (True, False):
        backend = Flaky()
        backend.applies = applies
        backend.faults["receipt"] = [OutcomeUnknownError("lost")]
        memory = AgentMemory.open(backend)
        memory.once("k").write("file", "x")
        memory.once("k").write("file", "x")
        assert memory.read("file") == "x"


def test_a_write_with_an_unknown_outcome_keeps_the_key() -> None:
    backend = Flaky()
    backend.faults["file"] = [OutcomeUnknownError("lost")]
    memory = AgentMemory.open(backend).with_timeout(0.2)
    with pytest.raises(OutcomeUnknownError, match="lost"):
        memory.once("k").write("file", "x")
    with pytest.raises(OutcomeUnknownError, match="may or may not"):
        memory.once("k").write("file", "x")


def test_a_failed_write_frees_the_key() -> None:
    backend = Flaky()
    backend.faults["file"] = [WriteError("the disk is full")]
    memory = AgentMemory.open(backend)
    with pytest.raises(WriteError):
        memory.once("k").write("file", "x")
    memory.once("k").write("file", "x")
    assert memory.read("file") == "x"


def test_a_claim_that_cannot_be_stored_makes_no_change() -> None:
    backend = Flaky()
    backend.faults["receipt"] = [WriteError("the disk is full")]
    memory = AgentMemory.open(backend)
    with pytest.raises(WriteError):
        memory.once("k").write("file", "x")
    assert not memory.exists("file")


def test_a_result_that_cannot_be_stored_is_returned_once_and_unknown_later(caplog: pytest.LogCaptureFixture) -> None:
    class Ending(Flaky):
        def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
            if isinstance(when, ETag) and key.base.startswith(".agent-memory"):
                raise WriteError("the disk is full")
            return super().write(key, data, when, origin)

    memory = AgentMemory.open(Ending()).with_timeout(0.2)
    assert memory.once("k").append("file", "x").size == 1
    assert "stays undecided" in caplog.text
    with pytest.raises(OutcomeUnknownError):
        memory.once("k").append("file", "x")
    assert memory.read("file") == "x"


def test_a_damaged_receipt_is_told_and_nothing_is_changed() -> None:
    memory = AgentMemory.open("memory://")
    backend = memory._tree.backend
    assert isinstance(backend, MemoryBackend)
    whole = Receipt.begun(IdempotencyKey("k"), CallFacts("write", "file", b"x"), 1.0, 1e12).to_bytes()
    for data in (b"", whole[:40], b"[]", b'{"v":2}', whole.replace(b'"until": 1.0', b'"until": "x"')):
        backend.write(receipt_key(None, IdempotencyKey("k")), data)
        with pytest.raises(ReadError, match="receipt"):
            memory.once("k").write("file", "x")
    assert not memory.exists("file")


# Names, scope, privacy.


@pytest.mark.parametrize("key", ["", "x" * 129, "\ud800", 7, b"k"])
def test_a_malformed_key_is_refused(key: Any) -> None:
    memory = AgentMemory.open("memory://")
    with pytest.raises(InvalidContentError, match="key must be"):
        memory.once(key).write("file", "x")
    assert not memory.exists("file")


@pytest.mark.parametrize("fingerprint", ["x" * 4097, "\ud800", 7])
def test_a_malformed_fingerprint_is_refused(fingerprint: Any) -> None:
    memory = AgentMemory.open("memory://")
    memory.write("file", "x")
    with pytest.raises(InvalidContentError, match="of must be"):
        memory.once("k", of=fingerprint)


@pytest.mark.parametrize("key", ["k", "../../x", "a/b", "メモ", "\0", " ", "x" * 128])
def test_any_text_is_a_key(root: Root, key: str) -> None:
    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        memory.once(key).append("file", "x")
        memory.once(key).append("file", "x")
        assert memory.read("file") == "x"


def test_a_key_belongs_to_one_agent() -> None:
    service = AgentMemoryService("memory://")
    for agent in ("ann", "bob"):
        service.agent(agent).once("k").append("file", "x")
        service.agent(agent).subtree("").once("k").append("file", "x")
        assert service.agent(agent).read("file") == "x"
    assert service.agent_ids() == ("ann", "bob")


def test_a_view_of_a_directory_shares_the_keys_of_its_tree() -> None:
    memory = AgentMemory.open("memory://")
    memory.once("k").append("d/file", "x")
    memory.subtree("d").once("k").append("file", "x")
    assert memory.read("d/file") == "x"
    with pytest.raises(ConflictError):
        memory.subtree("e").once("k").append("file", "x")


def test_a_receipt_contains_neither_the_key_nor_a_digest_of_the_content(tmp_path: Path) -> None:
    with AgentMemory.open(tmp_path) as memory:
        memory.once("run-7/call-3").append("file", "my secret")
        memory.once("run-7/call-4").edit("file", str.upper)
    (one, two) = sorted((tmp_path / ".agent-memory" / "receipts" / "-").iterdir())
    stored = one.name + two.name + one.read_text() + two.read_text()
    assert json.loads(one.read_text())["done"] is True
    for text in ("my secret", "MY SECRET", "run-7/call-3", "run-7/call-4"):
        assert text not in stored
        assert hashlib.sha256(text.encode()).hexdigest() not in stored


def test_without_a_key_nothing_is_stored(tmp_path: Path) -> None:
    with AgentMemory.open(tmp_path) as memory:
        memory.append("file", "x")
        memory.delete("file")
    assert not (tmp_path / ".agent-memory").exists()


def sweeping(number: int, barrier: Any, root: Root) -> object:
    """Edit for longer than the window, while other processes sweep and repeat the edit."""

    def slowly(text: str) -> str:
        barrier.wait(60)  # the key is claimed
        barrier.wait(60)  # the other processes have swept
        return text + "+\n"

    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        short = partial(memory.once, window=1e-6)
        edit = partial(short("k", of="plus").edit, "file")
        if number == 0:
            return facts(edit(slowly))
        barrier.wait(60)
        with ThreadPoolExecutor(1) as threads:
            repeated = threads.submit(edit, plus)
            time.sleep(1.1)  # a listing of S3 tells times in seconds
            for turn in range(3):
                short(f"{number} {turn}").append(f"other {number}", "x")
            barrier.wait(60)
            return facts(repeated.result())


@pytest.mark.parametrize("root", ATOMIC, indirect=True)
def test_a_sweep_leaves_the_receipt_of_a_call_that_takes_longer_than_the_window(root: Root) -> None:
    if root.url.startswith("memory:"):
        pytest.skip("processes do not share it")
    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        memory.write("file", OLD)
        results = in_processes(3, sweeping, root)
        assert results == [results[0]] * 3
        assert memory.read("file").count("+") == 1


def test_a_sweep_leaves_damaged_receipts_and_those_that_a_waiting_call_may_look_for() -> None:
    memory = AgentMemory.open("memory://")
    backend, now = memory._tree.backend, time.time()
    assert isinstance(backend, MemoryBackend)
    begun = Receipt.begun(IdempotencyKey("k"), CallFacts("write", "file", b"x"), 1.0, 1.0)
    left = {
        "damaged": begun.to_bytes()[:-9],
        "of an earlier release, under way": replace(begun, until=now + 50, expires=now - 900).to_bytes(),
        "late": replace(begun, until=now - 200, expires=now - 200).to_bytes(),
        "just over": replace(begun, done=True, expires=now - 1).to_bytes(),
    }
    for name, data in {**left, "long over": begun.to_bytes()}.items():
        backend.write(receipt_key(None, IdempotencyKey(name)), data)
    for number in range(5):
        memory.once(f"{number}", window=1e-6).append("other", "x")
    for name in left:
        assert backend.stat(receipt_key(None, IdempotencyKey(name))), name
    with pytest.raises(AgentMemoryFileNotFoundError):
        backend.stat(receipt_key(None, IdempotencyKey("long over")))
    with pytest.raises(ReadError, match="use another key"):
        memory.once("damaged", window=1e-6).append("file", "x")
    assert not memory.exists("file")


def test_a_receipt_of_a_call_under_way_states_that_it_outlives_the_call(tmp_path: Path) -> None:
    found: list[Receipt] = []

    def look(text: str) -> str:
        (path,) = (tmp_path / ".agent-memory" / "receipts" / "-").iterdir()
        found.append(Receipt.parse(Key.tree().join("x"), path.read_bytes()))
        return text + "x"

    with AgentMemory.open(tmp_path) as memory:
        memory.once("k", window=1e-6).edit("file", look, missing="")
        assert found[0].expires > found[0].until + 60 > time.time() + 60
        assert found[0].is_over(found[0].expires)
        assert not found[0].is_over(found[0].until + 60)


def test_a_change_that_would_come_after_its_receipt_is_refused(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts_module, "_LATE_SECONDS", SKEW_SECONDS)

    def slowly(text: str) -> str:
        time.sleep(1.2)
        return text + "x"

    with ready(root, CALLS["edit"]) as memory:
        short = partial(memory.with_timeout(1).once, window=1e-6)
        with pytest.raises(WriteError):
            short("k").edit("file", slowly)
        assert memory.read("file") == OLD
        try:
            memory.once("k").edit("file", plus)
        except OutcomeUnknownError:
            assert root.url.startswith("s3:")  # no time was left for the request that releases the key
            assert memory.read("file") == OLD
        else:
            assert memory.read("file") == "old\n+\n"


def test_a_call_whose_awaited_receipt_is_gone_is_not_made() -> None:
    looked = threading.Event()

    class Watched(MemoryBackend):
        def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
            snapshot = super().read(key, start, end, when)
            looked.set()
            return snapshot

    memory = AgentMemory.open(Watched())
    left_behind(memory, until=1e12)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(memory.once("k").append, "file", "x")
        assert looked.wait(30)
        memory._tree.backend.delete(receipt_key(None, IdempotencyKey("k")))
        with pytest.raises(OutcomeUnknownError):
            waiting.result(60)
    assert not memory.exists("file")


# Hooks.


def test_a_repeated_call_passes_the_guards_and_is_observed_as_replayed() -> None:
    recorder = RecordingPlugin()
    memory = AgentMemory.open("memory://", plugins=[recorder])
    for _ in range(2):
        memory.once("k").append("file", "x")
    assert [operation.kind for operation in recorder.before] == ["append", "append"]
    assert len(recorder.checked) == 2
    outcomes = [outcome for _, outcome in recorder.after]
    assert [(each.status, each.replayed, each.size) for each in outcomes] == [("ok", False, 1), ("ok", True, None)]


def test_a_guard_refuses_a_repeated_call() -> None:
    class Guard:
        refuses = False

        @hookimpl
        def agent_memory_before_operation(self) -> None:
            if self.refuses:
                raise OperationDenied("not today")

    guard = Guard()
    memory = AgentMemory.open("memory://", plugins=[guard])
    memory.once("k").append("file", "x")
    guard.refuses = True
    with pytest.raises(OperationDenied):
        memory.once("k").append("file", "x")


def test_the_content_before_the_filters_decides_whether_a_call_is_the_same() -> None:
    backend = MemoryBackend()
    token = "ghp_" + "a1B2" * 9
    AgentMemory.open(backend, plugins=[RedactionPlugin()]).once("k").append("file", f"{token}\n")
    AgentMemory.open(backend).once("k").append("file", f"{token}\n")
    assert token not in AgentMemory.open(backend).read("file")


def test_a_repeated_call_leaves_the_limits_of_an_agent_as_they_are() -> None:
    backend = MemoryBackend()
    memory = AgentMemory.open(backend, limits=Limits(file_bytes=10, agent_files=2, agent_bytes=10))
    memory.once("k").write("file", "1234")
    memory.append("file", "5678")
    memory.once("k").write("file", "1234")
    with pytest.raises(OperationDenied):
        memory.append("file", "90!")
    memory.once("d").delete("file")
    memory.write("file", "12345678")
    memory.once("d").delete("file")
    with pytest.raises(OperationDenied):
        memory.append("file", "90!")


# Sweeping and forgetting.


def receipts(memory: AgentMemory, agent: str | None = None) -> int:
    return len(memory._tree.backend.list(Key.internal(f"receipts/{agent or '-'}")).entries)  # type: ignore[union-attr]


def test_expired_receipts_are_swept_at_most_two_in_a_call() -> None:
    memory = AgentMemory.open("memory://")
    backend = memory._tree.backend
    assert isinstance(backend, MemoryBackend)
    kept = receipt_key(None, IdempotencyKey("kept"))
    for number in range(9):
        given = IdempotencyKey(f"{number}" if number else "kept")
        expires = 1.0 if number else 1e12
        receipt = Receipt.begun(given, CallFacts("write", "file", b"x"), 1.0, expires)
        backend.write(receipt_key(None, given), receipt.to_bytes())
    counts = [receipts(memory)]
    for number in range(5):
        memory.once(f"new {number}", window=1e-6).append("file", "x")
        counts.append(receipts(memory))
    assert all(before - 1 <= after <= before + 1 for before, after in pairwise(counts)), "one more, at most two fewer"
    assert counts[-1] == 1 + 5, "the eight expired ones are gone, and the five new ones were not listed"
    assert backend.stat(kept)


def planted(backend: MemoryBackend, count: int) -> None:
    """Receipts of calls that expired long ago."""
    for number in range(count):
        given = IdempotencyKey(f"planted {number}")
        receipt = Receipt.begun(given, CallFacts("write", "file", b"x"), 1.0, 1.0)
        backend.write(receipt_key(None, given), receipt.to_bytes())


def test_a_sweep_remembers_a_bounded_number_of_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_memory.core.internal_trees._MOST_AGENTS", 3)
    backend = MemoryBackend()
    service = AgentMemoryService(backend)
    for turn in range(2):
        for number in range(10):
            memory = service.agent(f"agent-{number}")
            memory.once(f"{turn}", window=1e-6).append("file", "x")
            assert len(memory._tree.sweep._found) <= 3


def test_without_conditional_deletes_expired_receipts_stay() -> None:
    class Obstore(MemoryBackend):
        refused = 0

        def delete(self, key: Key, when: Any = ANY) -> None:
            if when is not ANY:
                self.refused += 1
                raise UnsupportedOperationError("no conditional delete")
            super().delete(key)

    backend = Obstore()
    memory = AgentMemory.open(backend)
    planted(backend, 3)
    for number in range(2):
        memory.once(f"{number}", window=1e-6).append("file", "x")
    assert (receipts(memory), backend.refused) == (5, 3)


def test_simultaneous_calls_share_the_sweep() -> None:
    backend = MemoryBackend()
    memory = AgentMemory.open(backend)
    planted(backend, 9)

    async def race() -> None:
        twin = memory.as_async()
        await asyncio.gather(*(twin.once(f"{n}", window=1e-6).append(f"{n}", "x") for n in range(20)))

    asyncio.run(race())
    with ThreadPoolExecutor(12) as threads:
        list(threads.map(lambda n: memory.once(f"thread {n}", window=1e-6).append(f"{n}", "x"), range(20)))
    assert len(memory.list()) == 20


def test_a_call_that_takes_longer_than_the_window_is_made_once() -> None:
    begun, seen = threading.Event(), threading.Event()

    class Seen(MemoryBackend):
        def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
            snapshot = super().read(key, start, end, when)
            if key.base.startswith(".agent-memory"):
                seen.set()
            return snapshot

    def until_the_other_call_waits(text: str) -> str:
        begun.set()
        assert seen.wait(30)
        return text + "x"

    memory = AgentMemory.open(Seen())
    edit = partial(memory.once("k", window=0.05).edit, "file", until_the_other_call_waits, missing="")
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(edit)
        assert begun.wait(30)
        time.sleep(0.1)  # longer than the window
        second = threads.submit(edit)
        assert facts(first.result()) == facts(second.result())
    assert memory.read("file") == "x"


@pytest.mark.parametrize("taken", ["receipts", "receipts/-", "name"])
def test_a_receipt_without_a_free_name_refuses_the_call_at_once(tmp_path: Path, taken: str) -> None:
    top = tmp_path / ".agent-memory"
    if taken == "name":
        directory = tmp_path / receipt_key(None, IdempotencyKey("k")).storage
        directory.mkdir(parents=True)
        (directory / "file").write_text("x")
    else:
        (top / taken).parent.mkdir(parents=True, exist_ok=True)
        (top / taken).write_text("x")
    with AgentMemory.open(tmp_path) as memory:
        with pytest.raises(WriteError, match="no free name"):
            memory.once("k").write("file", "x")
        assert not memory.exists("file")


def test_an_error_of_a_receipt_is_not_taken_for_one_of_the_file() -> None:
    memory = AgentMemory.open("memory://")
    memory.once("k").create("file", "x")
    with pytest.raises(OutcomeUnknownError):
        memory.with_timeout(1e-9).once("k").create("file", "x")


def test_a_damaged_receipt_does_not_stop_a_forget() -> None:
    memory = AgentMemory.open("memory://")
    backend = memory._tree.backend
    assert isinstance(backend, MemoryBackend)
    memory.once("a").append("a", "x")
    backend.write(receipt_key(None, IdempotencyKey("damaged")), b"junk")
    memory.forget("a")
    assert receipts(memory) == 0


def test_forgetting_erases_the_receipts_of_the_files(root: Root) -> None:
    with AgentMemoryService(root.url, storage_options=root.options) as service:
        ann, bob = service.agent("ann"), service.agent("bob")
        for memory in (ann, bob):
            for path in ("a", "a.md", "d/b", "d/c"):
                memory.once(f"k {path}").append(path, "x")
        ann.forget("d/b")
        ann.forget("a")
        for path in ("a", "d/b"):
            assert ann.once(f"k {path}").append(path, "x").size == 1
        for path in ("a.md", "d/c"):
            ann.once(f"k {path}").append(path, "x")
            assert ann.read(path) == "x"
        ann.forget("")
        for path in ("a", "a.md", "d/b", "d/c"):
            assert ann.once(f"k {path}").append(path, "x").size == 1
            bob.once(f"k {path}").append(path, "x")
            assert bob.read(path) == "x"


def test_a_call_is_observed_by_its_outcome_even_if_it_only_waited() -> None:
    seen: list[Outcome] = []

    class Observer:
        @hookimpl
        def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:
            del operation
            seen.append(outcome)

    memory = AgentMemory.open("memory://", plugins=[Observer()])
    left_behind(memory, until=1.0)
    with pytest.raises(OutcomeUnknownError):
        memory.once("k").append("file", "x")
    assert seen[-1].status == "unknown"


def test_the_window_is_a_positive_number_of_seconds() -> None:
    memory = AgentMemory.open("memory://")
    for seconds in (0, -1, float("nan"), float("inf"), True, "1"):
        with pytest.raises(ValueError, match="seconds"):
            memory.once("k", window=seconds)  # type: ignore[arg-type]
    once = memory.once("k")._tree.once
    assert once
    assert once.seconds == idempotency.RECEIPT_SECONDS == 86_400
