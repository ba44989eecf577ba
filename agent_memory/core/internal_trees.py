"""The trees of this package's own data, errors about its files, and `Sweep`, which deletes expired ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from agent_memory.backend.helpers import STORE_RECORD
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileAlreadyExistsError,
    FileOperationError,
    WriteError,
)
from agent_memory.key import InternalPath, Key
from agent_memory.runtime.run import Run

_NO_AGENT: Final = "-"
_SWEEP_SECONDS: Final = 3600.0
_SWEPT_PER_CALL: Final = 2
_MOST_AGENTS: Final = 65_536
"""The maximum number of agents that a sweep remembers; the oldest listing is dropped first."""
_SUBJECTS: Final[Mapping[str, str]] = {
    "limits": "the count of what the agent has",
    "no-conversation": "the marks of directories without a conversation",
    "receipts": "the receipts of idempotency keys",
    "versions": "the records of earlier versions",
    STORE_RECORD.path: "the record of the store",
}


def internal_tree(name: str, agent: str | None) -> Key:
    """A tree with data of one agent, or of a tree without agents.

    It is a separate tree, so that no backend reads the names above it: an agent's credentials may not permit that.
    """
    directory = Key.internal(f"{name}/{_NO_AGENT if agent is None else agent}")
    return directory.relative_to(directory)


def about_file(
    error: AgentMemoryError, path: str, what: str = "", kind: type[FileOperationError] = WriteError
) -> AgentMemoryError:
    """Return an error about a file of the package's own as one about the caller's file; any other one unchanged.

    Args:
        error: the error.
        path: the caller's file.
        what: begins the message; "" for the kind of the internal file.
        kind: the class of the new error, where the class of the given one would tell about the caller's file.
    """
    internal = error.path
    if not isinstance(internal, InternalPath):
        return error
    what = what or _SUBJECTS.get(internal.kind, "an internal file of the store")
    if isinstance(error, AgentMemoryFileNotFoundError | ConflictError | FileAlreadyExistsError):
        changed = kind(f"{what}: {error.args[0]}", path=path)
        changed.__cause__ = error
        return changed
    return error.with_subject(path, what)


@contextmanager
def about_callers_file(path: str, what: str) -> Iterator[None]:
    """Make each error about a file of the package's own one about a file; see `about_file`."""
    try:
        yield
    except AgentMemoryError as error:
        changed = about_file(error, path, what)
        if changed is error:
            raise
        raise changed from error


class _Expired(NamedTuple):
    """The expired files of an agent in its last listing, without the deleted ones."""

    listed_at: float
    keys: list[Key]


class Sweep:
    """Deletes expired files of this package's own data: at most two in each call.

    They are found by a listing of the agent's files, at most once an hour.
    """

    def __init__(self) -> None:
        self._found: OrderedDict[str | None, _Expired] = OrderedDict()

    async def delete_a_few(
        self,
        run: Run,
        agent: str | None,
        listed: Callable[[], Awaitable[list[Key]]],
        delete: Callable[[Key], Awaitable[None]],
    ) -> None:
        """Delete a few expired files; errors are ignored, because a later call tries again."""
        now = run.now()
        with suppress(AgentMemoryError):
            found = self._found.get(agent)
            if found is None or (not found.keys and now >= found.listed_at + _SWEEP_SECONDS):
                self._found.pop(agent, None)  # it becomes the youngest
                self._found[agent] = found = _Expired(now, [])
                if len(self._found) > _MOST_AGENTS:
                    self._found.popitem(last=False)
                found.keys.extend(await listed())
            for _ in range(_SWEPT_PER_CALL):
                if found.keys:  # other calls take from it, too
                    await delete(found.keys.pop())
