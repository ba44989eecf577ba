"""The states of an object that writes are conditional on, and the errors if it is in another one.

`RecentWrites` is a cache of the states that this process wrote, so that an append need not read them.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

from agent_memory.backend import ABSENT, When, WriteWhen
from agent_memory.backend.helpers import taken_name
from agent_memory.errors import AgentMemoryError, ConflictError, OutcomeUnknownError
from agent_memory.key import Key
from agent_memory.object_store.write_log import TrackedETag, WriteLog

MOST_BYTES = 16 << 20
_MOST_SHARED = 65_536
_COST, _COST_OF_RECORD, _COST_OF_FORMER_NAME = 600, 270, 240
"""The bytes of a remembered state, of a record, and of a former name, without the texts and the data."""


_ONE_ETAG = re.compile(r'"[!#-+\--~]+"')


def is_one_etag(token: str) -> bool:
    """Whether a text is one strong etag, as a precondition needs it; in HTTP ``*`` and lists have other meanings."""
    return bool(_ONE_ETAG.fullmatch(token))


class State(NamedTuple):
    """One state of an object: the ETag that a write is conditional on, the log that it continues, and the data if read.

    An append to a large object reads only its end; ``before`` is the number of bytes before ``data``. ``modified`` is
    the time of the last write, in POSIX seconds by the store's clock; infinity if it is not known.
    """

    etag: str
    log: WriteLog
    data: bytes = b""
    before: int = 0
    modified: float = math.inf


Base: TypeAlias = State | Literal[When.ANY] | None
"""The condition of a request: a state, no object (None), or no condition (`ANY`)."""
MakeContent: TypeAlias = Callable[[State | None], Awaitable[bytes]]
"""Makes the bytes to store in the place of a state, without the bytes that the state has before its ``data``."""


class Written(NamedTuple):
    """A write that took effect: its etag, the state that it replaced, and the bytes that `MakeContent` made."""

    etag: TrackedETag
    state: State | None
    data: bytes


class BeatenError(Exception):
    """The object is not in the state that the write was conditional on, and does not contain the write.

    Attributes:
        seen: the object's state now; None if there is no object, or only an empty directory that the server keeps.
        certain: whether the write certainly never took effect. If False, it may have taken effect, and another writer
            may have replaced or deleted its content since.
    """

    def __init__(self, seen: State | None, certain: bool) -> None:
        super().__init__()
        self.seen = seen
        self.certain = certain


def refused(key: Key, when: WriteWhen, beaten: BeatenError) -> AgentMemoryError:
    """The error for a conditional write that found the object in another state."""
    if not beaten.certain:
        return unknown(key)
    if when is ABSENT:
        return taken_name(key, "file")
    return changed(key) if beaten.seen else gone(key)


def changed(key: Key) -> ConflictError:
    """The error for a file that is in another state than the caller requires."""
    return ConflictError("the file changed since it was read; nothing was written", path=key.path)


def gone(key: Key) -> ConflictError:
    """The error for a write in the place of an etag, if there is no file."""
    return ConflictError("the file is gone", path=key.path)


def unknown(key: Key) -> OutcomeUnknownError:
    """The error for a write without an answer that the object does not contain."""
    return OutcomeUnknownError(
        "an answer was lost, and the file does not contain this write now; "
        "it could not be found out whether it did before",
        path=key.path,
    )


def deletion_unknown(key: Key) -> OutcomeUnknownError:
    """The error for a deletion without an answer, after which there is a file."""
    return OutcomeUnknownError(
        "an answer was lost, and there is a file; it could not be found out whether it is the same one, or a new one "
        "since the deletion",
        path=key.path,
    )


class RecentWrites:
    """States by name, at most 16 MiB; the least recently written state is dropped first.

    A file is **shared** after an append of this process lost against another writer. No state of a shared file is
    remembered, because every append would begin with a refused request. The file is no longer shared when an append
    finds the state that this process left.
    """

    def __init__(self) -> None:
        self._states: OrderedDict[str, State] = OrderedDict()
        self._shared: OrderedDict[str, str] = OrderedDict()
        self._begun: WeakValueDictionary[str, object] = WeakValueDictionary()
        self._bytes = 0

    def begin(self, name: str, write: object) -> State | None:
        """Begin a write: return the remembered state of a name, and forget it."""
        self._begun[name] = write
        state = self._states.get(name)
        self.forget(name)
        return state

    def keep(self, name: str, state: State, write: object) -> None:
        """Remember the state after a write, unless its data is over a quarter of the limit.

        If another write began before this one ended, nothing is remembered: either of the writes, or a third one, may
        have made the current state.
        """
        self.forget(name)
        if self._begun.get(name) is not write:
            return
        self._shared.pop(name, None)
        if len(state.data) <= MOST_BYTES // 4:
            self._states[name] = state
            self._bytes += _cost(name, state)
        while self._bytes > MOST_BYTES and self._states:
            self.forget(next(iter(self._states)))

    def is_shared(self, name: str, found: State | None) -> bool:
        """Whether other processes wrote a shared file after this process; ``found`` is the state that was just read."""
        left = self._shared.get(name)
        return left is not None and (found is None or found.etag != left)

    def share(self, name: str, etag: str) -> None:
        """Mark a file as shared; ``etag`` is the ETag of this process's last write."""
        self.forget(name)
        self._shared[name] = etag
        self._shared.move_to_end(name)
        if len(self._shared) > _MOST_SHARED:
            self._shared.popitem(last=False)

    def forget_all(self, name: str, top: str) -> None:
        """Forget a name and all names that begin with ``top``; `keep` ignores the unfinished writes there."""
        for known in [*self._states, *self._begun]:
            if known == name or known.startswith(top):
                self.forget(known)
                self._begun.pop(known, None)

    def forget(self, name: str) -> None:
        """Forget the state of a name, because it is outdated."""
        if (state := self._states.pop(name, None)) is not None:
            self._bytes -= _cost(name, state)


def _cost(name: str, state: State) -> int:
    log = state.log
    lists = _COST_OF_RECORD * len(log.records) + _COST_OF_FORMER_NAME * len(log.former_names)
    return _COST + len(name) + len(state.data) + len(log.origin) + lists
