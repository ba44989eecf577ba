"""`Write`: one write of one object, repeated until it is known whether it took effect (docs/s3.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from agent_memory.backend import ABSENT, ANY, ETag, NewOrigin, WriteWhen
from agent_memory.key import Key
from agent_memory.object_store.bucket import Bucket
from agent_memory.object_store.directories import Directories
from agent_memory.object_store.engine import (
    NoResponse,
    NotFound,
    PermanentError,
    PreconditionFailed,
    RequestError,
    WriteConflict,
)
from agent_memory.object_store.late_requests import (
    LATE_SECONDS,
    FormerName,
    carried_at,
    etag_digest,
    etag_of_parts,
    etag_of_put,
    require_another_etag,
)
from agent_memory.object_store.multipart import Composer
from agent_memory.object_store.preconditions import Preconditions
from agent_memory.object_store.retry import Attempts
from agent_memory.object_store.states import Base, BeatenError, MakeContent, State, Written, is_one_etag
from agent_memory.object_store.write_log import TrackedETag, WriteLog, Writer, WriteRecord

_RESOLUTION_SECONDS = 1.0
"""The resolution of the time when an object was last written, in seconds."""
_LINGER_SECONDS = 10.0
"""How long a record is kept after its operation's deadline, because the clocks of writers differ."""
_ABORTED = "the multipart upload no longer exists"
_UNREAD = WriteLog("")
"""The write log of a state that was not read."""


