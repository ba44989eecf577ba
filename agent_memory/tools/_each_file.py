"""Calls on many files: what one file cannot do does not stop the call; the file is left out and named."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple, TypeVar

from agent_memory.core.one_file import fails_alone
from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError
from agent_memory.memory import AsyncAgentMemory

Item = TypeVar("Item")
T = TypeVar("T")


class LeftOut(NamedTuple):
    """A file that a call on many files left out, and the reason."""

    path: str
    reason: str


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
