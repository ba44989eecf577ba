"""Finds the versions that the limits no longer keep, and deletes them: all at once, or a few in each change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from agent_memory.backend import Backend, Entry
from agent_memory.backend._deadline import renewed_deadline
from agent_memory.core import tree_flows
from agent_memory.core.internal_trees import Sweep
from agent_memory.core.versions.history import Histories
from agent_memory.core.versions.record import Name, records_of
from agent_memory.core.versions.settings import VersionLimits
from agent_memory.core.versions.states import one_per_state
from agent_memory.key import Key
from agent_memory.runtime.run import Run

YOUNG_SECONDS: Final = 3600.0
"""A version that ended less than an hour ago is always kept."""
_DAY: Final = 86_400.0


def expired(entries: Iterable[Entry], limits: VersionLimits, now: float, at_least: int = 1) -> list[Entry]:
    """Return the records that the limits do not keep.

    The ``at_least`` newest records of each file are always kept, and all that ended less than an hour ago. Times are
    those of the storage. To keep the total below `VersionLimits.max_bytes`, the versions that ended first go first.
    """
    files: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if Name.parse(entry.key.name):
            files[entry.path.rpartition("/")[0]].append(entry)
    gone: list[Entry] = []
    left: list[Entry] = []
    newest = 0
    for names in files.values():
        names.sort(key=lambda entry: entry.key.name)
        newest += sum(entry.size for entry in names[:at_least])
        for number, entry in enumerate(names[at_least:], at_least + 1):
            is_young = entry.modified + YOUNG_SECONDS > now
            is_kept = is_young or (number <= limits.keep and entry.modified + limits.days * _DAY > now)
            (left if is_kept else gone).append(entry)
    total = newest + sum(entry.size for entry in left)
    for entry in sorted(left, key=lambda entry: entry.modified):
        if total > limits.max_bytes and entry.modified + YOUNG_SECONDS <= now:
            total -= entry.size
            gone.append(entry)
    return gone


async def prune(store: Backend, run: Run, histories: Histories, limits: VersionLimits, now: float) -> int:
    """Delete all versions of an agent that the limits do not keep; return their number.

    Records of changes that were not made are deleted too; they do not count.
    """
    entries = await histories.entries()
    leftovers = {entry.key for entry in await _leftovers(histories, entries)}
    gone = expired([entry for entry in entries if entry.key not in leftovers], limits, now)
    old = [entry for entry in entries if entry.key in leftovers and entry.modified + YOUNG_SECONDS <= now]
    await tree_flows.delete_each(store, run, (*gone, *old))
    return len(gone)


async def _leftovers(histories: Histories, entries: Sequence[Entry]) -> list[Entry]:
    """The records of changes that were not made: of a state that is still current, or that has another record."""
    by_state: dict[tuple[str, Name], list[Entry]] = defaultdict(list)
    newest: dict[str, Entry] = {}
    for entry in sorted(entries, key=lambda entry: entry.path):
        if name := Name.parse(entry.key.name):
            directory = entry.path.rpartition("/")[0]
            newest.setdefault(directory, entry)
            by_state[directory, name._replace(nonce="")].append(entry)
    doubled = [entry for those in by_state.values() if len(those) > 1 for entry in those]
    records = await histories.read([entry.key for entry in {*doubled, *newest.values()}])
    current = await histories.current_ids(each.record.path for each in records)
    best = {each.key for each in one_per_state(records, current, {name.id for _, name in by_state})}
    keys = {each.key for each in records} - best
    return [entry for entry in entries if entry.key in keys]


async def prune_a_few(
    sweep: Sweep, store: Backend, run: Run, agent: str | None, limits: VersionLimits, now: float
) -> None:
    """Delete a few of the versions that `prune` deletes.

    The two newest records of each file stay, because one of them may be of a change that was not made.
    """

    async def listed() -> list[Key]:
        with renewed_deadline(run.now()):
            listing = await tree_flows.list_all(store, run, records_of(agent))
        return [entry.key for entry in expired(listing.entries, limits, now, 2)]

    async def delete(key: Key) -> None:
        await run.call(store.delete, key)

    await sweep.delete_a_few(run, agent, listed, delete)