@dataclass(eq=False)
class Write:
    """One write; all its requests carry the same record, which the object contains if one of them took effect.

    Args:
        key: the file.
        bucket: has the engine, which sends the requests.
        writer: makes the record.
        attempts: the requests of the operation.
        composer: appends to large objects in parts.
        preconditions: finds out whether the server enforces the condition of a completed upload.
        directories: frees a name that the server keeps as an empty directory.
        most: the most bytes of the object to read.

    Attributes:
        name: the name of the object.
        record: the record of the write; None before its first request.
        known: the object's state after this process's last write, if it is remembered.
        origin: makes the origin of the new state, for each request; None if it has none.
        keeps_origin: whether the new state has the origin of the state that it replaces, if there is one.
        former_names: the former names of a new object that is a copy; () if it is no copy.
    """

    key: Key
    bucket: Bucket
    writer: Writer
    attempts: Attempts
    composer: Composer
    preconditions: Preconditions
    directories: Directories
    most: int
    record: WriteRecord | None = None
    known: State | None = None
    origin: NewOrigin | None = None
    keeps_origin: bool = False
    former_names: tuple[FormerName, ...] = ()
    _is_upload: bool = False

    def __post_init__(self) -> None:
        self.name = self.bucket.name(self.key)
        self._store = self.bucket.store
        self._place = (self._store.identity, self.name)

    async def overwrite(self, data: bytes) -> TrackedETag:
        """Write without a condition; raises `OutOfTimeError`."""

        async def put(_: Base) -> TrackedETag:
            log = self._with_origin(WriteLog.new(self._store.now(), (self.own_record,)))  # begins a chain
            return await self._put(data, log, ANY)

        return await self._until_known(put, ANY)

    async def replace(self, make_content: MakeContent, base: State | None, *, follow: bool = False) -> Written:
        """Write if the object is still in the state ``base``; None means that there is no object.

        Args:
            make_content: makes the bytes to store in the place of a state.
            base: the condition.
            follow: if the object is in another state, read it and write in its place instead.

        Raises:
            BeatenError: the object is in another state. With ``follow``, only if the record of this write may have been
                dropped, because its time was over.
            OutOfTimeError: the deadline is over; with `Attempts.lost` the write may have taken effect.
        """
        data, state = b"", base

        async def put(base: Base) -> TrackedETag:
            nonlocal data, state
            state = base if isinstance(base, State) else None
            data = await make_content(state)
            log = await self.new_log(state, self.own_record)
            if state is None or not state.before:
                return await self._put(data, log, state)
            new, size = data[len(state.data) :], state.before + len(state.data)
            parts = self.composer.append(self.name, state.etag, size, new, log.metadata, self.attempts)
            return TrackedETag(await parts, log)

        etag = await self._until_known(put, base, follow)
        return Written(etag, state, data)

    async def complete(
        self, request: Callable[[], Awaitable[str]], record: WriteRecord, log: WriteLog, base: Base
    ) -> TrackedETag:
        """Complete a multipart upload, if the object is still in the state ``base``.

        ``record`` and ``log`` are the record and the write log that the upload got when it began.

        Raises:
            BeatenError, OutOfTimeError: as `replace`.
            PermanentError: the upload was aborted.
        """
        self.record, self._is_upload = record, True
        return await self._until_known(lambda _: self._sent(request, log), base)

    async def delete(self, etag: ETag | None, *, conditional: bool) -> bool:
        """Delete the object, or only if it has the given etag; return False if there is no object.

        Args:
            etag: the etag that it must have; None for any.
            conditional: send the etag as a precondition: a well-formed one at once, without a request that reads it.

        Raises:
            BeatenError: the object has another ETag, or may be a new one with the same ETag.
            OutOfTimeError: as `replace`.
        """
        attempts, sent = self.attempts, None
        at_once = etag is not None and conditional and is_one_etag(etag.token)
        seen = unread = _unread(etag) if etag and at_once else None
        if seen is None:
            seen = await self.read_state(whole=False)
        while seen is not None:
            if attempts.lost and sent and self._is_new(seen, sent, was_read=sent is not unread):
                return True  # the object was deleted, and this is a new one
            attempts.lost = attempts.lost and bool(sent and seen.etag == sent.etag)
            if etag is not None and etag.token != seen.etag:
                raise BeatenError(seen, not attempts.lost)
            sent = seen
            if conditional:
                self._note_late(seen)
            try:
                await attempts.write_once(
                    partial(self._store.delete, self.name, if_match=seen.etag if conditional else None)
                )
                return True
            except NoResponse as failure:
                await attempts.back_off(failure)
            except (PreconditionFailed, WriteConflict, NotFound):
                attempts.lost = attempts.lost or self._store.resends
                await attempts.back_off_after_race()
            seen = await self.read_state(whole=False)
        return attempts.lost

    def _is_new(self, seen: State, sent: State, *, was_read: bool) -> bool:
        """Whether a state does not continue the one that an unanswered deletion was sent for.

        Raises:
            BeatenError: the deletion did not read that state, which may have ended long before, and this state may be
                younger than the deletion.
        """
        if sent.log is not _UNREAD and seen.log.continues(sent.log, self._store.now()):
            return False
        if was_read:
            return True
        if self._would_contain(seen, None):
            return False
        raise BeatenError(seen, certain=False)

    async def read_state(self, *, whole: bool) -> State | None:
        """Read the object's state, with its data if ``whole`` (see `Composer.read`); None if there is no object."""
        try:
            if whole:
                found = await self.composer.read(self._store, self.name, self.most, self.attempts)
            else:
                found = await self.attempts.until_answered(partial(self._store.head, self.name))
        except NotFound:
            return None
        before = found.size - len(found.data) if whole else 0
        return State(found.etag, WriteLog.of(found.metadata, found.etag), found.data, before, found.modified)

    async def _until_known(
        self, send: Callable[[Base], Awaitable[TrackedETag]], base: Base, follow: bool = False
    ) -> TrackedETag:
        """The loop of every write: send a request until it is known whether one of them took effect."""
        await self.learn_clock()
        while True:
            try:
                return await send(base)
            except (NoResponse, asyncio.CancelledError) as failure:
                if isinstance(base, State):
                    self._note_late(base)
                if not isinstance(failure, NoResponse):
                    raise
                await self.attempts.back_off(failure)
            except (PreconditionFailed, WriteConflict, NotFound) as answer:
                found = await self._after_refusal(answer, base, follow)
                if isinstance(found, TrackedETag):
                    return found
                base = found

    async def _after_refusal(self, answer: RequestError, base: Base, follow: bool) -> TrackedETag | Base:
        """Return the etag that an earlier request of this write made, or the condition of the next request."""
        if base is ANY and isinstance(answer, WriteConflict):
            await self.attempts.back_off_after_race()
            return base
        seen = await self._read_again(whole=follow)
        if seen and seen.log.has(self.own_record):
            return self._etag_in(seen)
        if self._is_upload and isinstance(answer, NotFound) and (base is ANY or _same(seen, base)):
            raise PermanentError(_ABORTED) from answer
        if base is ANY:
            raise answer
        is_directory = base is seen is None and isinstance(answer, PreconditionFailed) and answer.has_directories
        if is_directory and await self.directories.free(self.key):
            return base
        if _same(seen, base) and not is_directory:
            await self.attempts.back_off_after_race()
            return base
        beaten = self._beaten(seen, base)
        if not follow or (not beaten.certain and self._is_over()):
            raise beaten from answer
        return beaten.seen  # not raised: the next request is conditional on this state

    async def _read_again(self, whole: bool) -> State | None:
        """Read the state that refused the write; for its data, back off first, so that the winner can finish."""
        self.attempts.lost = self.attempts.lost or self._store.resends
        if whole:
            await self.attempts.back_off_after_race()
        return await self.read_state(whole=whole)

    async def _put(self, data: bytes, log: WriteLog, base: Base) -> TrackedETag:
        etag = base.etag if isinstance(base, State) else None
        avoided = self.avoided(log)
        log = log.with_own_name(FormerName.all_of(self.name, avoided))
        if avoided and await self._needs_upload(data, avoided, base):
            if not isinstance(base, State):  # a server may fail to complete an upload whose name is an empty directory
                await self.directories.free_where_kept(self.key)
            written = self.composer.write(
                self.name, data, log.metadata, self.attempts, if_match=etag, absent=base is None
            )
            return TrackedETag(await written, log)
        put = partial(self._store.put, self.name, data, log.metadata, if_match=etag, absent=base is None)
        return await self._sent(put, log)

    async def _needs_upload(self, data: bytes, avoided: dict[str, float], base: Base) -> bool:
        """Whether the write is an upload of one part, because late requests may carry the ETag of a PUT.

        False if the server does not enforce the condition of an upload, or if the ETag of the upload is avoided, too.

        Raises:
            TooSoonError: the same, but the object is a copy: then its source is deleted next.
        """
        of_put = etag_of_put(data)
        if etag_digest(of_put) not in avoided:
            return False
        if etag_digest(etag_of_parts([of_put])) not in avoided:
            when: WriteWhen = ETag(base.etag) if isinstance(base, State) else ABSENT if base is None else ANY
            if await self.preconditions.enforces_upload(self.key, when, self.attempts):
                return True
        if self.former_names:
            require_another_etag(of_put, avoided, self._store.now())
        return False

    def avoided(self, log: WriteLog) -> dict[str, float]:
        """The digests of the ETags that late requests may carry, and until when."""
        now = self._store.now()
        return carried_at(log.former_names, self.name, now) | self.writer.late_requests.carried(self._place, now)

    async def _sent(self, request: Callable[[], Awaitable[str]], log: WriteLog) -> TrackedETag:
        return TrackedETag(await self.attempts.write_once(request), log)

    def _note_late(self, state: State) -> None:
        self.writer.late_requests.note(self._place, state.etag, self._store.now())

    @property
    def own_record(self) -> WriteRecord:
        """The record, made for the first request that has it, because earlier answers set the store's clock."""
        if self.record is None:
            left = self.attempts.deadline.seconds - self.attempts.seconds_ago
            self.record = self.writer.new_record(self._store.now() + left + _LINGER_SECONDS)
        return self.record

    async def learn_clock(self) -> None:
        """Read the store's clock for the record, if the host's clock was set, as in a restored image."""
        if self.record is None and self._store.clock_was_set():
            await self.read_state(whole=False)

    async def new_log(self, base: State | None, record: WriteRecord) -> WriteLog:
        """The write log of a state with one more record; waits until the metadata have room for it."""
        log = base.log if base else WriteLog.new(self._store.now())._replace(former_names=self.former_names)
        if base is None or not self.keeps_origin:
            log = self._with_origin(log)
        while (longer := self.writer.with_record(log, record, self._store.now())) is None:
            await self.attempts.wait_for_room()
        return longer

    def _with_origin(self, log: WriteLog) -> WriteLog:
        return log._replace(origin=self.origin(self._store.now()) if self.origin else "")

    def _etag_in(self, seen: State) -> TrackedETag:
        """The etag that this write made, from a state with its record."""
        if seen.log.records[-1].id == self.own_record.id:
            return TrackedETag(seen.etag, seen.log)
        return TrackedETag(f'"superseded:{self.own_record}"')  # a later write hides the ETag that this write made

    def _beaten(self, seen: State | None, base: State | None) -> BeatenError:
        if seen and self._would_contain(seen, base):
            self.attempts.lost = False
        return BeatenError(seen, not self.attempts.lost)

    def _would_contain(self, seen: State, base: State | None) -> bool:
        """Whether a state would contain this write if the write had taken effect: it continues the base, or is older.

        It is older if the object was last written, or its chain began, before the first unanswered request was sent.
        The time of the last write is by the store's clock, so its error is at most `ObjectStore.ahead_by` and the
        resolution. A chain begins when its first request is sent.
        """
        if base is not None and not self._is_over() and seen.log.continues(base.log, self._store.now()):
            return True
        sent = self._store.now() - self.attempts.seconds_since_effect(self._store.resends)
        written = seen.modified + _RESOLUTION_SECONDS + self._store.ahead_by()
        return written <= sent or seen.log.began + LATE_SECONDS < sent

    def _is_over(self) -> bool:
        """Whether other writers may have dropped the record, because the store's clock was behind when it was made."""
        return self.record is not None and self.record.until <= self._store.now()


def _same(seen: State | None, base: State | None) -> bool:
    if seen is None or base is None:
        return seen is base
    return (seen.etag, seen.log.chain) == (base.etag, base.log.chain)


def _unread(etag: ETag) -> State:
    """The state with an etag, whose write log is known only if the etag comes from a request for the object."""
    log = etag.log if isinstance(etag, TrackedETag) else None
    return State(etag.token, log or _UNREAD)
