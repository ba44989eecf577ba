"""The in-memory backend: ``memory://name`` on fsspec's memory filesystem, for tests and temporary data.

fsspec has one memory filesystem per process, so equal URLs are the same store; one lock guards all named stores.
``memory://`` without a name opens a new, private store. A directory exists as long as a file is below it.

This is the only module: `MemoryBackend` has the five verbs, append, and moves and deletes of directories; ``_Changes``
is the lock of a store; ``_StagedParts`` collects the parts of a file.
"""

from __future__ import annotations

import operator
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from agent_memory.backend import (
    ABSENT,
    ANY,
    PRESENT,
    Appended,
    AppendWhen,
    BackendFactory,
    BlockingBackend,
    Capabilities,
    DeletedTree,
    Entry,
    ETag,
    NewOrigin,
    Page,
    ReadWhen,
    Snapshot,
    WriteWhen,
    hookimpl,
)
from agent_memory.backend.helpers import (
    PageBuilder,
    Uncopied,
    content_etag,
    not_found,
    refuse_larger_read,
    refuse_over_most,
    require,
    taken_name,
)
from agent_memory.errors import WriteError
from agent_memory.key import Key

__all__ = ["MemoryBackend", "agent_memory_register_backends"]

_PARTIAL = "state:"
_ORIGIN = "agent_memory_origin"
T = TypeVar("T")


