"""Calls on many files: an error that is about one file does not stop the call on the others."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from agent_memory.errors import AgentMemoryError, FileOperationError, OutcomeUnknownError, PartialOperationError

T = TypeVar("T")
_NAMED: Final = 5
_OF_A_FILE: Final = frozenset(
    {errno.EINVAL, errno.EIO, errno.ELOOP, errno.ENAMETOOLONG, errno.ENODEV, errno.ENXIO, errno.EOPNOTSUPP}
)
_KINDS: Final = (PermissionError, FileNotFoundError, IsADirectoryError, NotADirectoryError)


def fails_alone(error: Exception) -> bool:
    """Whether an error is about one file, so that the call can continue; else the storage itself fails."""
    if isinstance(error, FileOperationError):
        cause = error.__cause__
        return not isinstance(error, OutcomeUnknownError) and (cause is None or _is_of_a_file(cause))
    return isinstance(error, AgentMemoryError) or _is_of_a_file(error)


def _is_of_a_file(error: BaseException) -> bool:
    return isinstance(error, _KINDS) or (isinstance(error, OSError) and error.errno in _OF_A_FILE)


async def attempt_each(
    run_all: Callable[[Callable[[str], Coroutine[Any, Any, list[T]]], Iterable[str]], Awaitable[Sequence[list[T]]]],
    function: Callable[[str], Awaitable[T]],
    paths: Iterable[str],
    failed: dict[str, AgentMemoryError],
) -> dict[str, T]:
    """Call a function for each path, also after one failed alone; return the results by path.

    Args:
        run_all: runs a coroutine function for each path.
        function: the work on one file.
        paths: the files, each once.
        failed: gets the errors; the caller calls `raise_failed`.

    Raises:
        FileOperationError: the storage itself fails.
    """

    async def attempt(path: str) -> list[T]:
        try:
            return [await function(path)]
        except AgentMemoryError as error:
            if not fails_alone(error):
                raise
            failed[path] = error
            return []

    each = list(paths)
    return {path: result for path, found in zip(each, await run_all(attempt, each), strict=True) for result in found}


def raise_failed(failed: Mapping[str, AgentMemoryError], paths: Iterable[str]) -> None:
    """Raise if any of some files failed; all others are done.

    Raises:
        AgentMemoryError: the only error.
        PartialOperationError: several files failed: their names are in ``left``, and those of the others in ``done``.
    """
    each = list(dict.fromkeys(paths))
    left = tuple(path for path in each if path in failed)
    if not left:
        return
    first = failed[left[0]]
    if len(left) == 1:
        raise first
    names = ", ".join(map(ascii, left[:_NAMED])) + (", …" if len(left) > _NAMED else "")
    message = f"{len(left)} of {len(each)} files failed: {names}; the first error: {first}"
    raise PartialOperationError(message, tuple(path for path in each if path not in failed), left) from first
