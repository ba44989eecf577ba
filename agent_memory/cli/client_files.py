"""Replaces a file of another program in one step, and keeps the old one."""

from __future__ import annotations

import errno
import itertools
import os
import secrets
from contextlib import suppress
from pathlib import Path

from agent_memory.backend._attributes import keep_attributes
from agent_memory.backend._reasons import with_reason
from agent_memory.errors import ConflictError
from agent_memory.plugins._host_files import read_host_file


def replace_file(path: Path, old: bytes | None, new: bytes, *, private: bool) -> Path | None:
    """Replace a file, or the file that a symbolic link leads to, in one step, and keep the old one beside it.

    Args:
        path: the file.
        old: its content when it was read; None if it did not exist.
        new: its new content.
        private: whether a new file is readable only by its owner; an old file keeps its owner and its permissions.

    Returns:
        The copy of the old file; None if there was none.

    Raises:
        ConflictError: the file has other content now; nothing was written.
        OSError: the file cannot be replaced; nothing was written.
    """
    real = path.resolve()
    real.parent.mkdir(parents=True, exist_ok=True)
    state = real.stat() if old is not None and real.exists() else None
    if state and not state.st_mode & 0o222:
        raise PermissionError(errno.EACCES, "it is read-only", str(path))
    temporary = real.with_name(f".{real.name}.{secrets.token_hex(8)}.tmp")
    try:
        like = real if state else None
        _write_new(temporary, new, like, 0o600 if private else 0o666)
        backup = None if old is None else _backed_up(real, old, like)
        if content(real) != old:
            if backup:
                backup.unlink()
            raise ConflictError(f"{str(path)!r} was changed by another program at this moment; nothing was written")
        with with_reason(str(real)):
            temporary.replace(real)
    finally:
        temporary.unlink(missing_ok=True)
    return backup


def content(path: Path) -> bytes | None:
    """The content of a file; None if it does not exist.

    Raises:
        OSError: it is not a regular file, or is too large for a configuration.
    """
    try:
        return read_host_file(path)
    except FileNotFoundError:
        return None


def _write_new(path: Path, data: bytes, like: Path | None, mode: int = 0o600) -> None:
    """Write a file that does not exist, with the owner and the permissions of another."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode if like is None else 0o600)
    with os.fdopen(descriptor, "wb") as file:
        if like is not None:
            with like.open("rb") as old:
                keep_attributes(old.fileno(), descriptor)
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def _backed_up(path: Path, data: bytes, like: Path | None) -> Path:
    for number in itertools.count(1):
        backup = path.with_name(f"{path.name}.agent-memory-backup{'' if number == 1 else number}")
        with suppress(FileExistsError):
            _write_new(backup, data, like)
            return backup
    raise AssertionError
