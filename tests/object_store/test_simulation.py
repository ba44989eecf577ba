"""The simulation finds no failure in the real code, and finds every planted defect."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, TypeAlias

import pytest

from agent_memory.backend import ANY
from agent_memory.core import flows, idempotency, receipts, tree, tree_flows
from agent_memory.core.flows import Effect
from agent_memory.core.versions import find, order
from agent_memory.core.versions.archive import Archive
from agent_memory.core.versions.keep import VersionedStore
from agent_memory.core.versions.origin import Origin
from agent_memory.core.versions.record import Record
from agent_memory.errors import AgentMemoryError
from agent_memory.object_store.conditional_write import Write
from agent_memory.object_store.late_requests import FormerName, LateRequests
from agent_memory.object_store.multipart import Composer
from agent_memory.object_store.retry import Attempts
from agent_memory.object_store.states import BeatenError
from agent_memory.object_store.write_log import WriteLog, Writer, WriteRecord
from tests.simulation import (
    Failure,
    cloned_failures,
    failures,
    keyed_failures,
    rename_failures,
    run_schedule,
    versioned_failures,
)
from tests.simulation.history import File, HistoryStep, explained
from tests.support import sizes

SHORT, PLANTED = 200, 1_000
LONG = 100_000
"""Of the calls of one file; of the other kinds a fifth."""
_BLOCKS = 10
TELLING = (0, 1, 3, 6, 9, 18, 19, 67, 195, 330, 561, 901)
"""Seeds whose schedules found the planted defects; they come first."""
Planted: TypeAlias = tuple[Any, str, Any]
"""A defect, with the object and the name of the attribute in whose place it is."""


def by_name(defects: Iterable[Planted]) -> dict[str, Planted]:
    return {getattr(defect, "__name__", name): (where, name, defect) for where, name, defect in defects}


in_blocks = pytest.mark.parametrize("block", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, _BLOCKS))])
"""A long run shares the schedules of a kind out among its processes."""


def seeds_of(block: int, long: int, short: int = SHORT) -> range:
    """The seeds of a block in a long run; in a short run, which has one block, the first ones."""
    return range(block * long // _BLOCKS, (block + 1) * long // _BLOCKS) if sizes.is_long else range(short)


def found_by(play: Callable[[Iterable[int]], Iterator[Failure]], planted: Planted, patch: pytest.MonkeyPatch) -> bool:
    """Whether one of 1,000 schedules fails because of a planted defect."""
    patch.setattr(*planted)
    found = next(play([*TELLING, *range(PLANTED)]), None)
    assert not re.search("TypeError|AttributeError", str(found)), "the defect is not planted right"
    return found is not None


@in_blocks
def test_no_schedule_fails(block: int) -> None:
    found = list(islice(failures(seeds_of(block, LONG)), 3))
    assert not found, "\n".join(map(str, found))


def test_the_same_seed_gives_the_same_schedule() -> None:
    assert str(run_schedule(17)) == str(run_schedule(17)) != str(run_schedule(18))


async def a_refusal_is_a_conflict(self: Any, answer: Any, base: Any, follow: bool) -> Any:  # noqa: ARG001
    seen = await self.read_state(whole=follow)
    if follow:
        return seen
    raise BeatenError(seen, True)


async def nothing_is_compared(self: Any, data: bytes, log: WriteLog, base: Any) -> Any:  # noqa: ARG001
    return await self._sent(lambda: self._store.put(self.name, data, log.metadata), log)


def only_the_last_writer_is_kept(self: WriteLog, record: Any, now: float, finished: Any) -> WriteLog:  # noqa: ARG001
    return self._replace(records=(record,))


_with_record = WriteLog.with_record


def records_are_dropped_early(self: WriteLog, record: Any, now: float, finished: Any) -> WriteLog | None:
    return _with_record(self, record, now + 60, finished)  # twice the deadline of an operation


async def there_is_no_deadline(_: Any, seconds: float, races: bool = False) -> None:  # noqa: ARG001
    await asyncio.sleep(seconds)


def what_was_read_again_is_forgotten(self: Any, seen: Any, base: Any) -> BeatenError:  # noqa: ARG001
    return BeatenError(base, True)


def a_lost_answer_is_a_conflict(self: Any, seen: Any, base: Any) -> BeatenError:  # noqa: ARG001
    return BeatenError(seen, True)


def clocks_are_taken_for_exact(self: Any, seen: Any, base: Any) -> bool:
    same = base is not None and seen.log.continues(base.log, self._store.now())
    return same or bool(seen.modified <= self._store.now() - self.attempts.seconds_since_effect(self._store.resends))


def what_was_written_lately_is_old(self: Any, seen: Any, base: Any) -> bool:
    same = base is not None and seen.log.continues(base.log, self._store.now())
    return same or bool(seen.modified < self._store.now())


def all_chains_are_one(_: float, records: tuple[WriteRecord, ...] = ()) -> WriteLog:
    return WriteLog("0" * 14, records)


async def an_upload_takes_the_place_of_whatever_is_there(
    self: Any, name: str, etag: str, size: int, data: bytes, metadata: Any, attempts: Attempts
) -> str:
    store, answered = self._store, attempts.until_answered
    upload = await answered(lambda: store.begin_upload(name, metadata))
    old = await answered(lambda: store.copy_part(name, upload, 1, source=name, if_match=etag, span=(0, size - 1)))
    new = await answered(lambda: store.put_part(name, upload, 2, data))
    current = (await answered(lambda: store.head(name))).etag
    completed: str = await attempts.write_once(
        lambda: store.complete_upload(name, upload, [old, new], if_match=current)
    )
    return completed


DEFECTS: list[Planted] = [
    (Write, "_after_refusal", a_refusal_is_a_conflict),
    (Write, "_put", nothing_is_compared),
    (Composer, "append", an_upload_takes_the_place_of_whatever_is_there),
    (WriteLog, "with_record", only_the_last_writer_is_kept),
    (WriteLog, "with_record", records_are_dropped_early),
    (Attempts, "_wait", there_is_no_deadline),
    (Write, "_beaten", what_was_read_again_is_forgotten),
    (Write, "_beaten", a_lost_answer_is_a_conflict),
    (Write, "_would_contain", clocks_are_taken_for_exact),
    (Write, "_would_contain", what_was_written_lately_is_old),
    (WriteLog, "new", all_chains_are_one),
]


@pytest.mark.parametrize("planted", DEFECTS, ids=by_name(DEFECTS))
def test_the_simulation_finds_a_planted_defect(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found_by(failures, planted, monkeypatch)


# Processes restored from one image.


@in_blocks
def test_no_schedule_of_clones_fails(block: int) -> None:
    found = list(islice(cloned_failures(seeds_of(block, LONG // 5)), 3))
    assert not found, "\n".join(map(str, found))


def the_nonce_is_drawn_once(self: Writer, until: float) -> WriteRecord:
    record = _new_record(self, until)
    nonce = self._slot  # drawn once, and copied into the clones
    return record._replace(id=record.id._replace(nonce=nonce))


def any_record_in_the_own_slot_is_replaced(self: Writer, log: WriteLog, record: Any, now: float) -> WriteLog | None:
    own = {other.id for other in log.records if other.id.slot == record.id.slot}
    return _with_record(log, record, now, own | self._finished.keys())


def a_record_is_never_over(_: Any) -> bool:
    return False


_new_record = Writer.new_record
CLONE_DEFECTS: list[Planted] = [
    (Writer, "new_record", the_nonce_is_drawn_once),
    (Writer, "with_record", any_record_in_the_own_slot_is_replaced),
    (Write, "_is_over", a_record_is_never_over),
]


@pytest.mark.parametrize("planted", CLONE_DEFECTS, ids=by_name(CLONE_DEFECTS))
def test_the_simulation_of_clones_finds_a_planted_defect(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found_by(cloned_failures, planted, monkeypatch)


# Calls with idempotency keys.


@in_blocks
def test_no_schedule_of_calls_with_idempotency_keys_fails(block: int) -> None:
    found = list(islice(keyed_failures(seeds_of(block, LONG // 5, 20)), 3))
    assert not found, "\n".join(map(str, found))


async def the_receipt_is_finished_before_the_change(
    store: Any, run: Any, call: Any, flow: Any, once: Any, arguments: Any
) -> Any:
    facts = receipts.CallFacts(call.kind, call.key.path, call.content, arguments)
    claim = idempotency._Claim(store, run, call, once, facts)
    found = await claim.take()
    if found:
        return found.effect(once.key)
    await claim.replace_receipt(claim.finished(Effect(size=1)))
    return await flow(store, run, call)


async def the_change_comes_before_the_receipt(
    store: Any, run: Any, call: Any, flow: Any, once: Any, arguments: Any
) -> Any:
    effect = await flow(store, run, call)
    facts = receipts.CallFacts(call.kind, call.key.path, call.content, arguments)
    claim = idempotency._Claim(store, run, call, once, facts)
    found = await claim.take()
    if found:
        return found.effect(once.key)
    await claim.replace_receipt(claim.finished(effect))
    return effect


_receipt_key = receipts.receipt_key


def the_key_is_not_scoped(_: str | None, given: Any) -> Any:
    return _receipt_key("all", given)


async def a_call_that_ended_without_a_word_is_made_again(self: Any, found: Any, delay: float) -> None:
    run = self._run
    if found.until <= self._now() or run.now() + delay >= self._deadline.at:
        self.mine = dataclasses.replace(found, salt=self.mine.salt)
        snapshot = await flows.read_if_present(self._store, run, self._key)
        assert snapshot
        found = dataclasses.replace(found, salt="00" * 16, until=0.0, expires=0.0)
        await run.call(self._store.write, self._key, found.to_bytes(), when=snapshot.etag)
    await run.sleep(delay)


def every_call_is_the_same(*_: Any) -> bool:
    return True


def a_lost_answer_is_a_refusal(_run: Any, _call: Any, error: BaseException) -> bool:
    return isinstance(error, AgentMemoryError)


def a_call_that_takes_longer_than_the_window_is_over(self: receipts.Receipt, now: float) -> bool:
    return (self.expires if self.done else self.until - 29) <= now


def a_key_is_free_before_it_expires(self: receipts.Receipt, now: float) -> bool:
    return self.done and self.expires <= now + 30


async def whatever_is_not_done_is_swept(store: Any, run: Any, call: Any, _: Any) -> None:
    for entry in (await tree_flows.list_all(store, run, receipts.receipts_of(call.agent))).entries:
        snapshot = await flows.read_if_present(store, run, entry.key)
        if snapshot and not receipts.Receipt.parse(entry.key, snapshot.data).done:
            with suppress(AgentMemoryError):
                await run.call(store.delete, entry.key, when=snapshot.etag)


KEYED_DEFECTS: list[Planted] = [
    (tree, "apply_once", the_receipt_is_finished_before_the_change),
    (tree, "apply_once", the_change_comes_before_the_receipt),
    (idempotency, "receipt_key", the_key_is_not_scoped),
    (idempotency._Claim, "_wait", a_call_that_ended_without_a_word_is_made_again),
    (receipts.Receipt, "is_of_call", every_call_is_the_same),
    (idempotency, "_changed_nothing", a_lost_answer_is_a_refusal),
    (receipts.Receipt, "is_over", a_call_that_takes_longer_than_the_window_is_over),
    (receipts.Receipt, "is_over", a_key_is_free_before_it_expires),
    (idempotency, "_sweep", whatever_is_not_done_is_swept),
]


@pytest.mark.parametrize("planted", KEYED_DEFECTS, ids=by_name(KEYED_DEFECTS))
def test_the_simulation_of_keys_finds_a_planted_defect(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found_by(keyed_failures, planted, monkeypatch)


# Versions.

# In these schedules a file is created again with the same bytes, and a late change of the first replaces the second.
SAME_BYTES_AGAIN = [20293, 23763, 35367, 84239, 99879]


@in_blocks
def test_no_schedule_of_a_store_with_versions_fails(block: int) -> None:
    found = list(islice(versioned_failures([*SAME_BYTES_AGAIN, *seeds_of(block, LONG // 5, 60)]), 3))
    assert not found, "\n".join(map(str, found))


_keep_then = Archive.keep_then
_next = Origin.next
_of = Record.of


async def the_record_is_written_after_the_change(self: Any, file: Any, successor: Any, change: Any) -> Any:
    result = await change()

    async def nothing() -> None: ...

    await _keep_then(self, file, successor, nothing)
    return result


async def a_write_does_not_read_what_it_replaces(self: Any, key: Any, data: bytes, when: Any = ANY) -> Any:
    if key.is_internal or when is not ANY:
        return await _write(self, key, data, when)
    return await self._call(self._inner.write, key, data, when, self._first_origin(len(data), data))


_write = VersionedStore.write


async def every_record_is_a_version(records: Any, *_: Any) -> Any:
    return list(records)


def a_record_has_the_length_of_the_state_as_it_was_made(path: str, origin: Any, size: int, by: Any, next_: Any) -> Any:
    return _of(path, origin, min(size, origin.size), by, next_)


def the_number_of_a_state_is_its_time(self: Origin, by: Any, size: int, data: Any) -> Origin:
    return dataclasses.replace(_next(self, by, size, data), number=int((by.time + 7200) * 1000))


async def a_delete_keeps_nothing(self: Any, key: Any, before: Any) -> None:
    await self._call(self._inner.delete, key, before.snapshot.etag)


def the_operation_that_ended_a_state_is_the_first_one_found(stored: Any, _: Any) -> tuple[bool, int, bool, bool]:
    return False, stored.record.size, False, False


VERSION_DEFECTS: list[Planted] = [
    (Archive, "keep_then", the_record_is_written_after_the_change),
    (VersionedStore, "write", a_write_does_not_read_what_it_replaces),
    (VersionedStore, "_delete", a_delete_keeps_nothing),
    (find, "shown", every_record_is_a_version),
    (order, "rank", the_operation_that_ended_a_state_is_the_first_one_found),
    (Record, "of", staticmethod(a_record_has_the_length_of_the_state_as_it_was_made)),
    (Origin, "next", the_number_of_a_state_is_its_time),
]


@pytest.mark.parametrize("planted", VERSION_DEFECTS, ids=by_name(VERSION_DEFECTS))
def test_the_simulation_of_versions_finds_a_planted_defect(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found_by(versioned_failures, planted, monkeypatch)


# Renames.


@in_blocks
def test_no_schedule_of_renames_fails(block: int) -> None:
    found = list(islice(rename_failures(seeds_of(block, LONG // 5, 60)), 3))
    assert not found, "\n".join(map(str, found))


async def a_file_gets_the_etag_that_it_had(*_: Any, **__: Any) -> bool:
    return False


def a_process_forgets_its_requests(*_: Any) -> dict[str, float]:
    return {}


def a_copy_does_not_tell_its_former_names(_: str) -> tuple[FormerName, ...]:
    return ()


async def a_copy_is_made_whatever_its_etag_is(self: Write, data: bytes, avoided: Any, base: Any) -> bool:
    former, self.former_names = self.former_names, ()
    try:
        return await _needs_upload(self, data, avoided, base)
    finally:
        self.former_names = former


_needs_upload = Write._needs_upload

RENAME_DEFECTS: list[Planted] = [
    (Write, "_needs_upload", a_file_gets_the_etag_that_it_had),
    (LateRequests, "carried", a_process_forgets_its_requests),
    (FormerName, "parse", staticmethod(a_copy_does_not_tell_its_former_names)),
    (Write, "_needs_upload", a_copy_is_made_whatever_its_etag_is),
]


@pytest.mark.parametrize("planted", RENAME_DEFECTS, ids=by_name(RENAME_DEFECTS))
def test_the_simulation_of_renames_finds_a_planted_defect(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found_by(rename_failures, planted, monkeypatch)


def step(kind: Any, line: str, began: float, ended: float, result: Any = "done", seen: File = ()) -> HistoryStep:
    return HistoryStep("w", kind, line, began, ended, result, seen)


@pytest.mark.parametrize(
    ("history", "end", "expected"),
    [
        ([step("append", "1", 0, 1), step("append", "2", 0, 1)], ("2", "1"), True),
        ([step("append", "1", 0, 1), step("append", "2", 2, 3)], ("2", "1"), False),
        ([step("append", "1", 0, 1)], ("1", "1"), False),
        ([step("append", "1", 0, 1)], None, False),
        ([step("append", "1", 0, 1, "nothing")], ("1",), False),
        ([step("append", "1", 0, 1, "unknown")], ("1",), True),
        ([step("append", "1", 0, 1, "unknown")], None, True),
        ([step("create", "1", 0, 1), step("create", "2", 0, 1)], ("1",), False),
        ([step("create", "1", 0, 1), step("create", "2", 0, 1, "nothing")], ("1",), True),
        ([step("append", "1", 0, 1), step("read", "", 2, 3, "done", None)], ("1",), False),
        ([step("append", "1", 0, 1), step("swap", "2", 2, 3, "done", ("1",))], ("1", "2"), True),
        ([step("append", "1", 0, 1), step("swap", "2", 2, 3, "done", ())], ("1", "2"), False),
        ([step("write", "1", 0, 9), step("append", "2", 1, 2)], ("1",), True),
        ([step("write", "1", 0, 1), step("append", "2", 2, 3)], ("1",), False),
        ([step("append", "1", 0, 1), step("prepend", "2", 2, 3)], ("2", "1"), True),
    ],
)
def test_the_check_accepts_only_histories_that_one_order_explains(
    history: list[HistoryStep], end: File, expected: bool
) -> None:
    assert explained(history, end) is expected
