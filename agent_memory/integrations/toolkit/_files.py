"""Calls on many files: the work on one file that fails does not stop the call."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from agent_memory.core.one_file import attempt_each as attempt_all
from agent_memory.core.one_file import raise_failed
from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError
from agent_memory.memory import AsyncAgentMemory
from agent_memory.tools._each_file import LeftOut, each_file

_log = logging.getLogger("agent_memory")
Item = TypeVar("Item")
T = TypeVar("T")


async def map_each(
    memory: AsyncAgentMemory, function: Callable[[Item], Coroutine[Any, Any, T]], items: Iterable[Item]
) -> list[T]:
    """Return the result of a coroutine function for each item; an async memory runs some at a time.

    Raises:
        AgentMemoryError: a call failed.
    """
    return list(await memory._map(function, items))


async def attempt_each(
    memory: AsyncAgentMemory,
    function: Callable[[str], Awaitable[T]],
    paths: Iterable[str],
    failed: dict[str, AgentMemoryError],
) -> dict[str, T]:
    """Call a function for each path, also after one failed alone; return the results by path.

    Args:
        memory: the memory of the files.
        function: the work on one file.
        paths: the files, each once.
        failed: gets the errors by path; pass it to `raise_failed`.

    Raises:
        FileOperationError: the storage itself fails.
    """
    return await attempt_all(memory._map, function, paths, failed)


async def found_each(
    memory: AsyncAgentMemory,
    function: Callable[[Item], Awaitable[T]],
    items: Iterable[Item],
    path_of: Callable[[Item], str] = str,
) -> list[tuple[Item, T]]:
    """Call a function for each file, without files that are gone or, with a warning, that cannot be read."""
    left_out: list[LeftOut] = []
    found = await each_file(memory, function, items, left_out, path_of)
    warn_left_out(left_out)
    return found


async def remove(memory: AsyncAgentMemory, path: str) -> None:
    """Delete a file; a missing file is no error."""
    with suppress(AgentMemoryFileNotFoundError):
        await memory.delete(path)


async def read_each(memory: AsyncAgentMemory, paths: Iterable[str]) -> dict[str, bytes]:
    """Return the bytes of files by path, without files that are gone or, with a warning, that cannot be read."""
    return dict(await found_each(memory, memory.read_bytes, paths))


async def done_each(
    memory: AsyncAgentMemory, function: Callable[[str], Awaitable[object]], paths: Iterable[str]
) -> None:
    """Call a function for each path, also after one failed; errors as `raise_failed`."""
    failed: dict[str, AgentMemoryError] = {}
    names = list(dict.fromkeys(paths))
    await attempt_each(memory, function, names, failed)
    raise_failed(failed, names)


def warn_left_out(left_out: Sequence[LeftOut]) -> None:
    """Log the number of the files that a call left out, and one of them."""
    if left_out:
        path, reason = min(left_out)
        _log.warning("%d files could not be read and are left out; one is %s: %s", len(left_out), path, reason)