class _Changes(Uncopied):
    """Runs the changes of a store one at a time.

    The lock is reentrant, so that a signal handler may read while it interrupts a change. A change by such a handler is
    refused, because one of the two changes would be lost.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.under_way: list[None] = []
        self._last = 0.0
        _all_changes.add(self)

    def begin_in_child(self) -> None:
        """Reset after a fork: a change under way belongs to the parent."""
        self.lock = threading.RLock()
        self.under_way = []

    def now(self) -> float:
        """The time of a change, in POSIX seconds: later than that of each change before."""
        self._last = max(time.time(), self._last + 1e-6)
        return self._last

    def run(self, key: Key, change: Callable[[], T]) -> T:
        """Run a change.

        Raises:
            WriteError: the caller is a signal handler that interrupted another change of this store.
        """
        with self.lock:
            if self.under_way:
                raise WriteError(
                    "this change interrupted another change of the same store; nothing was written", path=key.path
                )
            try:
                self.under_way.append(None)
                return change()
            finally:
                self.under_way.clear()


_all_changes: WeakSet[_Changes] = WeakSet()


def _begin_in_child() -> None:
    for changes in _all_changes:
        changes.begin_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)
_of_named_stores = _Changes()


class MemoryBackend(BlockingBackend):
    """Files in fsspec's memory filesystem below ``/{name}``; without a name, in a private store."""

    capabilities = Capabilities(
        atomic_write=True,
        atomic_create=True,
        compare_and_swap=True,
        conditional_delete=True,
        durability="none",
        exclusive_names=True,
        case_sensitive=True,
        read_after_write=True,
    )
    keeps_origins = True

    def __init__(self, name: str = "") -> None:
        self._fs = MemoryFileSystem(skip_instance_cache=True)
        self._changes = _of_named_stores
        if not name:
            self._fs.store, self._fs.pseudo_dirs = {}, [""]
            self._changes = _Changes()
        self._root = f"/{name}/" if name else "/"

    def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        with self._changes.lock:
            file = self._file(key)
            span = range(*slice(start, end).indices(file.size))
            refuse_larger_read(key, len(span), self.max_bytes)
            partial = _partial_etag(file)
            whole = file.getvalue()
            origin = getattr(file, _ORIGIN, None)
        if isinstance(when, ETag) and when.token.startswith(_PARTIAL):
            require(key, partial, when)
        else:
            require(key, lambda: content_etag(whole), when)
        data = whole[start:end]
        etag = (lambda: content_etag(whole)) if len(data) == len(whole) else partial
        return Snapshot(data, etag, len(whole), origin)

    def stat(self, key: Key) -> Entry:
        with self._changes.lock:
            file = self._file(key)
            return Entry(key, file.size, file.modified.timestamp())

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        return self._changes.run(key, lambda: self._write(key, data, when, origin))

    def _write(self, key: Key, data: bytes, when: WriteWhen, origin: NewOrigin | None) -> ETag:
        self._refuse_taken(key)
        require(key, self._state(key), when)
        file = self._put(key, data, origin)
        return content_etag(data) if len(data) <= self.max_bytes else _partial_etag(file)

    def _put(self, key: Key, data: bytes, origin: NewOrigin | None) -> Any:
        path, now = self._path(key), self._changes.now()
        file = MemoryFile(self._fs, path, data)
        file.modified = datetime.fromtimestamp(now, tz=UTC)
        setattr(file, _ORIGIN, origin(now) if origin else None)
        self._fs.store[path] = file
        return file

    def append(
        self,
        key: Key,
        data: bytes,
        *,
        separator: bytes = b"",
        when: AppendWhen = ANY,
        most: int | None = None,
        origin: NewOrigin | None = None,
    ) -> Appended:
        return self._changes.run(key, lambda: self._append(key, data, separator, when, most, origin))

    def _append(
        self,
        key: Key,
        data: bytes,
        separator: bytes,
        when: AppendWhen,
        most: int | None,
        origin: NewOrigin | None,
    ) -> Appended:
        require(key, self._state(key), when)
        self._refuse_taken(key)
        file = self._fs.store.get(self._path(key))
        if file is None:
            refuse_over_most(key, len(data), most)
            made = self._put(key, data, origin)
            return Appended(len(data), origin=getattr(made, _ORIGIN))
        if file.size and separator:
            file.seek(-min(file.size, len(separator)), 2)
            data = data if file.read() == separator else separator + data
        refuse_over_most(key, file.size + len(data), most)
        file.seek(0, 2)
        file.write(data)
        file.modified = datetime.fromtimestamp(self._changes.now(), tz=UTC)
        return Appended(file.size, origin=getattr(file, _ORIGIN, None))

    def delete(self, key: Key, when: ReadWhen = ANY) -> None:
        self._changes.run(key, lambda: self._delete(key, when))

    def _delete(self, key: Key, when: ReadWhen) -> None:
        require(key, self._state(key), PRESENT, when)
        del self._fs.store[self._path(key)]

    def write_in_parts(
        self,
        key: Key,
        size: int,  # noqa: ARG002 - not needed here
        when: WriteWhen = ANY,
        origin: NewOrigin | None = None,
    ) -> _StagedParts:
        with self._changes.lock:
            self._refuse_taken(key)
            require(key, self._state(key), when)
        return _StagedParts(self, key, when, origin)

    def move_file(self, source: Key, target: Key, when: ReadWhen = ANY) -> int:
        return self._changes.run(source, lambda: self._move_file(source, target, when))

    def _move_file(self, source: Key, target: Key, when: ReadWhen) -> int:
        file = self._file(source)
        if when is not ANY:
            is_partial = when.token.startswith(_PARTIAL)
            require(source, _partial_etag(file) if is_partial else self._state(source), when)
        require(target, self._state(target), ABSENT)
        self._refuse_taken(target)
        self._move([(self._path(source), self._path(target))])
        size: int = file.size
        return size

    def move_tree(self, source: Key, target: Key) -> int | None:
        return self._changes.run(source, lambda: self._move_tree(source, target))

    def _move_tree(self, source: Key, target: Key) -> int | None:
        page = self._below(source).whole_page(None)
        if not page.entries:
            raise not_found(source)
        if page.skipped:
            return None
        moved = [(entry.key, target.join(entry.key.relative_to(source).path)) for entry in page.entries]
        if self._state(target):
            raise taken_name(target, "file")
        self._refuse_taken(target)
        self._move([(self._path(old), self._path(new)) for old, new in moved])
        return len(moved)

    def _move(self, names: list[tuple[str, str]]) -> None:
        """Rename all files or none: in one call of C code, during which no signal handler runs."""
        files = {new: self._fs.store[old] for old, new in names}
        steps = [partial(self._fs.store.update, files)]
        steps += [partial(self._fs.store.pop, old) for old, _ in names]
        steps += [partial(setattr, file, "path", new) for new, file in files.items()]
        deque(map(operator.call, steps), maxlen=0)

    def delete_tree(self, prefix: Key) -> DeletedTree:
        return self._changes.run(prefix, lambda: self._delete_tree(prefix))

    def _delete_tree(self, prefix: Key) -> DeletedTree:
        page = self._below(prefix).whole_page(None)
        for entry in page.entries:
            del self._fs.store[self._path(entry.key)]
        return DeletedTree(len(page.entries), page.skipped)

    def erase(self, prefix: Key) -> DeletedTree:
        return self._changes.run(prefix, lambda: self._erase(prefix))

    def erase_earlier(self, key: Key, is_meant: Callable[[Key], bool] | None = None) -> int:  # noqa: ARG002 - nothing is kept
        return 0

    def _erase(self, prefix: Key) -> DeletedTree:
        own = self._fs.store.pop(self._path(prefix), None) is not None
        below = self._delete_tree(prefix)
        return DeletedTree(own + below.files, below.skipped)

    def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        with self._changes.lock:
            return self._below(prefix, recursive).page(after, limit)

    def _below(self, prefix: Key, recursive: bool = True) -> PageBuilder:
        builder = PageBuilder(prefix, recursive)
        top = self._path(prefix).rstrip("/") + "/"
        for path, file in list(self._fs.store.items()):  # a copy, because a signal handler may change the store
            if path.startswith(top):
                builder.file(path[len(top) :], file.size, file.modified.timestamp())
        return builder

    def _path(self, key: Key) -> str:
        return self._root + key.storage

    def _file(self, key: Key) -> Any:
        if (file := self._fs.store.get(self._path(key))) is None:
            raise not_found(key)
        return file

    def _state(self, key: Key) -> ETag | Callable[[], ETag] | None:
        file = self._fs.store.get(self._path(key))
        if file is not None and file.size > self.max_bytes:
            return _partial_etag(file)
        return None if file is None else lambda: content_etag(file.getvalue())

    def _refuse_taken(self, key: Key) -> None:
        path = self._path(key)
        above = len(self._root) - 1
        parents = [path[:end] for end in range(above + 1, len(path)) if path[end] == "/"]
        if any(parent in self._fs.store for parent in parents):
            raise taken_name(key, "file_above")
        if path not in self._fs.store and any(other.startswith(path + "/") for other in self._fs.store):
            raise taken_name(key, "directory")


