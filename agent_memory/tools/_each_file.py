"""Calls on many files: what one file cannot do does not stop the call; the file is left out and named."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    FileOperationError,
    OutcomeUnknownError,
)
from agent_memory.memory import AsyncAgentMemory

Item = TypeVar("Item")
T = TypeVar("T")
_OF_A_FILE: Final = frozenset(
    {errno.EINVAL, errno.EIO, errno.ELOOP, errno.ENAMETOOLONG, errno.ENODEV, errno.ENXIO, errno.EOPNOTSUPP}
)
_KINDS: Final = (PermissionError, FileNotFoundError, IsADirectoryError, NotADirectoryError)


class LeftOut(NamedTuple):
    """A file that a call on many files left out, and the reason."""

    path: str
    reason: str


def fails_alone(error: Exception) -> bool:
    """Whether an error is about one file, so that the call can continue; else the storage itself fails."""
    if isinstance(error, FileOperationError):
        cause = error.__cause__
        return not isinstance(error, OutcomeUnknownError) and (cause is None or _is_of_a_file(cause))
    return isinstance(error, AgentMemoryError) or _is_of_a_file(error)


def _is_of_a_file(error: BaseException) -> bool:
    return isinstance(error, _KINDS) or (isinstance(error, OSError) and error.errno in _OF_A_FILE)


def reason_of(error: AgentMemoryError) -> str:
    """The text of an error, without the file's path."""
    return str(error.args[0]) if error.args else error.kind


async def each_file(
    memory: AsyncAgentMemory,
    function: Callable[[Item], Awaitable[T]],
    items: Iterable[Item],
    left_out: list[LeftOut],
    path_of: Callable[[Item], str] = str,
) -> list[tuple[Item, T]]:
    """Call a function for each file; a deleted file is passed over, and a file that fails alone is left out.

    Raises:
        FileOperationError: the storage fails.
    """

    async def attempt(item: Item) -> list[tuple[Item, T]]:
        try:
            return [(item, await function(item))]
        except AgentMemoryFileNotFoundError:
            return []
        except AgentMemoryError as error:
            if not fails_alone(error):
                raise
            left_out.append(LeftOut(path_of(item), reason_of(error)))
            return []

    return [each for found in await memory._map(attempt, items) for each in found]
