"""Redaction: erases the content of one earlier version, and leaves a tombstone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, cast

from agent_memory.backend import ABSENT, Backend
from agent_memory.backend._deadline import renewed_deadline
from agent_memory.core import tree_flows
from agent_memory.core.flows import erases
from agent_memory.core.versions.history import Histories
from agent_memory.core.versions.origin import MadeBy
from agent_memory.core.versions.record import MOST_REASON, Name, is_link
from agent_memory.core.versions.states import CurrentFile, FileVersion, StoredRecord, current_file, one_per_state, rank
from agent_memory.errors import (
    AgentMemoryFileNotFoundError,
    ConflictError,
    InvalidContentError,
    UnsupportedOperationError,
)
from agent_memory.key import Key, is_at_or_below
from agent_memory.runtime.run import Run

ReadRange: TypeAlias = Callable[[int, int], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class RedactResult:
    """The result of a redaction.

    Attributes:
        path: the file.
        version: the id of the redacted version.
        still_in: the other versions of the same file, and the current one, that contain the whole content; if the
            content is over the size of one part (8 MiB, on S3 at least 5 MiB), only those that begin with it. Empty if
            an earlier call erased the content.
        versions_searched: as of `agent_memory.TreeResult`.
    """

    path: str
    version: str
    still_in: tuple[FileVersion, ...]
    versions_searched: bool = True


def checked_reason(reason: object) -> str:
    """Return the reason of a redaction.

    Raises:
        InvalidContentError: it is not a text of 1 to 500 printable characters.
    """
    if not isinstance(reason, str) or not 1 <= len(reason) <= MOST_REASON or not reason.isprintable():
        raise InvalidContentError(f"reason must be a str of 1 to {MOST_REASON} printable characters")
    return reason


async def redact(
    store: Backend, run: Run, histories: Histories, key: Key, version: str, by: MadeBy, reason: str
) -> RedactResult:
    """Erase all records of a version, under all names of its file, and the earlier states that the storage keeps.

    A record that the redaction began is written first, and becomes the tombstone when all else is erased. So a repeated
    call finishes a redaction that did not end. After one that ended, it erases the records that were left.

    Raises:
        AgentMemoryFileNotFoundError: the file has no earlier version with this id.
        ConflictError: the version is a current file.
        UnsupportedOperationError: the storage does not promise that it keeps nothing.
    """
    erase_earlier = _erase_earlier(store, key)
    file = await _File.of_version(store, run, histories, key, version)
    records = [each for each in file.records if version.startswith(each.record.id)]
    if not records:  # another process has just erased them
        raise AgentMemoryFileNotFoundError(f"no version {version!r}", path=key.path)
    best = max(records, key=lambda each: rank(each, ()))
    records += await _copies(histories, file, best)
    still_in: tuple[FileVersion, ...] = ()
    tombstone = best.key
    if not best.record.redacted_by:
        if best.record.reason is None:
            still_in = await _ContentSearch(store, run, histories, best).containing(
                file, {each.record.id for each in records}
            )
        begun = best.record.redacted(None, reason)
        tombstone = best.key.parent.join(begun.name)
        await run.call(store.write, tombstone, begun.trailer(), ABSENT)
    searched, erased = True, 0
    with tree_flows.reported_as_partial(key, lambda: bool(erased)):
        for name in file.names:
            with renewed_deadline(run.now()):
                count = await run.call(erase_earlier, histories.key(name))
            searched &= count is not None
            erased += count or 0
        for each in records:
            if each.key != tombstone:
                with renewed_deadline(run.now()):
                    erased += (await tree_flows.forget(store, run, each.key)).files or 0
        if not best.record.redacted_by:
            await run.call(store.write, tombstone, best.record.redacted(by, reason).trailer())
    return RedactResult(key.path, version, still_in, searched)


async def _copies(histories: Histories, file: _File, sought: StoredRecord) -> list[StoredRecord]:
    """The records of the same state under the ids that it had before and after renames by a copy.

    A record with a content that the sought state does not begin with is another version.
    """
    ids = [sought.record.id]
    for id_ in ids:  # grows in the loop
        ids += [new for pair in file.renamed if id_ in pair for new in pair if new not in ids]
    others = [each for each in file.records if each.record.id in ids[1:] and each.record.size <= sought.record.size]
    if not others or sought.record.reason is not None:
        return others
    content = await histories.content_of(sought)
    return [each for each in others if content.startswith(await histories.content_of(each))]


class _File(NamedTuple):
    """A file under all its names.

    Attributes:
        names: the names, with those that it had before.
        current: the current states under these names.
        records: the records of the earlier states.
        renamed: the ids of a state before and after a rename by a copy.
    """

    names: list[str]
    current: list[CurrentFile]
    records: list[StoredRecord]
    renamed: list[tuple[str, str]]

    @staticmethod
    async def of_version(store: Backend, run: Run, histories: Histories, key: Key, version: str) -> _File:
        """Read the file that had a version; raises `AgentMemoryFileNotFoundError` if ``key`` never was its name."""
        current = await current_file(store, run, key)
        _refuse_current([current] if current else [], key, version)
        history = (await histories.records_of_version(key, version, current))[0].record.history
        keys = [entry.key for entry in await histories.entries()]
        in_history = [each for each in keys if (name := Name.parse(each.name)) and name.history == history]
        links = await histories.read_links([each for each in keys if is_link(each.name)])
        records = await histories.read(in_history)
        histories.require_read([*in_history, *filter(lambda each: is_link(each.name), keys)])
        names = {key.path: None, **{each.record.path: None for each in records}}
        for link in reversed(links):
            if link.history == history:
                names |= {link.source: None, link.target: None}
            elif link.history is None:
                moved = [name for name in names if is_at_or_below(name, link.source)]
                names |= {link.target + name[len(link.source) :]: None for name in moved}

        async def read(name: str) -> CurrentFile | None:
            return await current_file(store, run, histories.key(name))

        found = await run.map(read, list(names), tree_flows.AT_ONCE)
        states = [each for each in filter(None, found) if each.origin.history == history]
        _refuse_current(states, key, version)
        renamed = [(link.id_before, link.id_after) for link in links if link.id_before and link.id_after]
        return _File(list(names), states, records, renamed)


def _refuse_current(states: Iterable[CurrentFile], key: Key, version: str) -> None:
    if any(each.origin.id == version for each in states):
        raise ConflictError("this version is the current file: replace or delete its content first", path=key.path)


def _erase_earlier(store: object, key: Key) -> Callable[[Key], Awaitable[int | None]]:
    if not erases(store):
        raise UnsupportedOperationError(
            "this backend does not promise that it keeps nothing of a deleted file", path=key.path
        )
    return cast("Callable[[Key], Awaitable[int | None]]", store.erase_earlier)


class _ContentSearch:
    """The search for the content of one record in other states."""

    def __init__(self, store: Backend, run: Run, histories: Histories, sought: StoredRecord) -> None:
        self._store = store
        self._run = run
        self._histories = histories
        self._sought = sought
        self._size = sought.record.size

    async def containing(self, file: _File, erased: Collection[str]) -> tuple[FileVersion, ...]:
        """Return the states of a file that contain the content and are not erased; an empty content is in none."""
        states = [(each.version, each.key) for each in file.current]
        ids = [each.origin.id for each in file.current]
        states += [(each.version, each.key) for each in one_per_state(file.records, ids)]
        states = [(version, name) for version, name in states if version.id not in erased]
        states = [(version, name) for version, name in states if version.size >= self._size > 0]
        is_in = self._is_beginning if self._size > self._store.part_bytes else await self._is_inside()
        found: list[FileVersion] = []
        for version, name in states:
            try:
                if await is_in(self._range(name, version.size), version.size):
                    found.append(version)
            except AgentMemoryFileNotFoundError:
                continue  # another process deleted it
        return tuple(found)

    def _range(self, name: Key, size: int) -> ReadRange:
        async def read(start: int, end: int) -> bytes:
            with renewed_deadline(self._run.now()):
                return (await self._run.call(self._store.read, name, start, min(end, size))).data

        return read

    async def _is_inside(self) -> Callable[[ReadRange, int], Awaitable[bool]]:
        content = await self._histories.content_of(self._sought)

        async def is_in(read: ReadRange, size: int) -> bool:
            at = 0
            while at + len(content) <= size:
                end = at + 2 * self._store.part_bytes
                if content in await read(at, end):
                    return True
                at = end - len(content) + 1
            return False

        return is_in

    async def _is_beginning(self, read: ReadRange, _: int) -> bool:
        sought, part = self._range(self._sought.key, self._size), self._store.part_bytes
        for at in range(0, self._size, part):
            end = min(at + part, self._size)
            if await read(at, end) != await sought(at, end):
                return False
        return True
