"""The order of the records of one history, which of them are ancestors of a state, and which are leftovers.

No record is left out because its id repeats: a state has several records if its file was copied, if it came back, or
if a change kept it and then lost a race or its process. A record is a leftover if a content of the same state is shown
that begins with its content.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Sequence

from agent_memory.core.versions.states import CurrentFile, StoredRecord

Begins = Callable[[CurrentFile | StoredRecord, StoredRecord], Awaitable[bool]]
"""Whether the content of the first begins with that of the second."""


def newest_first(records: Iterable[StoredRecord]) -> list[StoredRecord]:
    """Return records of one history, the latest state first.

    The number of changes decides. Where several states have one number, because a copy of the file went on for itself,
    it is the storage's time, and no state comes before its predecessor.
    """
    ordered = sorted(records, key=lambda each: (each.record.number, each.record.ended_by.time, str(each.name)))
    if len({each.record.number for each in ordered}) == len({each.record.id for each in ordered}):
        return ordered[::-1]
    times: dict[str, float] = {}
    for each in ordered:
        earliest = times.get(each.record.previous or "", 0.0)
        times[each.record.id] = max(each.record.ended_by.time, earliest, times.get(each.record.id, 0.0))
    return sorted(ordered, key=lambda each: (times[each.record.id], each.record.number), reverse=True)


def lineage(
    records: Iterable[StoredRecord], place: str, previous: str | None, existing: Container[str]
) -> list[StoredRecord]:
    """Return the records of one history that ended under a name, and those of the states before.

    Args:
        records: records of one history.
        place: the digest of the path.
        previous: the id of the state before the current one; None if there is no current one.
        existing: the ids of all states of the history that have a record.
    """
    ancestors = {previous}
    below = float("inf") if previous is not None and previous not in existing else -1.0
    found: list[StoredRecord] = []
    for each in sorted(records, key=lambda each: each.record.number, reverse=True):
        record = each.record
        if each.name.path == place or record.id in ancestors or record.number < below:
            found.append(each)
            ancestors.add(record.previous)
            if record.previous is not None and record.previous not in existing:
                below = max(below, record.number)  # the state before is not kept: what is below it came before
    return found


async def shown(
    records: Iterable[StoredRecord], place: str, current: CurrentFile | None, existing: Collection[str], begins: Begins
) -> list[StoredRecord]:
    """Return the records of one history that a name shows, without the leftovers.

    Args:
        records: records of one history.
        place: the digest of the path.
        current: the current file with this name.
        existing: the ids of all states of the history that have a record.
        begins: compares two contents.
    """
    present = current.state.id if current else ""
    existing = {*existing, present}
    of_state: dict[str, list[StoredRecord]] = defaultdict(list)
    for each in records:
        of_state[each.record.id].append(each)
    found: list[StoredRecord] = []
    for id_, those in of_state.items():
        true_first = true_records(those, place, existing)
        found += await _contents(true_first, current if id_ == present else None, begins)
    return newest_first(found)


async def _contents(records: Sequence[StoredRecord], current: CurrentFile | None, begins: Begins) -> list[StoredRecord]:
    """The records of one state, without each record whose content is the beginning of another one."""
    found: list[StoredRecord] = []
    for each in records:
        others: list[CurrentFile | StoredRecord] = [current] if current else []
        others += (other for other in found if other.record.reason is None)
        is_tombstone = each.record.reason is not None
        if found if is_tombstone else [other for other in others if await begins(other, each)]:
            continue
        found.append(each._replace(is_second=bool(found or current)))
    return found


def true_records(records: Sequence[StoredRecord], place: str, existing: Container[object]) -> list[StoredRecord]:
    """The records of one state under a name, the true one first; those under other names if this name has none."""
    own = [each for each in records if each.name.path == place] or records
    return sorted(own, key=lambda each: rank(each, existing), reverse=True)


def rank(stored: StoredRecord, existing: Container[object]) -> tuple[bool, bool, int, bool, bool]:
    """Order the records of one state: the true one has the highest rank.

    A tombstone goes before all, and one of a redaction that did not end after all. All contents are true copies of the
    state as it was at that time, so the longest one has all that was appended. Of equally long ones, the one with a
    successor that exists names the operation that ended the state, else the one of a deletion.
    """
    record = stored.record
    is_tombstone, is_content = record.redacted_by is not None, record.reason is None
    return is_tombstone, is_content, record.size, record.next in existing, record.next is None
