"""`Composer`: appends to large objects without sending their bytes again, because the server copies them.

An append is a multipart upload. Its first parts are the object's bytes, copied by the server from exactly the state
that was read; the last part is the new bytes. It is completed only if that state is still current, and is invisible
until then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, cast

from agent_memory.object_store.engine import (
    NotSatisfiable,
    Object,
    ObjectStore,
    RetainedVersion,
    SupportsMultipart,
    TooLarge,
)
from agent_memory.object_store.retry import Attempts, Cleanup
from agent_memory.object_store.trial import Trial
from agent_memory.runtime.tasks import map_or_cancel

TAIL_BYTES: Final = 64
"""The number of bytes that an append reads at the end of a large object: the most that a separator may have."""
_COPIED_AT_ONCE: Final = 256 << 20
_MOST_COPIES: Final = 9_999
_UNDER_WAY: Final = 8


class Composer:
    """The appends of one backend by multipart upload.

    Args:
        store: the engine.
        trial: finds out whether the server enforces the preconditions of uploads.
        cleanup: aborts failed uploads.
    """

    def __init__(self, store: ObjectStore, trial: Trial, cleanup: Cleanup) -> None:
        self._store = store if isinstance(store, SupportsMultipart) else None
        self._trial = trial
        self._cleanup = cleanup

    @property
    def least(self) -> int | None:
        """The least size in bytes of an object that is appended to in parts; None if this is not known to be safe."""
        return self._store.least_part if self._store and self._trial.known.appends_in_parts else None

    async def read(self, store: ObjectStore, name: str, most: int, attempts: Attempts) -> Object:
        """Read an object of at most ``most`` bytes for an append; of one that is appended to in parts, read the end.

        If the object's size passes that limit between two requests, it is read again.

        Raises:
            TooLarge: the object has more than ``most`` bytes, and is not appended to in parts.
        """
        get = partial(store.get, name)
        tail = partial(get, span=f"bytes=-{TAIL_BYTES}", most=max(TAIL_BYTES, most))
        while True:
            try:
                return await attempts.until_answered(partial(get, most=self._most_to_read(most)))
            except TooLarge as large:
                if large.most == most:
                    raise
            if await self.is_safe(name, attempts):
                with suppress(NotSatisfiable):  # the object is empty by now
                    found = await attempts.until_answered(tail)
                    if found.size >= (self.least or 0):
                        return found

    def _most_to_read(self, most: int) -> int:
        """The most bytes to read of an object of unknown size: a larger one may be appended to without reading it."""
        return min(most, self._store.least_part - 1) if self._store and self._trial.known.may_append_in_parts else most

    async def is_safe(self, name: str, attempts: Attempts) -> bool:
        """Whether the server enforces the preconditions of copied parts.

        ``name`` is an object that is large enough to be a part.
        """
        return (await self._trial.try_copies(name, attempts)).appends_in_parts

    async def append(
        self, name: str, etag: str, size: int, data: bytes, metadata: Mapping[str, str], attempts: Attempts
    ) -> str:
        """Append to an object that has the ETag ``etag`` and has ``size`` bytes; return the new ETag.

        Raises:
            NoResponse, PreconditionFailed, WriteConflict: as a conditional PUT.
            NotFound: as a conditional PUT; or the upload was aborted.
            OutOfTimeError: as `Attempts`.
        """
        store = cast(SupportsMultipart, self._store)  # other engines never append in parts
        async with self._upload(store, name, metadata, attempts) as upload:
            parts = await _copied(store, name, upload, etag, size, attempts)
            new = partial(store.put_part, name, upload, len(parts) + 1, data)
            parts.append(await attempts.until_answered(new))
            return await attempts.write_once(partial(store.complete_upload, name, upload, parts, if_match=etag))

    async def write(
        self,
        name: str,
        data: bytes,
        metadata: Mapping[str, str],
        attempts: Attempts,
        *,
        if_match: str | None = None,
        absent: bool = False,
    ) -> str:
        """Write an object as an upload of one part, and return its ETag, which no PUT makes. Raises as `append`."""
        store = cast(SupportsMultipart, self._store)
        async with self._upload(store, name, metadata, attempts) as upload:
            part = await attempts.until_answered(partial(store.put_part, name, upload, 1, data))
            complete = partial(store.complete_upload, name, upload, [part], if_match=if_match, absent=absent)
            return await attempts.write_once(complete)

    @asynccontextmanager
    async def _upload(
        self, store: SupportsMultipart, name: str, metadata: Mapping[str, str], attempts: Attempts
    ) -> AsyncIterator[str]:
        """An upload that is aborted if the body fails: until then the store keeps its parts, and charges for them."""
        upload = await attempts.until_answered(partial(store.begin_upload, name, metadata))
        async with self._cleanup.on_failure(partial(store.abort_upload, RetainedVersion(name, upload)), attempts):
            yield upload


async def _copied(
    store: SupportsMultipart, name: str, upload: str, etag: str, size: int, attempts: Attempts
) -> list[str]:
    async def copy(part: tuple[int, tuple[int, int]]) -> str:
        number, span = part
        return await attempts.until_answered(
            partial(store.copy_part, name, upload, number, source=name, if_match=etag, span=span)
        )

    return await map_or_cancel(copy, enumerate(_spans(size), 1), _UNDER_WAY)


def _spans(size: int) -> Iterator[tuple[int, int]]:
    """Parts of about equal size, none of them small, as the offsets of the first and the last byte."""
    count = min(_MOST_COPIES, -(-size // _COPIED_AT_ONCE))
    for number in range(count):
        yield size * number // count, size * (number + 1) // count - 1
