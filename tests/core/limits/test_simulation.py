"""The simulation of processes with limits finds no failure in the real code, and finds every planted defect."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any, TypeAlias

import pytest

from agent_memory.backend import ETag
from agent_memory.core.limits.change import FileChange
from agent_memory.core.limits.charge import Charge
from agent_memory.core.limits.ledger import NOTHING, Amount, Lease, Ledger
from agent_memory.core.limits.quota import Quota
from agent_memory.core.limits.store import LimitedStore
from tests.simulation.limited import limited_failures, run_limited_schedule
from tests.support import sizes

_BLOCKS = 10
_SHORT, _LONG, _PLANTED = 150, 20_000, 100
TELLING = (0, 33, 70, 104, 199, 330, 866, 4688)
"""Seeds whose schedules found the planted defects; they come first."""
Planted: TypeAlias = tuple[Any, str, Any]


@pytest.mark.parametrize("block", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, _BLOCKS))])
def test_no_schedule_with_limits_fails(block: int) -> None:
    seeds = range(block * _LONG // _BLOCKS, (block + 1) * _LONG // _BLOCKS) if sizes.is_long else range(_SHORT)
    found = list(islice(limited_failures(seeds), 3))
    assert not found, "\n".join(map(str, found))


def test_the_same_seed_gives_the_same_schedule() -> None:
    assert str(run_limited_schedule(17)) == str(run_limited_schedule(17)) != str(run_limited_schedule(18))


def a_new_lease_does_not_contain_what_is_under_way(self: Quota) -> Any:
    closed = _close(self)
    return closed._replace(added=closed.added.plus(closed.carried), carried=NOTHING)


def what_may_have_happened_is_given_back(self: Charge) -> None:
    self.give_back()


def what_is_freed_can_be_used_at_once(self: Quota, amount: Amount, _: str) -> None:
    self._free = self._free.plus(amount)


def what_was_freed_before_a_count_is_freed_again(self: Quota, ledger: Ledger, closed: Any) -> Ledger:
    return _after(self, ledger, closed._replace(count_id=ledger.count))


def a_known_state_is_no_condition(self: FileChange) -> None:
    _use_known_state(self)
    self._state = self._when


async def a_deletion_frees_without_a_condition(self: LimitedStore, key: Any, when: Any = None) -> None:
    known, count = self.quota.state_of(key), self.quota.count
    self.quota.unlearn(key)
    await self._call(self._inner.delete, key, *([when] if isinstance(when, ETag) else []))
    if known:
        self.quota.credit(known.amount, count)


def a_lease_of_another_process_ends_at_once(self: Lease, now: float) -> bool:
    return now < self.until - 175


def listed_files_are_taken_for_counted(self: Quota, *args: Any) -> Any:
    async def counted() -> Any:
        count, ledger = await _counted(self, *args)
        for entry in count.entries:
            self.learn(entry.key, entry.etag, Amount(entry.size, 1))
        return count, ledger

    return counted()


def no_file_is_too_large(*_: object) -> bool:
    return False


_close, _after, _counted = Quota._close, Quota._after, Quota._counted
_use_known_state = FileChange._use_known_state
DEFECTS: dict[str, Planted] = {
    defect.__name__: (where, name, defect)
    for where, name, defect in (
        (Quota, "_close", a_new_lease_does_not_contain_what_is_under_way),
        (Charge, "leave_in_doubt", what_may_have_happened_is_given_back),
        (Quota, "credit", what_is_freed_can_be_used_at_once),
        (Quota, "_after", what_was_freed_before_a_count_is_freed_again),
        (FileChange, "_use_known_state", a_known_state_is_no_condition),
        (LimitedStore, "delete", a_deletion_frees_without_a_condition),
        (Lease, "counts", a_lease_of_another_process_ends_at_once),
        (Quota, "_counted", listed_files_are_taken_for_counted),
        (LimitedStore, "is_too_large", no_file_is_too_large),
    )
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_the_simulation_of_limits_finds_a_planted_defect(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*DEFECTS[defect])
    found = next(limited_failures([*TELLING, *range(_PLANTED)]), None)
    assert not re.search("TypeError|AttributeError", str(found)), "the defect is not planted right"
    assert found is not None