class _StagedParts:
    """See `agent_memory.backend.Parts`."""

    def __init__(self, backend: MemoryBackend, key: Key, when: WriteWhen, origin: NewOrigin | None = None) -> None:
        self.part_bytes = backend.part_bytes
        self._backend = backend
        self._key = key
        self._when: WriteWhen = when
        self._origin = origin
        self._held: list[bytes] = []

    def add(self, data: bytes) -> None:
        self._held.append(data)

    def add_copy(self, source: Key, start: int, end: int, etag: ETag) -> bool:  # noqa: ARG002
        return False

    def complete(self) -> ETag:
        data = b"".join(self._held)
        self._held.clear()
        return self._backend.write(self._key, data, self._when, self._origin)

    def abort(self) -> None:
        self._held.clear()


def _partial_etag(file: Any) -> ETag:
    """An etag for partial reads of one state, computed without the content; it equals no content's etag."""
    return ETag(f"{_PARTIAL}{id(file)}:{file.size}:{file.modified.timestamp()}")


def _open(url: str, options: Mapping[str, object]) -> MemoryBackend:
    if options:
        raise TypeError(f"memory:// takes no storage options, got {', '.join(sorted(options))}")
    return MemoryBackend(url.partition("://")[2].strip("/"))


@hookimpl
def agent_memory_register_backends(register: Callable[[str, BackendFactory], None]) -> None:
    """Add ``memory://``."""
    register("memory", _open)
