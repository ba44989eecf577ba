"""`Write`: one write of one object, repeated until it is known whether it took effect."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from agent_memory.object_store.engine import (
    NoResponse,
    NotFound,
    NotSatisfiable,
    Object,
    ObjectStore,
    PermanentError,
    PreconditionFailed,
    RequestError,
    TooLarge,
    WriteConflict,
)
from agent_memory.object_store.multipart import TAIL_BYTES, Composer
from agent_memory.object_store.retry import Attempts
from agent_memory.object_store.write_log import TrackedVersion, WriteLog, Writer, WriteRecord

_SKEW_SECONDS = 5.0
"""How far two writers' estimates of the store's clock may differ, beyond the resolution of the ``Date`` header."""
_RESOLUTION_SECONDS = 1.0
"""Resolution of the time when an object was last written."""
_LINGER_SECONDS = 10.0
"""How long a record is kept after its operation's deadline, because other writers' clocks differ."""
_ABORTED = "the multipart upload no longer exists"


class State(NamedTuple):
    """One state of an object: the ETag that a write is conditional on, the log it continues, and the data if read.

    An append to a large object reads only its end; ``before`` is the number of bytes before ``data``. ``modified`` is
    when the object was last written, in POSIX seconds by the store's clock; infinity if unknown.
    """

    etag: str
    table: WriteLog
    data: bytes = b""
    before: int = 0
    modified: float = math.inf


class BeatenError(Exception):
    """The object is not in the state that the write was conditional on, and does not contain the write.

    Attributes:
        seen: the object's state now; None if there is no object, or only an empty directory that the server keeps.
        certain: whether the write certainly never took effect. If False, it may have taken effect and have been
            overwritten or deleted since.
    """

    def __init__(self, seen: State | None, certain: bool) -> None:
        super().__init__()
        self.seen = seen
        self.certain = certain


class Write:
    """One logical write. All its requests carry the same record, by which it is found if any of them took effect.

    Attributes:
        attempts: the requests of its operation.
    """

    def __init__(
        self, store: ObjectStore, composer: Composer, name: str, writer: Writer, attempts: Attempts, most: int
    ) -> None:
        self._store = store
        self._composer = composer
        self._name = name
        self._writer = writer
        self.attempts = attempts
        self._most = most
        self._stamp: WriteRecord | None = None

    def carry(self, entry: WriteRecord) -> None:
        """Use the record of the multipart upload that this write completes; it was sent when the upload began."""
        self._stamp = entry

    @property
    def _entry(self) -> WriteRecord:
        """The record, made when it is first sent, because the answers before that have told the store's clock."""
        if self._stamp is None:
            left = self.attempts.deadline.seconds - self.attempts.seconds_ago
            self._stamp = self._writer.entry(self._store.now() + left + _LINGER_SECONDS)
        return self._stamp

    async def overwrite(self, data: bytes) -> TrackedVersion:
        """Write without a condition; raises `OutOfTimeError`."""
        while True:
            table = WriteLog.new(self._store.now(), (self._entry,))  # each request begins a chain
            try:
                etag = await self.attempts.write_once(partial(self._store.put, self._name, data, table.metadata))
                return TrackedVersion(etag, table)
            except NoResponse as failure:
                await self.attempts.back_off(failure)
            except WriteConflict:
                await self.attempts.lose()

    async def send(self, data: bytes, base: State | None, *, whole: bool = False) -> TrackedVersion:
        """Write if the object is still in the state ``base``; None means that there is no object.

        Args:
            data: the object's bytes after the first ``base.before``, which the server copies.
            base: the condition.
            whole: if the object is in another state, read its data too, for `BeatenError.seen`.

        Raises:
            BeatenError: the object is in another state.
            OutOfTimeError: the deadline is over; `Attempts.lost` tells whether the write may have taken effect.
        """
        while True:
            table = await self.stamped(base, self._entry)
            try:
                return TrackedVersion(await self._sent(data, table, base), table)
            except NoResponse as failure:
                await self.attempts.back_off(failure)
            except (PreconditionFailed, WriteConflict, NotFound) as answer:
                if found := await self._settled(answer, base, whole):
                    return found

    async def complete(
        self, request: Callable[[], Awaitable[str]], table: WriteLog, base: State | None
    ) -> TrackedVersion:
        """Complete a multipart upload that carries this write's record, if the object is still in the state ``base``.

        Raises:
            BeatenError, OutOfTimeError: as `send`.
            PermanentError: the upload was aborted.
        """
        while True:
            try:
                return TrackedVersion(await self.attempts.write_once(request), table)
            except NoResponse as failure:
                await self.attempts.back_off(failure)
            except (PreconditionFailed, WriteConflict, NotFound) as answer:
                if found := await self._settled(answer, base, whole=False):
                    return found
                if isinstance(answer, NotFound):
                    raise PermanentError(_ABORTED) from answer

    async def complete_over(self, request: Callable[[], Awaitable[str]], table: WriteLog) -> TrackedVersion:
        """Complete such an upload without a condition; raises as `complete`, but no `BeatenError`."""
        while True:
            try:
                return TrackedVersion(await self.attempts.write_once(request), table)
            except NoResponse as failure:
                await self.attempts.back_off(failure)
            except WriteConflict:
                await self.attempts.lose()
            except NotFound as answer:  # the upload is complete already, or was aborted
                seen = await self._look_again(whole=False)
                if seen and seen.table.has(self._entry):
                    return self._found(seen)
                raise PermanentError(_ABORTED) from answer

    async def _settled(self, answer: RequestError, base: State | None, whole: bool) -> TrackedVersion | None:
        """The version of a refused write that took effect; None to send it again; raises `BeatenError` otherwise."""
        seen = await self._look_again(whole)
        if seen and seen.table.has(self._entry):
            return self._found(seen)
        in_the_way = base is None and isinstance(answer, PreconditionFailed) and answer.has_directories
        if not _same(seen, base) or in_the_way:
            raise self._beaten(seen, base) from answer
        await self.attempts.lose()  # the object is still in the base's state
        return None

    async def delete(self, etag: str | None, *, conditional: bool) -> bool:
        """Delete the object, or only the version ``etag`` of it; return False if there is no object.

        Args:
            etag: the version; None for any.
            conditional: send the ETag of the current version as a precondition.

        Raises:
            BeatenError: the object has another version.
            OutOfTimeError: as `send`.
        """
        attempts, sent = self.attempts, None
        while (seen := await self.look(whole=False)) is not None:
            if attempts.lost and sent and seen.table.chain != sent.table.chain:
                return True  # the object to delete is gone; this is a new one
            attempts.lost = attempts.lost and bool(sent and seen.etag == sent.etag)
            if etag not in (None, seen.etag):
                raise BeatenError(seen, not attempts.lost)
            sent = seen
            try:
                await attempts.write_once(
                    partial(self._store.delete, self._name, if_match=seen.etag if conditional else None)
                )
                return True
            except NoResponse as failure:
                await attempts.back_off(failure)
            except (PreconditionFailed, WriteConflict, NotFound):
                attempts.lost = attempts.lost or self._store.resends
                await attempts.lose()
        return attempts.lost

    async def look(self, *, whole: bool) -> State | None:
        """The object's state now, with its data if ``whole``; None if there is no object."""
        try:
            head = partial(self._store.head, self._name)
            found = await (self._content() if whole else self.attempts.until_answered(head))
        except NotFound:
            return None
        before = found.size - len(found.data) if whole else 0
        return State(found.etag, WriteLog.of(found.metadata, found.etag), found.data, before, found.modified)

    async def _content(self) -> Object:
        """The whole object, or only the end of an object that is large enough to be appended to in parts.

        Reads again if the object's size passed that limit between two requests.
        """
        get = partial(self._store.get, self._name)
        tail = partial(get, span=f"bytes=-{TAIL_BYTES}", most=max(TAIL_BYTES, self._most))
        while True:
            try:
                return await self.attempts.until_answered(partial(get, most=self._composer.most_to_read(self._most)))
            except TooLarge as large:
                if large.most == self._most:
                    raise
            if await self._composer.is_safe(self._name, self.attempts):
                with suppress(NotSatisfiable):  # the object is empty by now
                    found = await self.attempts.until_answered(tail)
                    if found.size >= (self._composer.least or 0):
                        return found

    async def _sent(self, data: bytes, table: WriteLog, base: State | None) -> str:
        if base is None or not base.before:
            return await self.attempts.write_once(partial(self._put, data, table, base))
        new, size = data[len(base.data) :], base.before + len(base.data)
        return await self._composer.append(self._name, base.etag, size, new, table.metadata, self.attempts)

    async def _put(self, data: bytes, table: WriteLog, base: State | None) -> str:
        etag = base.etag if base else None
        return await self._store.put(self._name, data, table.metadata, if_match=etag, absent=base is None)

    async def stamped(self, base: State | None, entry: WriteRecord) -> WriteLog:
        """The write log of a state with one more record; waits until the metadata have room for it."""
        table = base.table if base else WriteLog.new(self._store.now())
        while (stamped := table.stamped(entry, self._store.now())) is None:
            await self.attempts.wait_for_room()
        return stamped

    async def _look_again(self, whole: bool) -> State | None:
        """Read the state that refused the write. If its data is needed, back off first so the winner can finish."""
        self.attempts.lost = self.attempts.lost or self._store.resends
        if whole:
            await self.attempts.lose()
        return await self.look(whole=whole)

    def _found(self, seen: State) -> TrackedVersion:
        if seen.table.entries[-1][:2] == self._entry[:2]:
            return TrackedVersion(seen.etag, seen.table)
        return TrackedVersion(f'"superseded:{self._entry}"')  # overwritten since: its own ETag is unknown

    def _beaten(self, seen: State | None, base: State | None) -> BeatenError:
        if seen and self._kept_all(seen, base):
            self.attempts.lost = False
        return BeatenError(seen, not self.attempts.lost)

    def _kept_all(self, seen: State, base: State | None) -> bool:
        """Whether this state would contain our write if it had taken effect: it is of the base's chain, or older.

        It is older if the object was last written, or its chain began, before our first unanswered write was sent. The
        time of the last write is by the store's clock, so its error is at most `ObjectStore.ahead_by` and the
        resolution; the time when the chain began is by another writer's estimate of that clock.
        """
        if base is not None and seen.table.chain == base.table.chain:
            return True
        sent = self._store.now() - self.attempts.seconds_since_effect(self._store.resends)
        written = seen.modified + _RESOLUTION_SECONDS + self._store.ahead_by()
        return written <= sent or seen.table.began + _SKEW_SECONDS < sent


def _same(seen: State | None, base: State | None) -> bool:
    if seen is None or base is None:
        return seen is base
    return (seen.etag, seen.table.chain) == (base.etag, base.table.chain)
