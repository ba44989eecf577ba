"""The contents of files that a listing shows unchanged, so that they are not read again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

from agent_memory.backend import Entry, ETag
from agent_memory.backend.helpers import Uncopied
from agent_memory.integrations.toolkit._files import found_each, read_each
from agent_memory.integrations.toolkit._memories import AnyMemory
from agent_memory.memory import AsyncAgentMemory
from agent_memory.reading.reader import Reader
from agent_memory.runtime.fork import renewed_in_child

_MOST_BYTES: Final = 64 * 1024 * 1024
_OVERHEAD: Final = 1024
"""The bytes that a file is counted with beside its content."""
_SETTLED_SECONDS: Final = 2
"""The age from which on another change gives a file another time, on every storage."""


class _State(NamedTuple):
    """What a listing shows of a file; a file that changed after it had settled has another state."""

    size: int
    modified: float
    etag: ETag | None

    def is_settled(self, before: float) -> bool:
        return 0 < self.modified < before and self.size < _MOST_BYTES  # 0 is that of a filesystem without times


class _Cached(NamedTuple):
    state: _State
    data: bytes


class ReadCache(Uncopied):
    """The contents of a memory's files, read again when a listing shows another size, time or etag; safe in threads.

    It holds 64 MiB, the files used last. A file that changed within the last 2 seconds is read each time. Plugins see
    each use as a read: guards may refuse it, and observers that want successes are told a size of 0 if nothing was
    read. If a plugin checks the contents that are read, nothing is kept. A program that sets the time of a file back
    can hide its change.

    Args:
        memory: the memory; `read` takes a view of it.
    """

    def __init__(self, memory: AnyMemory) -> None:
        self._hooks = memory._tree.hooks
        self._renew()
        _caches.add(self)

    def _renew(self) -> None:
        self._lock = threading.RLock()
        self._cached: dict[str, _Cached] = {}  # in the order of their last use
        self._room = _MOST_BYTES

    async def read(self, memory: AsyncAgentMemory, entries: Iterable[Entry]) -> dict[str, bytes]:
        """Return the contents of listed files by path; see `read_each` for files that are gone or cannot be read."""
        states = {entry.path: _State(entry.size, entry.modified, entry.etag) for entry in entries}
        settled = time.time() - _SETTLED_SECONDS
        with self._lock:
            known = {path: data for path, state in states.items() if (data := self._used(path, state)) is not None}
        if known and (self._hooks.guards or self._hooks.wants_successes()):
            permitted = await found_each(memory, lambda path: memory.scan(path, _nothing), known)
            refused = known.keys() - {path for path, _ in permitted}
            states = {path: state for path, state in states.items() if path not in refused}
        new = await read_each(memory, [path for path in states if path not in known])
        with self._lock:
            for path, data in new.items():
                self._drop(path)
                if states[path].is_settled(settled) and not self._hooks.guards_of_reads:
                    self._keep(path, _Cached(states[path], data))
        found = known | new
        return {path: found[path] for path in states if path in found}

    def _used(self, path: str, state: _State) -> bytes | None:
        each = self._cached.get(path)
        if each is None or each.state != state:
            return None
        self._cached[path] = self._cached.pop(path)
        return each.data

    def _keep(self, path: str, each: _Cached) -> None:
        self._cached[path] = each
        self._room -= each.state.size + _OVERHEAD
        while self._room < 0:
            self._drop(next(iter(self._cached)))

    def _drop(self, path: str) -> None:
        if each := self._cached.pop(path, None):
            self._room += each.state.size + _OVERHEAD


_caches = renewed_in_child(ReadCache._renew)


async def _nothing(_: Reader) -> None:
    """Read nothing: the guards and the observers are called."""
