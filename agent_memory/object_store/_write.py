"""`Write`: one write of one object, sent until it is settled whether it took effect."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from agent_memory.object_store._attempts import Attempts
from agent_memory.object_store._store import Missing, ObjectStore, Racing, Refused, Unanswered
from agent_memory.object_store._writers import Entry, Stamped, Table

_SKEW_SECONDS = 5.0
"""How far `ObjectStore.now` may be wrong: half of it is the resolution of the ``Date`` header, twice."""


class State(NamedTuple):
    """One state of an object: what a conditional write compares, what it carries on, and the data if they were read."""

    etag: str
    table: Table
    modified: float = 0.0
    data: bytes = b""


class BeatenError(Exception):
    """The object is not in the state the write was conditional on, and does not hold the write.

    Attributes:
        seen: the state it is in; None if there is no object.
        certain: whether the write never took effect; else it may have, and was overwritten or deleted since.
        keeps_directories: the server may have meant a directory without objects.
    """

    def __init__(self, seen: State | None, certain: bool, keeps_directories: bool) -> None:
        super().__init__()
        self.seen = seen
        self.certain = certain
        self.keeps_directories = keeps_directories


class Write:
    """One logical write: the same entry in every request, so that it is found whichever of them took effect."""

    def __init__(self, store: ObjectStore, name: str, entry: Entry, attempts: Attempts, most: int) -> None:
        self._store = store
        self._name = name
        self._entry = entry
        self._attempts = attempts
        self._most = most

    async def overwrite(self, data: bytes) -> Stamped:
        """Write whatever is there; raises `OutOfTimeError`."""
        table = Table(Table.new().chain, (self._entry,))
        while True:
            try:
                etag = await self._attempts.once(lambda: self._store.put(self._name, data, table.metadata))
                return Stamped(etag, table)
            except Unanswered as failure:
                await self._attempts.back_off(failure)
            except Racing:
                await self._attempts.lose()

    async def send(self, data: bytes, base: State | None, *, whole: bool = False) -> Stamped:
        """Write if the object is still in a state; with ``whole``, its data are read where it is not.

        Raises:
            BeatenError: it is not.
            OutOfTimeError: the deadline is over; `Attempts.lost` tells whether the write may have taken effect.
        """
        while True:
            table = await self._stamped(base)
            try:
                etag = await self._attempts.once(partial(self._put, data, table, base))
                return Stamped(etag, table)
            except Unanswered as failure:
                await self._attempts.back_off(failure)
            except (Refused, Racing, Missing) as answer:
                seen = await self._look_again(whole)
                if seen and seen.table.has(self._entry):
                    return self._found(seen)
                keeps_directories = isinstance(answer, Refused) and answer.keeps_directories
                if not _same(seen, base) or (base is None and keeps_directories):
                    raise self._beaten(seen, base, keeps_directories) from answer
                await self._attempts.lose()  # nothing stands in its way: the store could not decide

    async def look(self, *, whole: bool) -> State | None:
        """The object's state now; None if there is none."""
        read = (lambda: self._store.get(self._name, most=self._most)) if whole else lambda: self._store.head(self._name)
        try:
            found = await self._attempts.until_answered(read)
        except Missing:
            return None
        return State(found.etag, Table.of(found.metadata, found.etag), found.modified, found.data)

    async def _put(self, data: bytes, table: Table, base: State | None) -> str:
        etag = base.etag if base else None
        return await self._store.put(self._name, data, table.metadata, if_match=etag, absent=base is None)

    async def _stamped(self, base: State | None) -> Table:
        table = base.table if base else Table.new()
        while (stamped := table.stamped(self._entry, self._store.now())) is None:
            await self._attempts.wait_for_room()
        return stamped

    async def _look_again(self, whole: bool) -> State | None:
        """Look what refused a write; who goes on with what is read there lets the winners go first."""
        self._attempts.lost = self._attempts.lost or self._store.resends
        if whole:
            await self._attempts.lose()
        return await self.look(whole=whole)

    def _found(self, seen: State) -> Stamped:
        if seen.table.entries[-1][:2] == self._entry[:2]:
            return Stamped(seen.etag, seen.table)
        return Stamped(f'"superseded:{self._entry}"')  # others wrote since: its own ETag is not known

    def _beaten(self, seen: State | None, base: State | None, keeps_directories: bool) -> BeatenError:
        if self._never_took_effect(seen, base):
            self._attempts.lost = False
        return BeatenError(seen, not self._attempts.lost, keeps_directories)

    def _never_took_effect(self, seen: State | None, base: State | None) -> bool:
        if seen is None or seen.table.is_foreign:
            return bool(seen and base and seen.table.chain == base.table.chain)
        same_chain = base is not None and seen.table.chain == base.table.chain
        began = self._store.now() - self._attempts.seconds_ago  # by the store's clock, which answers have told by now
        return same_chain or seen.modified + _SKEW_SECONDS < began


def _same(seen: State | None, base: State | None) -> bool:
    if seen is None or base is None:
        return seen is base
    return (seen.etag, seen.table.chain) == (base.etag, base.table.chain)
