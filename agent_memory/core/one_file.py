"""Whether an error is about one file, so that a call on many files can leave it out."""

from __future__ import annotations

import errno
from typing import Final

from agent_memory.errors import AgentMemoryError, FileOperationError, OutcomeUnknownError

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
