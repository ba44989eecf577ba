"""The objects of an hour of a log on S3 become one: stopped at each call, raced by writers and by other merges."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from agent_memory.audit import merging as merging_module
from agent_memory.audit import records
from agent_memory.audit.location import LogLocation
from agent_memory.audit.merging import MergeResult, merge
from agent_memory.audit.records import lines_of
from tests.audit.test_anew import Stopped, stopping
from tests.audit.trial import FAR, Trial, lose
from tests.support import sizes
from tests.support.servers import S3Server


class Later:
    """A clock that is two hours ahead, so that the current hour has ended."""

    @staticmethod
    def time() -> float:
        return time.time() + 7200


@pytest.fixture
def trial(ministack: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trial:
    monkeypatch.setattr(merging_module, "time", Later)
    return Trial(ministack.new_url(), tmp_path, ministack.options)


def names(location: LogLocation) -> list[str]:
    return [location.name_of(part) for part in location.parts()]


def test_the_batches_of_an_hour_become_one_part_with_the_same_records(trial: Trial) -> None:
    trial.write(3)
    trial.write(3, "eve")
    before, parts = list(records(trial.location)), names(trial.location)
    merged = merge(trial.location)
    assert merged.batches == len(parts) > 4
    assert len(names(trial.location)) == merged.parts <= 2
    assert list(records(trial.location)) == before
    assert trial.verdict().findings == ()
    assert merge(trial.location) == MergeResult()
    trial.write(2)
    assert len(list(records(trial.location))) == len(before) + 3
    assert merge(trial.location).batches in (2, 3)
    assert trial.verdict().findings == ()


def test_the_current_hour_is_not_merged(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    trial.write(3)
    parts = names(trial.location)
    hours = {name[:13] for name in parts}
    merge(trial.location)
    assert len(hours) > 1 or names(trial.location) == parts


def test_records_are_read_from_the_end_as_from_the_beginning(trial: Trial) -> None:
    trial.write(4)
    merge(trial.location)
    trial.write(2)
    forwards = list(lines_of(trial.location))
    assert list(lines_of(trial.location, newest_first=True)) == forwards[::-1]


@pytest.mark.parametrize("after", [False, True])
def test_no_record_is_lost_or_read_twice_wherever_a_merge_is_stopped(trial: Trial, tmp_path: Path, after: bool) -> None:
    for at in range(0, 200, 1 if sizes.is_long else 7):
        one = Trial(f"{trial.target}/{at}", tmp_path / str(at), trial.options)
        one.heads.parent.mkdir()
        one.write(4)
        before = one.appends()
        try:
            merge(stopping(one.location, at, after=after))
        except Stopped:
            stopped = True
        else:
            stopped = False
        assert one.appends() == before
        assert one.verdict().findings == ()
        one.write(1, "eve")
        merge(one.location)
        assert one.appends()[:4] == before
        assert one.verdict().findings == ()
        one.renewal().prune(FAR)
        assert one.appends() == []
        assert one.verdict().findings == ()
        if not stopped:
            return
    raise AssertionError("the merge never ended")


def test_a_change_in_a_merged_part_is_found(trial: Trial) -> None:
    trial.write(4)
    merge(trial.location)
    [part] = trial.location.parts()
    data = trial.location.store.read(part).data
    lines = data.splitlines(keepends=True)
    for number in range(1, len(lines)):
        trial.location.store.write(part, b"".join(lines[:number] + lines[number + 1 :]))
        assert not trial.verdict().is_intact, number
    trial.location.store.write(part, data.replace(b'"actor":"ops"', b'"actor":"spo"', 1))
    assert not trial.verdict().is_intact
    trial.location.store.write(part, data)
    assert trial.verdict().findings == ()


def test_a_merged_part_hides_no_batch_that_it_does_not_have(trial: Trial) -> None:
    trial.write(3)
    merge(trial.location)
    trial.write(2)
    [part, *batches] = trial.location.parts()
    data = trial.location.store.read(part).data
    name = trial.location.name_of(batches[-1]).partition("/")[2].encode()
    trial.location.store.write(part, data.replace(b'["', b'["' + name + b'","', 1))
    assert not trial.verdict().is_intact


def test_a_restarted_log_keeps_its_parts_as_they_are(trial: Trial) -> None:
    trial.write(4)
    lose(trial.location)
    trial.renewal().restart("a disk lost its end")
    kept = names(trial.location)
    trial.write(4)
    merge(trial.location)
    assert set(kept) < set(names(trial.location))
    assert trial.verdict().findings == ()
    for part in trial.location.parts():
        if trial.location.name_of(part) in kept:
            trial.location.store.delete(part)
    assert not trial.verdict().is_intact


def test_a_large_batch_between_small_ones_keeps_its_place(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    trial.write(6)
    before = trial.appends()
    sizes_of = [len(trial.location.store.read(part).data) for part in trial.location.parts()]
    monkeypatch.setattr(merging_module, "MOST_BYTES", max(sizes_of) + min(sizes_of) - 1)  # the first one stands alone
    merge(trial.location)
    assert trial.appends() == before
    assert trial.verdict().findings == ()


def test_an_hour_may_have_more_than_a_thousand_merged_parts(trial: Trial) -> None:
    trial.write(3)
    merge(trial.location)
    [part] = trial.location.parts()
    late = trial.location.name_of(part).replace(".000.", ".999.")
    trial.location.store.write(trial.location.directory.join(late), trial.location.store.read(part).data)
    trial.location.store.delete(part)
    before = trial.appends()
    trial.write(2)
    trial.write(2)
    merge(trial.location)
    assert trial.appends()[: len(before)] == before
    assert len(trial.appends()) == len(before) + 4
    assert trial.verdict().findings == ()


def test_writers_and_merges_at_once_lose_no_record(trial: Trial) -> None:
    writers, merges = 3, 3
    barrier, errors = threading.Barrier(writers + merges), list[BaseException]()

    def caught(work: Any) -> None:
        try:
            for _ in range(4):
                barrier.wait()
                work()
        except BaseException as error:  # noqa: BLE001 - the test reports it
            errors.append(error)
            barrier.abort()

    works: list[Any] = [lambda: trial.write(3)] * writers + [lambda: merge(trial.location)] * merges
    threads = [threading.Thread(target=caught, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(trial.appends()) == len(set(trial.appends())) == writers * 4 * 3
    assert trial.verdict().findings == ()
    merge(trial.location)
    assert len(set(trial.appends())) == writers * 4 * 3
    assert trial.verdict().findings == ()


def test_a_log_on_a_disk_has_nothing_to_merge(tmp_path: Path) -> None:
    trial = Trial(f"file://{tmp_path}/root", tmp_path)
    trial.write(3)
    assert merge(trial.location) == MergeResult()
    assert len(trial.appends()) == 3
