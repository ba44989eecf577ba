"""What an adapter made of files that a listing shows unchanged, so that they are not read again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from agent_memory.backend import Entry, ETag
from agent_memory.backend.helpers import Uncopied
from agent_memory.integrations.toolkit._files import read_each
from agent_memory.memory import AsyncAgentMemory

T = TypeVar("T")
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


class _Cached(NamedTuple, Generic[T]):
    state: _State
    value: T


class ReadCache(Uncopied, Generic[T]):
    """The values of files, read again when a listing shows another size, time or etag; safe in threads.

    It holds files of 64 MiB in total, those used last. A file that changed within the last 2 seconds is read each time.

    Args:
        parse: makes the value from the bytes of a file. Each caller gets the same value, and must not change it.
    """

    def __init__(self, parse: Callable[[bytes], T]) -> None:
        self._parse = parse
        self._lock = threading.Lock()
        self._cached: dict[str, _Cached[T]] = {}  # in the order of their last use
        self._room = _MOST_BYTES

    async def read(self, memory: AsyncAgentMemory, entries: Iterable[Entry]) -> dict[str, T]:
        """Return the values of listed files by path; see `read_each` for files that are gone or cannot be read."""
        states = {entry.path: _State(entry.size, entry.modified, entry.etag) for entry in entries}
        settled = time.time() - _SETTLED_SECONDS
        with self._lock:
            known = {path: each for path, state in states.items() if (each := self._used(path, state))}
        read = await read_each(memory, [path for path in states if path not in known])
        new = {path: _Cached(states[path], self._parse(data)) for path, data in read.items()}
        with self._lock:
            for path, each in new.items():
                self._drop(path)
                if 0 < each.state.modified < settled:  # 0 is that of a filesystem which tells no times
                    self._keep(path, each)
        found = known | new
        return {path: found[path].value for path in states if path in found}

    def _used(self, path: str, state: _State) -> _Cached[T] | None:
        each = self._cached.get(path)
        if each is None or each.state != state:
            return None
        self._cached[path] = self._cached.pop(path)
        return each

    def _keep(self, path: str, each: _Cached[T]) -> None:
        self._cached[path] = each
        self._room -= each.state.size + _OVERHEAD
        while self._room < 0:
            self._drop(next(iter(self._cached)))

    def _drop(self, path: str) -> None:
        if each := self._cached.pop(path, None):
            self._room += each.state.size + _OVERHEAD
