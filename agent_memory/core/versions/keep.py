"""`VersionedStore`: a backend over another one; it keeps each state of a file before a change replaces or deletes it.

Before the change, the bytes that it read are written as a `Record`, only if no file has the record's name. Then the
change is made on the condition that the file is still in the state that was read. So no state is replaced without a
record. A change that loses a race deletes its record. A crash leaves a record of a change that was not made, which
`agent_memory.core.versions.order` leaves out: its state is still there, or ended later with all of its content.

An append writes no record, because the earlier state is the beginning of the new one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, cast

from agent_memory.backend import (
    ABSENT,
    ANY,
    PRESENT,
    Appended,
    AppendWhen,
    Backend,
    DeletedTree,
    Entry,
    ETag,
    NewOrigin,
    Parts,
    ReadWhen,
    Snapshot,
    WriteWhen,
)
from agent_memory.backend.helpers import not_found
from agent_memory.core import tree_flows
from agent_memory.core.flow_store import FlowParts, FlowStore
from agent_memory.core.flows import (
    Effect,
    moves_files,
    moves_trees,
    read_if_present,
    until_won,
    write_in_place,
    writes_copies,
)
from agent_memory.core.versions.archive import Archive
from agent_memory.core.versions.origin import MadeBy, Origin
from agent_memory.core.versions.states import CurrentFile, read_current
from agent_memory.errors import AgentMemoryFileNotFoundError, ConflictError, FileTooLargeError
from agent_memory.key import Key
from agent_memory.runtime.run import Run


class VersionedStore(FlowStore):
    """A store for the flow of one operation, which keeps the states that the operation ends. Its methods are flows.

    Args:
        inner: the store.
        run: runs its primitives.
        agent: the agent whose tree the operation changes.
        by: the operation.
        continues: the last state of a deleted file; a file that is created continues its history.

    Attributes:
        archive: the records that the operation writes.
        appended_to: the id of the state that the operation appended to.
    """

    def __init__(
        self, inner: Backend, run: Run, agent: str | None, by: MadeBy, continues: Origin | None = None
    ) -> None:
        super().__init__(inner, run)
        self.archive = Archive(inner, run, agent, by)
        self._by = by
        self._continues = continues
        self.appended_to: str | None = None
        self._known: dict[Key, CurrentFile] = {}
        self._targets: dict[Key, Key] = {}
        self._copied: dict[Key, str | None] = {}
        self._read_for_move: dict[Key, CurrentFile] = {}

    async def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        if (start, end) == (None, None) and not key.is_internal:
            current = self._read_for_move.pop(key, None) or await self._current(key, when)
            return current.whole(self.max_bytes)
        return await super().read(key, start, end, when)

    async def write(self, key: Key, data: bytes, when: WriteWhen = ANY) -> ETag:
        if key.is_internal:
            return await self._call(self._inner.write, key, data, when)
        if when is ABSENT:
            return await self._create(key, data)
        if isinstance(when, ETag):
            return await self._replace(key, data, await self._before(key, when))

        async def attempt() -> Effect:
            try:
                before = await read_if_present(self, self.run, key)
            except FileTooLargeError:
                return Effect(etag=await self._replace(key, data, self._known[key]))
            if before is None and when is PRESENT:
                raise not_found(key)
            # write_in_place comes back to this method, with an etag or ABSENT
            return Effect(etag=await write_in_place(self, self.run, key, data, before))

        return cast(ETag, (await until_won(self._inner, self._run, key, attempt)).etag)

    async def write_copy(self, key: Key, of: Key, snapshot: Snapshot, _: NewOrigin | None = None) -> ETag:
        new = self._new_origin(key, snapshot.data)  # a renamed file keeps the one that it was known to have
        if not writes_copies(self._inner):
            return await self._write(key, snapshot.data, ABSENT, new)
        write = cast("Callable[..., Awaitable[ETag]]", self._inner.write_copy)
        with self.archive.using_mark(key):
            return await self._call(write, key, of, snapshot, new)

    async def append(self, key: Key, data: bytes, *, separator: bytes = b"", when: AppendWhen = ANY) -> Appended:
        append = cast("Callable[..., Awaitable[Appended]]", cast(Any, self._inner).append)
        origin = self._first_origin(len(data), data)
        appended = await self._call(append, key, data, separator=separator, when=when, origin=origin)
        found = Origin.parse(appended.origin)
        self.appended_to = found.id if found else None
        return appended

    async def delete(self, key: Key, when: ReadWhen = ANY) -> None:
        if key.is_internal or key in self._targets or key in self._targets.values():
            await self._call(self._inner.delete, key, when)
            self.archive.withdraw_mark(key)
        elif isinstance(when, ETag):
            await self._delete(key, await self._before(key, when))
        else:

            async def attempt() -> Effect:
                await self._delete(key, await self._current(key))
                return Effect()

            await until_won(self._inner, self._run, key, attempt)

    async def write_in_parts(self, key: Key, size: int, when: WriteWhen = ANY) -> Parts:
        before: CurrentFile | None = None
        if when is not ABSENT:
            with suppress(AgentMemoryFileNotFoundError):
                before = await (self._before(key, when) if isinstance(when, ETag) else self._current(key))
        if before is None and when is PRESENT:
            raise not_found(key)
        new = before.origin.next(self._by, size, None) if before else None
        origin = new.at if new else self._new_origin(key, None, size)
        begin = cast("Callable[..., Awaitable[Parts]]", cast(Any, self._inner).write_in_parts)
        parts = await self._call(begin, key, size, before.snapshot.etag if before else ABSENT, origin)
        return _VersionedParts(parts, self, key, before, new)

    async def write_copy_in_parts(self, key: Key, size: int, of: Key, etag: ETag, _: NewOrigin | None = None) -> Parts:
        if not writes_copies(self._inner):
            return await self.write_in_parts(key, size, ABSENT)
        begin = cast("Callable[..., Awaitable[Parts]]", self._inner.write_copy_in_parts)
        parts = await self._call(begin, key, size, of, etag, self._new_origin(key, None, size))
        return _VersionedParts(parts, self, key, None, None)

    async def move_file(self, source: Key, target: Key, when: ReadWhen = ANY) -> int | None:
        if moves_files(cast(Any, self._inner)):
            found = await read_current(self._inner, self._run, source, 0, 0)
            await self.archive.write_mark(source, target, found.origin)
            move = cast(Any, self._inner).move_file
            if (moved := await self._moved(move, source, target, *(() if when is ANY else (when,)))) is not None:
                return moved
        current = self._read_for_move[source] = await self._current(source, when)
        text = current.snapshot.origin
        self._copied[target] = text
        await self.archive.write_mark(source, target, Origin.parse(text) or Origin.unknown(0))
        self._targets[source] = target  # the flow copies the file and deletes the source
        return None

    async def move_tree(self, source: Key, target: Key) -> int | None:
        if not moves_trees(cast(Any, self._inner)):
            return None

        async def moved(entry: Entry) -> tuple[str, str] | None:
            with suppress(AgentMemoryFileNotFoundError):
                found = await read_current(self._inner, self._run, entry.key, 0, 0)
                if history := found.origin.history:
                    return history, target.join(entry.key.relative_to(source).path).path
            return None

        entries = (await tree_flows.list_all(self._inner, self._run, source)).entries
        files = [each for each in await self._run.map(moved, entries, tree_flows.AT_ONCE) if each]
        await self.archive.write_mark(source, target, None, files)
        return await self._moved(cast(Any, self._inner).move_tree, source, target)

    async def _moved(
        self, move: Callable[..., Awaitable[int | None]], source: Key, target: Key, *when: ReadWhen
    ) -> int | None:
        with self.archive.using_mark(target):
            moved = await self._call(move, source, target, *when)
        if moved is None:
            self.archive.withdraw_mark(target)
        return moved

    async def delete_tree(self, prefix: Key) -> DeletedTree:
        listing = await tree_flows.list_all(self._inner, self._run, prefix)

        await tree_flows.delete_each(self, self.run, listing.entries)
        return DeletedTree(len(listing.entries), listing.skipped)

    async def _current(self, key: Key, when: ReadWhen = ANY) -> CurrentFile:
        try:
            found = await read_current(self._inner, self._run, key, when=when)
        except FileTooLargeError:
            found = await read_current(self._inner, self._run, key, 0, 0)
        self._known[key] = current = found.with_known_origin()
        return current

    async def _before(self, key: Key, when: ETag) -> CurrentFile:
        """The state with an etag, as this operation read it, or read now."""
        found = self._known.get(key)
        if found and found.snapshot.etag == when:
            return found
        try:
            return await self._current(key, when)
        except AgentMemoryFileNotFoundError as error:
            raise ConflictError("the file is gone", path=key.path) from error

    async def _create(self, key: Key, data: bytes) -> ETag:
        return await self._write(key, data, ABSENT, self._new_origin(key, data))

    def _new_origin(self, key: Key, data: bytes | None, size: int = 0) -> NewOrigin | None:
        """The origin of a file that does not exist; a renamed file keeps the one that it has."""
        if key not in self._copied:
            return self._first_origin(size if data is None else len(data), data)
        text = self._copied[key]
        return None if text is None else lambda _: text

    def _first_origin(self, size: int, data: bytes | None) -> NewOrigin:
        """The origin of a file that is created: another one each time, because each request may create another file."""
        begins = self._continues is None
        new = self._continues.next(self._by, size, data) if self._continues else Origin.first(self._by, size, data)
        return lambda at: new.of_another_state(begins).at(at)

    async def _replace(self, key: Key, data: bytes, before: CurrentFile) -> ETag:
        new = before.origin.next(self._by, len(data), data)

        def write() -> Awaitable[ETag]:
            return self._write(key, data, before.snapshot.etag, new.at)

        return await self.archive.keep_then(before, new, write)

    async def _write(self, key: Key, data: bytes, when: WriteWhen, origin: NewOrigin | None) -> ETag:
        write = cast("Callable[..., Awaitable[ETag]]", self._inner.write)
        with self.archive.using_mark(key):
            return await self._call(write, key, data, when, origin)

    async def _delete(self, key: Key, before: CurrentFile) -> None:
        await self.archive.keep_then(before, None, lambda: self._call(self._inner.delete, key, before.snapshot.etag))


class _VersionedParts(FlowParts):
    """See `agent_memory.backend.Parts`: keeps the replaced state before the new one becomes visible."""

    def __init__(
        self, parts: Parts, store: VersionedStore, key: Key, before: CurrentFile | None, new: Origin | None
    ) -> None:
        super().__init__(parts, store._run)
        self._store = store
        self._key = key
        self._before = before
        self._new = new

    async def complete(self) -> ETag:
        archive = self._store.archive
        with archive.using_mark(self._key):
            if self._before:
                return await archive.keep_then(self._before, self._new, super().complete)
            return await super().complete()
