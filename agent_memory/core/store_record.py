"""`StoreRecord`: the format, id and features of a store: one line of JSON, written before its other internal files.

`KnownStore` is the record as this process knows it; it permits changes and adds features.

A release that does not know the format or a feature of a store, or is older than the store requires, changes nothing
there. Fields that this release does not know stay as they are when it writes the record again.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from agent_memory.backend import ABSENT, PRESENT, Backend, ETag, WriteWhen
from agent_memory.backend._errors import is_full
from agent_memory.backend._store_id import record_fields
from agent_memory.backend.helpers import STORE_RECORD, HostClock, store_id
from agent_memory.core.flows import Effect, appends, read_if_present, until_won
from agent_memory.errors import (
    DISTRIBUTION,
    ConflictError,
    FileAlreadyExistsError,
    OutcomeUnknownError,
    ReadError,
    UnsupportedOperationError,
    WriteError,
)
from agent_memory.runtime.run import Run

Feature: TypeAlias = Literal["audit", "limits", "no-conversation", "receipts", "versions"]
FORMAT: Final = 1
"""The layout of the internal files that this release reads and writes."""
LEAST_RELEASES: Final[Mapping[str, str]] = {
    "audit": "0.1",
    "limits": "0.1",
    "no-conversation": "0.1",
    "receipts": "0.1",
    "versions": "0.1",
}
"""The features that this release knows, each with the first release that knew it."""
_FROM_THE_BEGINNING: Final[tuple[Feature, ...]] = ("no-conversation", "receipts")
"""Any call may bring an idempotency key or a mark, also with credentials that may not change the record."""
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_RELEASE: Final = re.compile(r"\d{1,6}(?:\.\d{1,6}){0,3}")
_MOST_NAMES: Final = 100
_MOST_BYTES: Final = 64 * 1024
FOLLOW_SECONDS: Final = 60.0
"""A process notices a change of the record after at most this time."""


@dataclass(frozen=True)
class StoreRecord:
    """The record of a store.

    Attributes:
        id: 24 random hexadecimal digits; "" if this release does not know the format.
        features: the names of the features with files in the store.
        least_release: the first release that may change the store.
        format: the layout of the internal files.
        others: the other fields; a feature's settings have the name of the feature.
    """

    id: str
    features: frozenset[str]
    least_release: str
    format: int = FORMAT
    others: Mapping[str, object] = field(default_factory=dict)

    @staticmethod
    def new() -> StoreRecord:
        """Return the record of a store that has none, with a new id."""
        least = max((LEAST_RELEASES[feature] for feature in _FROM_THE_BEGINNING), key=_numbers)
        return StoreRecord(secrets.token_hex(12), frozenset(_FROM_THE_BEGINNING), least)

    def using(self, feature: Feature, settings: object = None) -> StoreRecord:
        """Return the record with one more feature in use; ``settings`` replaces the feature's settings."""
        others = self.others if settings is None else {**self.others, feature: settings}
        least = max(self.least_release, LEAST_RELEASES[feature], key=_numbers)
        return replace(self, features=self.features | {feature}, least_release=least, others=others)

    def to_bytes(self) -> bytes:
        """The stored form: one line of JSON."""
        known = {"format": self.format, "id": self.id, "features": sorted(self.features)}
        return json.dumps({**known, "least_release": self.least_release, **self.others}).encode() + b"\n"

    def change_of(self, before: StoreRecord) -> bytes | None:
        """The fields that differ from an earlier record, as a line to append to it; None if the features differ."""
        if replace(self, others=before.others) != before:
            return None
        changed = {name: value for name, value in self.others.items() if before.others.get(name) != value}
        return json.dumps(changed).encode() + b"\n"

    def require_known(self) -> None:
        """Raise unless this release may change the store.

        Raises:
            UnsupportedOperationError: it does not know the format or a feature, or it is too old.
        """
        unknown = ", ".join(map(repr, sorted(self.features - LEAST_RELEASES.keys())))
        needs = f"uses {unknown}" if unknown else f"has format {self.format}" if self.format != FORMAT else ""
        if needs or _numbers(self.least_release) > _numbers(release()):
            raise UnsupportedOperationError(
                f"this store {needs or 'was changed by a newer release'}: only agent-memory {self.least_release} or "
                f"later may change it, this is {_installed() or release()}; upgrade {DISTRIBUTION}; nothing was "
                "changed, and reading still works"
            )

    @staticmethod
    def parse(data: bytes) -> StoreRecord:
        """Return a stored record.

        Raises:
            ReadError: it is no record of a store.
        """
        try:
            return _parsed(data, record_fields(data[: _MOST_BYTES + 1]))
        except (ValueError, TypeError, KeyError):
            raise damaged_record() from None


def damaged_record() -> ReadError:
    """Return the error for a record with a wrong field."""
    return ReadError(
        "the record of the store is damaged; no change is made without it. 'agent-memory doctor' tells how to repair it"
    )


@cache
def release() -> str:
    """The number of this release, without a suffix such as ``rc1``."""
    found = _RELEASE.match(_installed())
    return found[0] if found else max(LEAST_RELEASES.values(), key=_numbers)


def _installed() -> str:
    """The version of the installed distribution; "" for a copy of the source that is not installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return ""


def _parsed(data: bytes, fields: dict[str, Any]) -> StoreRecord:
    if len(data) > _MOST_BYTES:
        raise ValueError
    format_, least = fields.pop("format"), fields.pop("least_release")
    if type(format_) is not int or format_ < 1 or not _RELEASE.fullmatch(least):
        raise ValueError
    if format_ != FORMAT:  # the other fields may mean something else there
        return StoreRecord("", frozenset(), least, format_, fields)
    names, found = fields.pop("features"), store_id(data)
    if not isinstance(names, list) or len(names) > _MOST_NAMES or not all(map(_NAME.fullmatch, names)):
        raise ValueError
    if fields.pop("id") != found or found is None:
        raise ValueError
    return StoreRecord(found, frozenset(names), least, format_, fields)


def _numbers(text: str) -> tuple[int, ...]:
    numbers = [int(number) for number in text.split(".")]
    return tuple(numbers + [0] * (4 - len(numbers)))


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
            return await run.call(write, STORE_RECORD, record.to_bytes(), when, lambda _: "settings")
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
        await run.call(cast(Any, store.append), STORE_RECORD, change, separator=b"\n", when=PRESENT)
        return True
