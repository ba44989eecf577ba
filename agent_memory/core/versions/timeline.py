"""`Timeline`: the changes of the file with a name, and of earlier files with this name, read one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agent_memory.core.versions.find import Histories
from agent_memory.core.versions.order import true_records
from agent_memory.core.versions.origin import MadeBy
from agent_memory.core.versions.reader import ListedRecord
from agent_memory.core.versions.states import CurrentFile, StoredRecord
from agent_memory.core.versions.undo import ROUNDED_SECONDS, Selection


class FileState(NamedTuple):
    """One state of a file.

    Attributes:
        id: its id; "" for a current file without an origin.
        previous: the id of the state before; None for the first one.
        by: the operation that made it; None if unknown.
        path: the file's name at the end of the state.
        made_size: the size in bytes when it was made.
        size: the size in bytes with the appended bytes.
        last_changed: nothing was appended after this time, in POSIX seconds.
        stored: its record; None for the current file.
    """

    id: str
    previous: str | None
    by: MadeBy | None
    path: str
    made_size: int
    size: int
    last_changed: float
    stored: StoredRecord | None

    @property
    def is_appended(self) -> bool:
        """Whether bytes were appended after it was made."""
        return self.stored.record.appended if self.stored else self.size > self.made_size

    @property
    def is_made_by_append(self) -> bool:
        """Whether it was made by an append that created the file."""
        return self.by is not None and self.by.operation == "append" and self.previous is None

    @staticmethod
    def of_record(stored: StoredRecord) -> FileState:
        """Return the state that a record describes."""
        record = stored.record
        return FileState(
            stored.version_id, record.previous, record.made_by, record.path, record.made_size, record.size,
            record.ended_by.time, stored,
        )  # fmt: skip

    @staticmethod
    def of_current(file: CurrentFile) -> FileState:
        """Return the current state of a file, as its stored origin tells it."""
        origin, size, last_changed = file.origin, file.snapshot.size, file.modified + ROUNDED_SECONDS
        return FileState(origin.id, origin.previous, origin.by, file.key.path, origin.size, size, last_changed, None)


class Change(NamedTuple):
    """A change of a file that made a new state.

    Attributes:
        by: the operation; None if unknown.
        made: the new state; None if the file was deleted.
    """

    by: MadeBy | None
    made: FileState | None


class Timeline:
    """The changes of the file with a name, and of the earlier files with this name, the latest first.

    Each is read when it is asked for.

    Args:
        histories: the records.
        path: the name.
        current: the current file; None if it is deleted.
        own: the records of the current file's history.
        earlier: the records of each earlier file with this name, the latest file first.

    Attributes:
        is_lost: whether the state before the last change that was asked for is no longer kept, or cannot be read.
    """

    def __init__(
        self,
        histories: Histories,
        path: str,
        current: CurrentFile | None,
        own: Sequence[ListedRecord],
        earlier: Sequence[list[ListedRecord]],
    ) -> None:
        self.path = path
        self.current = current
        self.is_lost = False
        self._histories = histories
        self._own = self._records = own
        self._earlier = [*earlier]
        self._all = [*own, *(each for file in earlier for each in file)]
        self._changes: list[Change] = []
        self._state = FileState.of_current(current) if current else None
        self._is_told = False

    def records_before(self, state: FileState | None) -> list[ListedRecord]:
        """The records of the states before one; all, if there is none."""
        if state is None or state.stored is None:
            return self._all
        of = state.stored.name
        is_of_earlier_file = bool(self._own) and self._own[0].name.history != of.history
        records = self._all[len(self._own) :] if is_of_earlier_file else self._all
        return [each for each in records if each.name.history != of.history or each.name.number < of.number]

    @property
    def is_whole(self) -> bool:
        """Whether the creation of the current file is known: the first state is it, or has a record."""
        if self.current is None or not self.current.origin.id:
            return False
        return not self.current.origin.number or any(not each.name.number for each in self._own)

    async def change(self, number: int) -> Change | None:
        """The change with a number, the latest is 0; None if there is none."""
        while len(self._changes) <= number:
            if (found := await self._next()) is None:
                return None
            self._changes.append(found)
        return self._changes[number]

    def may_have(self, selection: Selection) -> bool:
        """Whether the names of the records tell a selected operation, or may do so."""
        return any(
            selection.may_contain(each.name.ended_by, each.modified)
            or selection.may_contain(each.name.made_by, each.modified)
            for each in self._all
        )

    async def has_after(self, number: int, selection: Selection) -> bool:
        """Whether selected operations made changes before the one with a number, or may have, as far as it is known."""
        if not self.may_have(selection):
            return False
        while change := await self.change(number := number + 1):
            if change.by in selection:
                return True
        return self.is_lost

    async def _next(self) -> Change | None:
        if (state := self._state) and not self._is_told:
            self._is_told = True
            return Change(state.by, state)
        if state and (state.previous is not None or not state.id):
            stored = await self._read(self._records, state.previous)
            if stored and stored.record.next and not state.id.startswith(stored.record.next):
                stored = None  # another state replaced it, and the file had another name
            self._state = FileState.of_record(stored) if stored else None
            self.is_lost, self._is_told = stored is None, False
            if stored and stored.record.next is None:  # the deleted file was restored
                return Change(stored.record.ended_by, None)
            return await self._next() if stored else None
        return await self._deletion() if self._earlier and not self.is_lost else None

    async def _deletion(self) -> Change:
        """The last change of the next earlier file."""
        self._records = self._earlier.pop(0)
        place = self._histories.place(self.path)
        newest = max((each for each in self._records if each.name.path == place), key=lambda each: each.name.number)
        last = await self._read(self._records, newest.name.id)
        self._state, self._is_told = FileState.of_record(last) if last else None, False
        self.is_lost = last is None
        is_deletion = last is not None and last.record.next is None  # otherwise its successor is missing
        return Change(last.record.ended_by if last and is_deletion else None, None)

    async def _read(self, records: Sequence[ListedRecord], id_: str | None) -> StoredRecord | None:
        """The true record of a state; None if it has none."""
        place, existing = self._histories.place(self.path), {each.name.id for each in records}
        existing |= {self.current.origin.id} if self.current else set()
        found = await self._histories.read(each for each in records if each.name.id == id_)
        return next(iter(true_records(found, place, existing)), None)
