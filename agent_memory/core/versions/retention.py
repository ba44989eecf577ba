"""Finds the versions that the limits no longer keep, and deletes them: all at once, or a few in each change."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Final

from agent_memory.backend import Backend
from agent_memory.core import tree_flows
from agent_memory.core.internal_trees import Sweep
from agent_memory.core.versions.find import Histories
from agent_memory.core.versions.reader import ListedRecord, RecordListing, end_order, history_order
from agent_memory.core.versions.record import OF_DIRECTORIES
from agent_memory.core.versions.settings import VersionLimits
from agent_memory.key import Key
from agent_memory.runtime.run import Run

YOUNG_SECONDS: Final = 3600.0
"""A version that ended less than an hour ago is always kept."""
_DAY: Final = 86_400.0


def expired(listed: Iterable[ListedRecord], limits: VersionLimits, now: float, at_least: int = 1) -> list[ListedRecord]:
    """Return the records that the limits do not keep.

    Limits count under each name: a copy of a file takes no room from it. The ``at_least`` newest records of each name
    are always kept, and all that ended less than an hour ago. Times are those of the storage. To keep the total below
    `VersionLimits.max_bytes`, the versions that ended first go first. A mark goes with the last record it may lead to.
    """
    names: dict[str, list[ListedRecord]] = defaultdict(list)
    marks: list[ListedRecord] = []
    for each in listed:
        (marks if each.name.is_mark else names[each.name.path]).append(each)
    gone: list[ListedRecord] = []
    left: list[ListedRecord] = []
    newest: list[ListedRecord] = []
    for records in names.values():
        records = _newest_first(records)
        newest += records[:at_least]
        for number, each in enumerate(records[at_least:], at_least + 1):
            is_kept = _is_young(each, now) or (number <= limits.keep and each.modified + limits.days * _DAY > now)
            (left if is_kept else gone).append(each)
    total = sum(each.size for each in (*newest, *left))
    for each in sorted(left, key=lambda each: each.modified):
        if total > limits.max_bytes and not _is_young(each, now):
            total -= each.size
            gone.append(each)
    return [*gone, *(each for each in _useless(marks, {*newest, *left} - {*gone}) if not _is_young(each, now))]


def _useless(marks: Iterable[ListedRecord], kept: Collection[ListedRecord]) -> list[ListedRecord]:
    """The marks that lead to no record; that of a directory may lead to each record that is not younger."""
    histories, oldest = {each.name.history for each in kept}, min((each.modified for each in kept), default=math.inf)
    return [
        each
        for each in marks
        if (each.modified < oldest if each.name.history == OF_DIRECTORIES else each.name.history not in histories)
    ]


def _is_young(listed: ListedRecord, now: float) -> bool:
    return listed.modified + YOUNG_SECONDS > now


def _newest_first(records: Iterable[ListedRecord]) -> list[ListedRecord]:
    """The records under one name: the file that ended last first, each by its numbers; files of tombstones last."""
    files = RecordListing(records).records.values()
    by_time = sorted(files, key=lambda those: max(map(end_order, those)), reverse=True)
    return [each for those in by_time for each in sorted(those, key=history_order, reverse=True)]


async def prune(store: Backend, run: Run, histories: Histories, limits: VersionLimits, now: float) -> int:
    """Delete all versions of an agent that the limits do not keep; return their number."""
    gone = expired(await histories.names(), limits, now)
    await tree_flows.delete_each(store, run, tuple(each.entry for each in gone))
    return sum(not each.name.is_mark for each in gone)


async def prune_a_few(
    sweep: Sweep, store: Backend, run: Run, agent: str | None, limits: VersionLimits, now: float
) -> None:
    """Delete a few of the versions that `prune` deletes.

    The two newest records of each name stay, because one of them may be of a change that was not made. A clock that is
    ahead of the storage's deletes nothing early.
    """

    async def listed() -> list[Key]:
        names = await Histories(store, run, agent).names()
        storages_now = min(now, max((each.modified for each in names), default=now))  # the change wrote a record
        return [each.key for each in expired(names, limits, storages_now, 2)]

    async def delete(key: Key) -> None:
        await run.call(store.delete, key)

    await sweep.delete_a_few(run, agent, listed, delete)
