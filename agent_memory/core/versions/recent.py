"""The earlier versions of all files of a tree, the latest first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from agent_memory.backend import Entry
from agent_memory.core.versions.history import Histories
from agent_memory.core.versions.record import NONCE_LENGTH, Name
from agent_memory.core.versions.states import FileVersion, real, version_of
from agent_memory.errors import AgentMemoryFileNotFoundError
from agent_memory.key import Key

_AT_A_TIME: Final = 100


async def recent(
    histories: Histories,
    is_meant: Callable[[str], bool],
    limit: int | None,
    after: str | None,
) -> tuple[FileVersion, ...]:
    """Return the earlier versions of those files that are meant, by the storage's time of their end, latest first.

    Args:
        histories: the records.
        is_meant: whether the versions of a path are returned.
        limit: the maximum number; None for all.
        after: the id of the last version of the page before.

    Raises:
        AgentMemoryFileNotFoundError: there is no version ``after``.
    """
    names = _latest_first(await histories.entries())
    ids = list(names)
    if after is not None:
        last = after if after in names else after[:-NONCE_LENGTH]  # the second content of a state
        if last not in names:
            raise AgentMemoryFileNotFoundError(f"no version {after!r}")
        del ids[: ids.index(last) + 1]
    found: list[FileVersion] = []
    step = min(limit or _AT_A_TIME, _AT_A_TIME)
    while ids and (limit is None or len(found) < limit):
        now, ids = ids[:step], ids[step:]
        kept = await histories.read([key for each in now for key in names[each]])
        meant = [each for each in kept if is_meant(each.record.path)]
        found += map(version_of, real(meant, await histories.live_ids(each.record.path for each in meant)))
    return tuple(found[:limit])


def _latest_first(entries: Iterable[Entry]) -> dict[str, list[Key]]:
    """The names of the records of each version."""
    names: dict[str, list[Key]] = {}
    for entry in sorted(entries, key=lambda entry: (-entry.modified, entry.key.name)):
        if name := Name.parse(entry.key.name):
            names.setdefault(name.id, []).append(entry.key)
    return names
