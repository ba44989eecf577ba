"""`Failed`: a failure in words, and its translation to the error of the verb in which it happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agent_memory.backend.helpers import Deadline, TryLater, translating
from agent_memory.errors import FileOperationError
from agent_memory.key import Key


class Failed(Exception):
    """The message says why a file cannot be used; `raised_as` makes it a `ReadError`, `WriteError` or `AppendError`."""


@contextmanager
def raised_as(key: Key, error: type[FileOperationError]) -> Iterator[None]:
    """Raise a `Failed` or an `OSError` of the block as ``error``; also a `Failed` that `TryLater` makes later."""
    with translating(key, error, OSError):
        try:
            yield
        except Failed as failed:
            raise error(str(failed), path=key.path) from None
        except TryLater as later:
            later.give_up = _give_up_as(key, error, later.give_up)
            raise


def _give_up_as(
    key: Key, error: type[FileOperationError], give_up: Callable[[Deadline], Exception]
) -> Callable[[Deadline], FileOperationError]:
    return lambda limit: error(str(give_up(limit)), path=key.path)
