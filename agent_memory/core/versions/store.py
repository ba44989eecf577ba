"""`VersionedStore`: a backend over another one; it keeps each state of a file before a change replaces or deletes it.

Before the change, the bytes that it read are written as a `Record`, only if no file has the record's name. Then the
change is made on the condition that the file is still in the state that was read. So no state is replaced without a
record. A change that loses a race deletes its record. A crash leaves a record of a change that was not made; its
successor is neither the live state nor one with a record, and `agent_memory.core.versions.history` leaves it out.

An append keeps nothing, because the earlier state is the beginning of the new one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar, cast

from agent_memory.backend import (
    ABSENT,
    ANY,
    PRESENT,
    Appended,
    AppendWhen,
    Backend,
    Capabilities,
    DeletedTree,
    Entry,
    ETag,
    KeepsOrigins,
    NewOrigin,
    Page,
    Parts,
    ReadWhen,
    Snapshot,
    WriteWhen,
    not_found,
)
from agent_memory.core import tree_flows
from agent_memory.core.flows import (
    Effect,
    checked_capabilities,
    keeps_origins,
    moves_files,
    moves_trees,
    read_if_present,
    until_won,
    write_in_place,
    writes_copies,
)
from agent_memory.core.own_trees import about_callers_file
from agent_memory.core.versions.flowing import Flowing, VersionedRun
from agent_memory.core.versions.large import copy_to_record
from agent_memory.core.versions.links import Links
from agent_memory.core.versions.live import Live, read_with_origin
from agent_memory.core.versions.origin import MadeBy, Origin
from agent_memory.core.versions.record import Record, records_of_file
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileTooLargeError,
    OutcomeUnknownError,
    UnsupportedOperationError,
)
from agent_memory.key import Key
from agent_memory.runtime.run import Run

P = ParamSpec("P")
T = TypeVar("T")


class VersionedStore(Flowing, Backend):
    """A store for the flow of one operation, which keeps the states that the operation ends.

    Args:
        inner: the store.
        run: runs its primitives.
        agent: the agent whose tree the operation changes.
        secret: keys the digests of paths.
        by: the operation.

    Attributes:
        run: runs flows over this store.
        links: the records of renames.
        appended_to: the id of the state that the operation appended to.
    """

    def __init__(self, inner: Backend, run: Run, agent: str | None, secret: str, by: MadeBy) -> None:
        self.max_bytes = inner.max_bytes
        self.part_bytes = inner.part_bytes
        self._inner = inner
        self._origins = cast("KeepsOrigins", inner)
        self._run = run
        self.run = VersionedRun(run, inner)
        self._agent = agent
        self._secret = secret
        self._by = by
        self.appended_to: str | None = None
        self._seen: dict[Key, Live] = {}
        self._moving: dict[Key, Key] = {}
        self._copied: dict[Key, Origin] = {}
        self.links = Links(inner, run, agent, secret, by)
        self._read_for_move: dict[Key, Live] = {}

    @property
    def capabilities(self) -> Capabilities:  # type: ignore[override]  # not to be set
        return self._inner.capabilities

    async def check_capabilities(self, key: Key) -> Capabilities:
        return await checked_capabilities(self._inner, self._run, key)

    async def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        if (start, end) == (None, None) and not key.is_internal:
            live = self._read_for_move.pop(key, None) or await self._live(key, when)
            return live.whole(key, self.max_bytes)
        return await self._call(self._inner.read, key, start, end, when)

    async def stat(self, key: Key) -> Entry:
        return await self._call(self._inner.stat, key)

    async def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        return await self._call(self._inner.list, prefix, recursive=recursive, after=after, limit=limit)

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
                return Effect(etag=await self._replace(key, data, self._seen[key]))
            if before is None and when is PRESENT:
                raise not_found(key)
            return Effect(etag=await write_in_place(self, self.run, key, data, before))

        return cast(ETag, (await until_won(self._inner, self._run, key, attempt)).etag)

    async def write_copy(self, key: Key, of: Key, snapshot: Snapshot, origin: NewOrigin | None = None) -> ETag:
        new = origin or self._origin_of_new(key, snapshot.data)
        if not writes_copies(self._inner):
            return await self._written(key, snapshot.data, ABSENT, new)
        write = cast("Callable[..., Awaitable[ETag]]", self._inner.write_copy)
        with self.links.moving(key):
            return await self._call(write, key, of, snapshot, new)

    async def append(self, key: Key, data: bytes, *, separator: bytes = b"", when: AppendWhen = ANY) -> Appended:
        append = cast("Callable[..., Awaitable[Appended]]", self._origins.append_with_origin)
        appended = await self._call(append, key, data, separator, when, self._first(data))
        found = Origin.parse(appended.origin)
        self.appended_to = found.id if found else None
        return appended

    async def delete(self, key: Key, when: ReadWhen = ANY) -> None:
        if key.is_internal or key in self._moving or key in self._moving.values():
            await self._call(self._inner.delete, key, when)
            self.links.is_withdrawn(key)
        elif isinstance(when, ETag):
            await self._remove(key, await self._before(key, when))
        else:

            async def attempt() -> Effect:
                await self._remove(key, await self._live(key))
                return Effect()

            await until_won(self._inner, self._run, key, attempt)

    async def write_in_parts(self, key: Key, size: int, when: WriteWhen = ANY) -> Parts:
        live: Live | None = None
        if when is not ABSENT:
            with suppress(AgentMemoryFileNotFoundError):
                live = await (self._before(key, when) if isinstance(when, ETag) else self._live(key))
        if live is None and when is PRESENT:
            raise not_found(key)
        new = live.origin.next(self._by, size, None) if live else Origin.first(self._by, size, None)
        origin = self._copied.get(key, new).to_text
        begin = cast("Callable[..., Awaitable[Parts]]", self._origins.write_in_parts_with_origin)
        parts = await self._call(begin, key, size, live.snapshot.etag if live else ABSENT, origin)
        return _VersionedParts(parts, self, key, live, new)

    async def write_copy_in_parts(
        self, key: Key, size: int, of: Key, etag: ETag, origin: NewOrigin | None = None
    ) -> Parts:
        if not writes_copies(self._inner):
            return await self.write_in_parts(key, size, ABSENT)
        new = Origin.first(self._by, size, None)
        begin = cast("Callable[..., Awaitable[Parts]]", self._inner.write_copy_in_parts)
        text = origin or self._copied.get(key, new).to_text
        parts = await self._call(begin, key, size, of, etag, text)
        return _VersionedParts(parts, self, key, None, new)

    async def move_file(self, source: Key, target: Key, when: ReadWhen = ANY) -> int | None:
        if moves_files(cast(Any, self._inner)):
            _, text = await read_with_origin(self._origins, self._run, source, 0, 0)
            origin = Origin.parse(text)
            await self.links.write(source, target, origin.history if origin else "")
            move = cast(Any, self._inner).move_file
            if (moved := await self._moved(move, source, target, *(() if when is ANY else (when,)))) is not None:
                return moved
        live = self._read_for_move[source] = await self._live(source, when)
        self._copied[target] = copied = live.origin.copied()
        await self.links.write(source, target, copied.history, live.origin, copied)
        self._moving[source] = target  # the flow copies the file and deletes the source
        return None

    async def move_tree(self, source: Key, target: Key) -> int | None:
        if not moves_trees(cast(Any, self._inner)):
            return None
        await self.links.write(source, target, None)
        return await self._moved(cast(Any, self._inner).move_tree, source, target)

    async def _moved(
        self, move: Callable[..., Awaitable[int | None]], source: Key, target: Key, *when: ReadWhen
    ) -> int | None:
        with self.links.moving(target):
            moved = await self._call(move, source, target, *when)
        if moved is None:
            self.links.is_withdrawn(target)
        return moved

    async def delete_tree(self, prefix: Key) -> DeletedTree:
        listing = await tree_flows.list_all(self._inner, self._run, prefix)

        await tree_flows.delete_each(self, self.run, listing.entries)
        return DeletedTree(len(listing.entries), listing.skipped)

    async def ending(self, key: Key, live: Live, following: Origin | None, change: Callable[[], Awaitable[T]]) -> T:
        """Write the record of a state, then make the change that ends it; delete the record of a refused change."""
        record = Record.of(key.path, live.origin, live.snapshot.size, self._by, following)
        name = records_of_file(self._agent, self._secret, key.path).join(record.name)
        with about_callers_file(key.path, "the present content cannot be kept as a version"):
            if live.is_large:
                await copy_to_record(self._inner, self._run, key, live.snapshot, name, record.trailer())
            else:
                await self._call(self._inner.write, name, live.snapshot.data + record.trailer(), ABSENT)
        try:
            return await change()
        except OutcomeUnknownError:
            raise
        except AgentMemoryError:
            with suppress(AgentMemoryError):  # it is recognised as a leftover
                await self._call(self._inner.delete, name)
            raise

    async def _live(self, key: Key, when: ReadWhen = ANY) -> Live:
        try:
            live = Live.of(*await read_with_origin(self._origins, self._run, key, when=when))
        except FileTooLargeError:
            live = Live.large(*await read_with_origin(self._origins, self._run, key, 0, 0))
        self._seen[key] = live
        return live

    async def _before(self, key: Key, when: ETag) -> Live:
        """The state with an etag, as this operation read it, or read now."""
        live = self._seen.get(key)
        if live and live.snapshot.etag == when:
            return live
        try:
            return await self._live(key, when)
        except AgentMemoryFileNotFoundError as error:
            raise ConflictError("the file is gone", path=key.path) from error

    async def _create(self, key: Key, data: bytes) -> ETag:
        return await self._written(key, data, ABSENT, self._origin_of_new(key, data))

    def _origin_of_new(self, key: Key, data: bytes) -> NewOrigin:
        copied = self._copied.get(key)
        return copied.to_text if copied else self._first(data)

    def _first(self, data: bytes) -> NewOrigin:
        """The origin of a file that is created: another one each time, because each request may create another file."""
        first = Origin.first(self._by, len(data), data)
        return lambda: first.of_another_file().to_text()

    async def _replace(self, key: Key, data: bytes, before: Live) -> ETag:
        new = before.origin.next(self._by, len(data), data)
        return await self.ending(key, before, new, lambda: self._written(key, data, before.snapshot.etag, new.to_text))

    async def _written(self, key: Key, data: bytes, when: WriteWhen, origin: NewOrigin) -> ETag:
        write = cast("Callable[..., Awaitable[ETag]]", self._origins.write_with_origin)
        with self.links.moving(key):
            return await self._call(write, key, data, when, origin)

    async def _remove(self, key: Key, before: Live) -> None:
        await self.ending(key, before, None, lambda: self._call(self._inner.delete, key, before.snapshot.etag))

    async def _call(self, primitive: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run.call(primitive, *args, **kwargs)


class _VersionedParts(Flowing):
    """See `agent_memory.backend.Parts`: keeps the replaced state before the new one becomes visible."""

    def __init__(self, parts: Parts, store: VersionedStore, key: Key, live: Live | None, new: Origin) -> None:
        self.part_bytes = parts.part_bytes
        self._parts = cast(Any, parts)
        self._store = store
        self._key = key
        self._live = live
        self._new = new

    async def add(self, data: bytes) -> None:
        await self._store._call(self._parts.add, data)

    async def add_copy(self, source: Key, start: int, end: int, etag: ETag) -> bool:
        added: bool = await self._store._call(self._parts.add_copy, source, start, end, etag)
        return added

    async def complete(self) -> ETag:
        async def complete() -> ETag:
            etag: ETag = await self._store._call(self._parts.complete)
            return etag

        with self._store.links.moving(self._key):
            return await (self._store.ending(self._key, self._live, self._new, complete) if self._live else complete())

    async def abort(self) -> None:
        await self._store._call(self._parts.abort)


def require_versions(store: Backend) -> None:
    """Raise unless a store can keep versions.

    Raises:
        UnsupportedOperationError: it has no conditional write or delete, or keeps no origins.
    """
    found = store.capabilities
    if not (keeps_origins(store) and found.compare_and_swap and found.conditional_delete):
        raise UnsupportedOperationError(
            "this store keeps versions, which needs conditional writes and conditional deletes; this backend has none"
        )
