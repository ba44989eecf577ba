"""Files that are staged without their final name, and renamed in one step.

A writer holds the lock of its staged file until the file is complete. So a sweep removes only files of dead writers.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from agent_memory.backend import ETag, Key
from agent_memory.backend._host_files import keep_attributes
from agent_memory.backend.helpers import Uncopied, translating
from agent_memory.errors import WriteError
from agent_memory_local._descriptor import Descriptor, LockedDescriptor
from agent_memory_local._files import set_bits, set_origin, sync_file, temporary_name, write_all
from agent_memory_local._locks import Busy, StalePath, lock_new_file, unlock_file

FILE_MODE = 0o600
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_TMPFILE = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL, errno.EPERM, errno.ENOSYS}
_OWN_FILES = "/proc/self/fd"
"""The directory through which an unnamed file gets a name; some containers do not have it."""
_IGNORE_FILE: Final = ".gitignore"
_IGNORE_ALL: Final = b"*\n"
_NOT_PERMITTED = {errno.EACCES, errno.EPERM, errno.EROFS}


class StagedFile(Uncopied):
    """A new file of ``size`` bytes in a directory, without its final name.

    The origin of its state is stored with it; see `agent_memory.backend.Backend.keeps_origins`.
    It has no name if it is ``nameless`` and the system supports that; else it has a temporary name, which `close`
    removes.
    """

    def __init__(self, directory: Descriptor, size: int, origin: str | None = None, *, nameless: bool) -> None:
        self.size: Final = size
        self._directory = directory
        self._temporary: str | None = None
        try:
            file = (_nameless(directory.number) if nameless else None) or self._named()
            self._file = LockedDescriptor(file)
            lock_new_file(file, size)
            if origin is not None:
                set_origin(file, origin)
        except BaseException as error:
            self.close()
            if isinstance(error, Busy):
                raise StalePath from None  # a sweep found the file before it was locked
            raise

    @property
    def state(self) -> os.stat_result:
        """The present status of the file."""
        return os.fstat(self._file.number)

    def write(self, data: bytes) -> None:
        """Write the next bytes."""
        write_all(self._file.number, data)

    def sync(self) -> None:
        """Sync the content to disk."""
        sync_file(self._file.number)

    def create(self, name: str, directory: int, bits: int | None) -> None:
        """Give the file a free name, or raise `FileExistsError`; ``bits``: permissions other than the default."""
        if bits is not None:
            set_bits(self._file.number, bits)
        self._link(name, directory)

    def _link(self, name: str, directory: int) -> None:
        if self._temporary is None:
            os.link(f"{_OWN_FILES}/{self._file.number}", name, dst_dir_fd=directory, follow_symlinks=True)
        else:
            here = self._directory.number
            os.link(self._temporary, name, src_dir_fd=here, dst_dir_fd=directory, follow_symlinks=False)
            self._remove_temporary()

    def replace(self, name: str, directory: int, old: int) -> None:
        """Give the file its name and the attributes of the open file ``old``, which has the name now."""
        keep_attributes(old, self._file.number)
        if self._temporary is None:
            self._replace_nameless(name, directory)
        else:
            os.replace(self._temporary, name, src_dir_fd=self._directory.number, dst_dir_fd=directory)
            self._temporary = None

    def _replace_nameless(self, name: str, directory: int) -> None:
        temporary = temporary_name()  # `link` cannot replace a file, so link first and then rename
        self._link(temporary, directory)
        try:
            os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise

    def close(self) -> None:
        """Remove the temporary name, if the file still has one, and release the lock of the file."""
        try:
            if self._temporary is not None:
                self._remove_temporary()
        finally:
            if hasattr(self, "_file"):
                unlock_file(self._file.number)
                del self._file

    def _remove_temporary(self) -> None:
        assert self._temporary  # noqa: S101
        with suppress(OSError):  # already removed, or a sweep will remove it
            os.unlink(self._temporary, dir_fd=self._directory.number)
        self._temporary = None

    def _named(self) -> int:
        self._temporary = temporary_name()
        return os.open(self._temporary, _NEW, FILE_MODE, dir_fd=self._directory.number)


def _nameless(directory: int) -> int | None:
    if not hasattr(os, "O_TMPFILE") or not os.path.exists(_OWN_FILES):
        return None
    try:
        return os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, FILE_MODE, dir_fd=directory)
    except OSError as error:
        if error.errno not in _NO_TMPFILE:
            raise
        return None


def make_ignore_file(directory: Descriptor, sync: bool, bits: int | None) -> None:
    """Let git ignore all files in a directory; an existing ``.gitignore`` stays as it is."""
    if os.access(_IGNORE_FILE, os.F_OK, dir_fd=directory.number):
        return
    try:
        _create_ignore_file(directory, sync, bits)
    except OSError as error:
        if error.errno not in _NOT_PERMITTED:  # else the write of the caller's file raises the error, if it fails too
            raise


def _create_ignore_file(directory: Descriptor, sync: bool, bits: int | None) -> None:
    new = StagedFile(directory, len(_IGNORE_ALL), nameless=True)
    try:
        new.write(_IGNORE_ALL)
        if sync:
            new.sync()
        with suppress(FileExistsError):  # another process created it first
            new.create(_IGNORE_FILE, directory.number, bits)
        if sync:
            sync_file(directory.number)
    finally:
        new.close()


@dataclass(eq=False)
class LocalParts:
    """A file that is written in parts; see `agent_memory.backend.Parts`.

    A killed process leaves no file behind if the system supports unnamed files.

    Attributes:
        key: the key of the file.
        new: the staged file; None after the end.
        part_bytes: the number of bytes of a part.
        give_name: gives the file its name; called with the SHA-256 of the content in hexadecimal.
        tidy: removes the directories that were created for the file.
    """

    key: Key
    new: StagedFile | None
    part_bytes: int
    give_name: Callable[[StagedFile, str], ETag]
    tidy: Callable[[], None]
    _digest: Any = field(default_factory=hashlib.sha256, init=False)

    def add(self, data: bytes) -> None:
        with translating(self.key, WriteError, OSError):
            self._open.write(data)
        self._digest.update(data)

    def add_copy(self, source: Key, start: int, end: int, etag: ETag) -> bool:  # noqa: ARG002
        return False

    def complete(self) -> ETag:
        etag = self.give_name(self._open, self._digest.hexdigest())
        self._close()
        return etag

    def abort(self) -> None:
        if self.new is not None:
            self._close()
            self.tidy()

    @property
    def _open(self) -> StagedFile:
        if self.new is None:
            raise WriteError("the write in parts is already completed or aborted", path=self.key.path)
        return self.new

    def _close(self) -> None:
        if self.new is not None:
            self.new.close()
            self.new = None
