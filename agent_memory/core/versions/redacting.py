"""Redaction: erases the content of one earlier version, and leaves a tombstone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias, cast

from agent_memory.backend import ABSENT, Backend, named, renewed_deadline
from agent_memory.core import tree_flows
from agent_memory.core.flows import erases
from agent_memory.core.versions.history import Histories
from agent_memory.core.versions.origin import MadeBy
from agent_memory.core.versions.states import Chain, FileVersion, Kept, real, version_of
from agent_memory.errors import (
    AgentMemoryFileNotFoundError,
    ConflictError,
    InvalidContentError,
    UnsupportedOperationError,
)
from agent_memory.key import Key
from agent_memory.runtime.run import Run

_MOST_REASON: Final = 500
ReadRange: TypeAlias = Callable[[int, int], Awaitable[bytes]]


class RedactResult(NamedTuple):
    """The result of a redaction.

    Attributes:
        path: the file.
        version: the id of the redacted version.
        still_in: the other versions of the same file, and the present one, that still contain the content; if the
            content is over the size of one part (8 MiB, on S3 at least 5 MiB), only those that begin with it.
    """

    path: str
    version: str
    still_in: tuple[FileVersion, ...]


def checked_reason(reason: object) -> str:
    """Return the reason of a redaction.

    Raises:
        InvalidContentError: it is not a text of 1 to 500 printable characters.
    """
    if not isinstance(reason, str) or not 1 <= len(reason) <= _MOST_REASON or not reason.isprintable():
        raise InvalidContentError(f"reason must be a str of 1 to {_MOST_REASON} printable characters")
    return reason


async def redact(
    store: Backend, run: Run, histories: Histories, key: Key, version: str, by: MadeBy, reason: str
) -> RedactResult:
    """Erase all records of a version, and everything that the storage keeps of earlier states of the file.

    The tombstone is written last. If the process ends before, the version is gone without a tombstone, or a repeated
    call finishes the work.

    Raises:
        AgentMemoryFileNotFoundError: the file has no earlier version with this id, or it is redacted already.
        ConflictError: the version is the present file.
        UnsupportedOperationError: the storage does not promise that it keeps nothing.
    """
    erase_earlier = _erase_earlier(store, key)
    chain = await histories.chain(key)
    if chain.live and chain.live.id == version:
        raise ConflictError("this version is the present file: replace or delete its content first", path=key.path)
    records = [each for each in await histories.of_version(key, version) if not each.record.redacted_by]
    if not records:
        raise AgentMemoryFileNotFoundError(f"version {version!r} was redacted", path=key.path)
    best = real(records, None)[0]
    still_in = await _Search(store, run, histories, best).containing(key, chain)
    for path in dict.fromkeys([key.path, *(each.record.path for each in [*chain.kept, *records])]):
        with renewed_deadline(run.now()):
            await run.call(erase_earlier, histories.key(path))
    for each in records:
        with renewed_deadline(run.now()):
            await tree_flows.forget(store, run, each.key)
    tombstone = best.record.redacted(by, reason)
    await run.call(store.write, best.key.parent.join(tombstone.name), tombstone.trailer(), ABSENT)
    return RedactResult(key.path, version, still_in)


def _erase_earlier(store: object, key: Key) -> Callable[[Key], Awaitable[int]]:
    if not erases(store):
        raise UnsupportedOperationError(
            f"{named(key)}: this backend does not promise that it keeps nothing of a deleted file"
        )
    return cast("Callable[[Key], Awaitable[int]]", store.erase_earlier)


class _Search:
    """The search for the content of one record in other states."""

    def __init__(self, store: Backend, run: Run, histories: Histories, sought: Kept) -> None:
        self._store = store
        self._run = run
        self._histories = histories
        self._sought = sought
        self._size = sought.record.size

    async def containing(self, key: Key, chain: Chain) -> tuple[FileVersion, ...]:
        """Return the states of a chain that contain the content; an empty content is in none."""
        states = [(version_of(each), each.key) for each in chain.kept if each.record.id != self._sought.record.id]
        if chain.live:
            states.insert(0, (chain.live, key))
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
