"""`Composer`: appends to large objects that do not send them again, because the server copies what is there.

An upload in parts: first the object's bytes, copied by the server from exactly the version that was looked at, then the
new ones; it is completed only if that version is still current. Until then nothing of it is to be seen.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, cast

from agent_memory._together import together
from agent_memory.errors import UnsupportedOperationError
from agent_memory.key import TEMPORARY_SUFFIX
from agent_memory.object_store._attempts import Attempts
from agent_memory.object_store._store import (
    NO_ETAG,
    Composes,
    KeptItem,
    Missing,
    ObjectStore,
    Racing,
    Refused,
    Unanswered,
)

TAIL_BYTES: Final = 64
"""How much of a large object an append reads: as much as a separator may have."""
_COPIED_AT_ONCE: Final = 256 << 20
_MOST_COPIES: Final = 9_999
_UNDER_WAY: Final = 8
_ABORT_SECONDS: Final = 5.0


class Composer:
    """The uploads in parts of one backend. A server that is not trusted is tried first, once."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store if isinstance(store, Composes) else None
        self._tried = False
        self._aborts: set[asyncio.Task[None]] = set()

    @property
    def least(self) -> int | None:
        """From how many bytes on an object is appended to in parts; None if that is not known to be safe here."""
        return self._store.least_part if self._store and self._tried else None

    def most_to_read(self, most: int) -> int:
        """How many bytes of an object to read at most, before it is clear whether it needs to be read."""
        return min(most, self._store.least_part - 1) if self._store else most

    async def is_safe(self, name: str, attempts: Attempts) -> bool:
        """Whether the server keeps the preconditions of uploads in parts; ``name`` is an object of the least size."""
        if self._store and not self._tried:
            trusted = await attempts.until_answered(self._store.is_trusted)
            if not (trusted or await self._keeps_preconditions(self._store, name, attempts)):
                self._store = None
            self._tried = True
        return self._store is not None

    async def append(
        self, name: str, etag: str, size: int, data: bytes, metadata: Mapping[str, str], attempts: Attempts
    ) -> str:
        """Append to the version ``etag`` of an object, whose bytes are ``size``; returns the new ETag.

        Raises:
            Refused, Racing, Missing: as a conditional PUT; or somebody has aborted the upload.
            OutOfTimeError: as `Attempts`.
        """
        store = cast(Composes, self._store)  # nothing is large elsewhere
        async with self._upload(store, name, metadata, attempts) as upload:
            parts = await _copied(store, name, upload, etag, size, attempts)
            new = partial(store.put_part, name, upload, len(parts) + 1, data)
            parts.append(await attempts.until_answered(new))
            while True:
                try:
                    return await attempts.write_once(partial(store.complete_upload, name, upload, parts, if_match=etag))
                except Unanswered as failure:
                    await attempts.back_off(failure)

    async def aclose(self) -> None:
        """Wait for what is still being aborted."""
        if self._aborts:
            await asyncio.wait(self._aborts, timeout=_ABORT_SECONDS)

    @asynccontextmanager
    async def _upload(
        self, store: Composes, name: str, metadata: Mapping[str, str], attempts: Attempts
    ) -> AsyncIterator[str]:
        """An upload that is aborted if it fails: its parts would be kept, and paid for, until somebody does."""
        upload = await attempts.until_answered(partial(store.begin_upload, name, metadata))
        try:
            yield upload
        except BaseException:
            await self._abort(store, KeptItem(name, upload), attempts)
            raise

    async def _abort(self, store: Composes, upload: KeptItem, attempts: Attempts) -> None:
        """Try, once, in time of its own: it may be the deadline that failed the upload. Who waits, waits until his."""
        abort = asyncio.ensure_future(_aborted(store, upload, attempts.briefly(_ABORT_SECONDS)))
        self._aborts.add(abort)
        abort.add_done_callback(self._aborts.discard)
        await asyncio.wait({abort}, timeout=attempts.seconds_left)

    async def _keeps_preconditions(self, store: Composes, name: str, attempts: Attempts) -> bool:
        """Whether the server refuses a part copied from, and an upload completed on, a version there never was."""
        trial = f"{name}.{secrets.token_hex(8)}{TEMPORARY_SUFFIX}"
        upload = await attempts.until_answered(partial(store.begin_upload, trial, {}))
        copy = partial(store.copy_part, trial, upload, 1, source=name, if_match=NO_ETAG, span=(0, store.least_part - 1))
        try:
            if not await _refuses(copy, attempts):
                return False
            part = await attempts.until_answered(partial(store.put_part, trial, upload, 1, b"trial"))
            if await _refuses(partial(store.complete_upload, trial, upload, [part], if_match=NO_ETAG), attempts):
                return True
            await attempts.until_answered(partial(store.delete, trial))
            return False
        finally:
            await self._abort(store, KeptItem(trial, upload), attempts)


async def _aborted(store: Composes, upload: KeptItem, attempts: Attempts) -> None:
    with suppress(Exception):  # no caller reads it
        await attempts.write_once(partial(store.abort_upload, upload))


async def _copied(store: Composes, name: str, upload: str, etag: str, size: int, attempts: Attempts) -> list[str]:
    places = asyncio.Semaphore(_UNDER_WAY)

    async def copy(number: int, span: tuple[int, int]) -> str:
        async with places:
            return await attempts.until_answered(
                partial(store.copy_part, name, upload, number, source=name, if_match=etag, span=span)
            )

    return await together(copy(number, span) for number, span in enumerate(_spans(size), 1))


def _spans(size: int) -> Iterator[tuple[int, int]]:
    """Parts of about the same size, none of them small, each as its first and its last byte."""
    count = min(_MOST_COPIES, -(-size // _COPIED_AT_ONCE))
    for number in range(count):
        yield size * number // count, size * (number + 1) // count - 1


async def _refuses(request: Callable[[], Awaitable[str]], attempts: Attempts) -> bool:
    try:
        await attempts.until_answered(request)
    except (Refused, Racing, Missing):
        return True
    except UnsupportedOperationError:
        return False
    return False
