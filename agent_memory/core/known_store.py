"""`KnownStore`: the record of one store as this process knows it; it permits changes and adds features."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, cast

from agent_memory.backend import ABSENT, PRESENT, Backend, ETag, WriteWhen
from agent_memory.backend._errors import is_full
from agent_memory.backend.helpers import STORE_RECORD, HostClock
from agent_memory.core.flows import Effect, appends, read_if_present, until_won
from agent_memory.core.store_record import Feature, StoreRecord
from agent_memory.errors import ConflictError, FileAlreadyExistsError, OutcomeUnknownError, ReadError, WriteError
from agent_memory.runtime.run import Run

FOLLOW_SECONDS: Final = 60.0
"""A process notices a change of the record after at most this time."""


class _Known(NamedTuple):
    """One reading of the record: its time by the clock of the run; the record, or None; and its etag."""

    at: float
    record: StoreRecord | None
    etag: ETag | None


class KnownStore:
    """The record of one store; it is read again after `FOLLOW_SECONDS`, or when the host's clock was set.

    In a process that was restored from an image of its memory, only the wall clock tells how old the record is.
    """

    def __init__(self) -> None:
        self._known: _Known | None = None
        self._permitted: StoreRecord | None = None
        self._id: str | None = None
        self._id_known_since = 0.0
        self._host_clock = HostClock()

    async def permit(self, store: Backend, run: Run) -> StoreRecord | None:
        """Return the record, if this release may change the store; None if there is none.

        Raises:
            UnsupportedOperationError: this release may not change it.
            ReadError: the record is damaged, or it is not the one of the store that was opened.
        """
        if self._host_clock.was_set():
            self._known = None
        known, since = self._known, run.now() - FOLLOW_SECONDS
        if known is None or known.at <= since:
            known = await self._read(store, run)
        return await self._permit(store, run, known)

    async def use(self, store: Backend, run: Run, feature: Feature) -> None:
        """Name a feature in the record before the first file of that feature is written; errors as `permit`."""
        began = run.now()
        record = await self.permit(store, run)
        if record is None or feature not in record.features:
            record = await self.read(store, run, began)  # another process may have added it since
        if record is None or feature not in record.features:
            await self.change(store, run, lambda before: before.using(feature))

    async def read(self, store: Backend, run: Run, since: float) -> StoreRecord | None:
        """Return the record, read again unless it was read after ``since`` by the clock of the run; None if none."""
        known = self._known
        if known is None or known.at < since:
            known = await self._read(store, run)
        return known.record

    async def change(
        self,
        store: Backend,
        run: Run,
        changed: Callable[[StoreRecord], StoreRecord],
        *,
        tries_origins: bool = False,
    ) -> StoreRecord:
        """Change the record as this process knows it, by compare-and-swap, or create it; errors as `permit`.

        Args:
            store: the storage.
            run: runs its primitives.
            changed: returns the new record; called again with each record that another writer stored first.
            tries_origins: write an origin with the record, to find out whether the storage keeps origins.
        """
        records: list[StoreRecord] = []

        async def attempt() -> Effect:
            known = self._known or await self._read(store, run)
            record = await self._permit(store, run, known)
            after = changed(record or StoreRecord.new())
            if after != record:
                etag = await self._written(store, run, after, known.etag, tries_origins)
                self._know(run, _Known(run.now(), after, etag))
            records.append(after)
            return Effect()

        await until_won(store, run, STORE_RECORD, attempt)
        return records[-1]

    async def _read(self, store: Backend, run: Run) -> _Known:
        now = run.now()
        found = await read_if_present(store, run, STORE_RECORD)
        record = StoreRecord.parse(found.data) if found else None
        return self._know(run, _Known(now, record, found.etag if found else None))

    def _know(self, run: Run, known: _Known) -> _Known:
        if self._known is None or known.at >= self._known.at:  # else another task read or wrote it since
            self._known = known
        if self._id is None and known.record and known.record.id:
            self._id, self._id_known_since = known.record.id, run.now()
        return known

    async def _permit(self, store: Backend, run: Run, known: _Known) -> StoreRecord | None:
        if known.record is None and self._id is not None and known.at <= self._id_known_since:
            known = await self._read(store, run)  # another task created the record during that reading
        record = known.record
        if record and record is not self._permitted:
            record.require_known()
            self._permitted = record
        if self._id is not None and (record is None or record.id != self._id):
            raise ReadError(
                "the record of the store that was opened is gone, or another store is in its place; nothing was "
                "changed; open the store again, or restore it"
            )
        return record

    async def _written(
        self, store: Backend, run: Run, record: StoreRecord, before: ETag | None, tries_origins: bool
    ) -> ETag | None:
        """Write the record in the place of the state that was read.

        Raises:
            ConflictError: another writer was faster, or it is unknown: the record has to be read again.
        """
        when: WriteWhen = before or ABSENT
        try:
            if not tries_origins:
                return await run.call(store.write, STORE_RECORD, record.to_bytes(), when)
            write = cast("Callable[..., Awaitable[ETag]]", store.write)
            return await run.call(write, STORE_RECORD, record.to_bytes(), when, lambda: "settings")
        except WriteError as error:
            if not (is_full(error.__cause__) and await self._appended(store, run, record)):
                raise
            return None
        except (ConflictError, FileAlreadyExistsError, OutcomeUnknownError) as error:
            self._known = None
            if isinstance(error, FileAlreadyExistsError) and error.taken_by != "file":
                message = "its name is taken by a directory, or lies below a file"
                raise WriteError(message, path=STORE_RECORD.path) from error
            raise ConflictError("another writer changed it", path=STORE_RECORD.path) from error

    async def _appended(self, store: Backend, run: Run, record: StoreRecord) -> bool:
        """On a full disk: append the change, which needs no new file and mostly no new block; False if it cannot be."""
        before = self._known.record if self._known else None
        change = record.change_of(before) if before else None
        if change is None or not appends(store):
            return False
        append = cast("Callable[..., Awaitable[object]]", store.append)
        await run.call(append, STORE_RECORD, change, separator=b"\n", when=PRESENT)
        return True
