"""The states of an object that writes are conditional on, and the errors if it is in another one."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple, TypeAlias

from agent_memory.backend import ABSENT, When, WriteWhen
from agent_memory.backend.helpers import taken_name
from agent_memory.errors import AgentMemoryError, ConflictError, OutcomeUnknownError
from agent_memory.key import Key
from agent_memory.object_store.write_log import TrackedETag, WriteLog


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
