"""The simulation of processes that compact a history finds no failure in the real code, and each planted defect."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

import pytest

from agent_memory.conversation.compacting import Compaction, _Removal
from agent_memory.conversation.selection import MessageSelection
from tests.simulation.compacting import compacting_failures, run_compacting_schedule
from tests.support import sizes

_BLOCKS, _SHORT, _LONG, _PLANTED = 10, 150, 20_000, 200


@pytest.mark.parametrize("block", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, _BLOCKS))])
def test_no_schedule_of_compactions_fails(block: int) -> None:
    seeds = range(block * _LONG // _BLOCKS, (block + 1) * _LONG // _BLOCKS) if sizes.is_long else range(_SHORT)
    found = list(islice(compacting_failures(seeds), 3))
    assert not found, "\n".join(map(str, found))


def test_the_same_seed_gives_the_same_schedule() -> None:
    assert run_compacting_schedule(17).requests == run_compacting_schedule(17).requests


async def lines_are_archived_without_a_note(self: Compaction, archive: Any, lines: bytes, removal: _Removal) -> None:
    await self._replace(archive, archive.data + lines)
    await self._remove(removal)


async def lines_are_removed_before_they_are_archived(
    self: Compaction, archive: Any, lines: bytes, removal: _Removal
) -> None:
    await self._remove(removal)
    await self._replace(archive, archive.data + lines)


def a_removal_is_always_due(self: _Removal, history: bytes) -> bool:
    return len(history) >= self.size


def the_state_of_the_history_is_not_compared(self: _Removal, history: bytes) -> bool:
    return history[: self.size].endswith(b"\n") and len(history) >= self.of


def the_last_message_is_removed_too(_: MessageSelection, history: bytes) -> int:
    return len(history)


async def the_archive_is_replaced_without_a_condition(self: Compaction, _: Any, data: bytes) -> str:
    return (await self._memory.write(str(self._archive), data)).sha256


DEFECTS = {
    defect.__name__: (where, name, defect)
    for where, name, defect in (
        (Compaction, "_note", lines_are_archived_without_a_note),
        (Compaction, "_note", lines_are_removed_before_they_are_archived),
        (_Removal, "is_due", a_removal_is_always_due),
        (_Removal, "is_due", the_state_of_the_history_is_not_compared),
        (MessageSelection, "end_of_removed", the_last_message_is_removed_too),
        (Compaction, "_replace", the_archive_is_replaced_without_a_condition),
    )
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_the_simulation_of_compactions_finds_a_planted_defect(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*DEFECTS[defect])
    found = next(compacting_failures(range(_PLANTED)), None)
    assert not re.search("TypeError|AttributeError", str(found)), "the defect is not planted right"
    assert found is not None
