"""Merges the objects of an audit log over a network: those of an hour become one, with the same lines.

A merged part begins with the names of its batches, so that a reader passes over a batch that is still there: after a
merge that was interrupted, or a writer that repeats a request, no record is read twice. Of several merges at the same
time, exactly one creates the next part of an hour: the others find its number taken.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

from agent_memory.audit.bases import bases_of
from agent_memory.audit.location import LogLocation
from agent_memory.backend import ABSENT, BlockingBackend
from agent_memory.errors import AgentMemoryFileNotFoundError, FileAlreadyExistsError
from agent_memory.key import Key

MOST_BYTES: Final = 16_000_000
"""The size in bytes after which a merged part ends."""
MOST_BATCHES: Final = 1_000
"""The maximum number of batches in a merged part."""


class MergeResult(NamedTuple):
    """How many batches became how many merged parts."""

    batches: int = 0
    parts: int = 0


def merge(location: LogLocation) -> MergeResult:
    """Merge the batches of each hour that has ended. On a disk there is nothing to merge.

    Raises:
        FileOperationError: the storage failed; a repeated call goes on.
    """
    finish_merges(location)
    result = MergeResult()
    for hour, found in _hours(location).items():
        with suppress(AgentMemoryFileNotFoundError):  # another merge, or a prune, removed a batch
            for some in _portions(location, found.batches):
                if len(some) < 2 and some[-1][0] == found.batches[-1]:
                    break  # a last one stays as it is, after the merged parts
                if not _merged(location, f"{hour}.merged.{found.count:03d}.jsonl", some):
                    break
                found.count += 1
                result = MergeResult(result.batches + len(some), result.parts + 1)
    return result


def finish_merges(location: LogLocation) -> None:
    """Remove batches that a merged part already has."""
    if isinstance(location.store.backend, BlockingBackend):
        return
    found = dict.fromkeys(location.parts())
    for part in location.merged(found):
        for name in location.merged_names(part):
            if (key := location.directory.join(name)) in found:
                _remove(location, key)


@dataclass
class _Hour:
    """The batches of an hour, in their order, and the number of its next merged part."""

    batches: list[Key] = field(default_factory=list)
    count: int = 0


def _hours(location: LogLocation) -> dict[str, _Hour]:
    """The hours that have ended, without parts that a restart keeps as they are.

    One listing shows the merged parts and the batches that are in none of them.
    """
    if isinstance(location.store.backend, BlockingBackend):
        return {}
    now = f"{datetime.fromtimestamp(time.time(), UTC):%Y-%m-%d/%H}"
    found: defaultdict[str, _Hour] = defaultdict(_Hour)
    bases = bases_of(location, checked=False)
    kept = {cut.name for base in bases if base.facts for cut in base.facts.parts if cut.stays}
    for part, _ in location.readers():
        hour = location.name_of(part)[:13]
        if (count := location.merged_count(part)) is not None:
            found[hour].count = max(found[hour].count, count + 1)
        elif location.is_batch(part) and hour < now and location.name_of(part) not in kept:
            found[hour].batches.append(part)
    return found


Portion = Sequence[tuple[Key, bytes]]


def _portions(location: LogLocation, batches: Sequence[Key]) -> Iterator[Portion]:
    """The batches with their bytes, in portions of at most about `MOST_BYTES`."""
    some: list[tuple[Key, bytes]] = []
    for key in batches:
        data = location.store.read(key).data
        if some and (len(some) == MOST_BATCHES or sum(len(each) for _, each in some) + len(data) > MOST_BYTES):
            yield some
            some = []
        some.append((key, data if data.endswith(b"\n") else data + b"\n"))
    if some:
        yield some


def _merged(location: LogLocation, name: str, batches: Portion) -> bool:
    """Store the lines of the batches as one part, and remove the batches; False if another merge took the name."""
    names = [location.name_of(key).partition("/")[2] for key, _ in batches]
    first = json.dumps({"merged": names}, separators=(",", ":")).encode("ascii")
    try:
        location.store.write(location.directory.join(name), b"".join((first, b"\n", *dict(batches).values())), ABSENT)
    except FileAlreadyExistsError:
        return False
    for key, _ in batches:
        _remove(location, key)
    return True


def _remove(location: LogLocation, key: Key) -> None:
    with suppress(AgentMemoryFileNotFoundError):
        location.store.delete(key)
