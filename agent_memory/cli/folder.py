"""A folder of the host, accessed through descriptors: nothing outside the folder is read or written.

Every component is opened relative to its parent's descriptor with ``O_NOFOLLOW``, so a symbolic link below the folder
is never followed, even if it appears meanwhile. The folder itself may be reached through symbolic links, because they
belong to its owner.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self, TypeAlias

from agent_memory.backend._host_files import keep_attributes, with_reason
from agent_memory.backend.helpers import Uncopied
from agent_memory.errors import (
    AgentMemoryError,
    FileAlreadyExistsError,
    FileOperationError,
    InvalidPathError,
    UnsupportedOperationError,
)
from agent_memory.key import MAX_SEGMENTS, RESERVED, RULES, TEMPORARY_SUFFIX

Blocks: TypeAlias = Callable[[], Iterable[bytes]]
BLOCK = 4 << 20
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


@dataclass
class FolderContents:
    """The contents of a folder, as relative paths.

    Attributes:
        files: the regular files, sorted.
        others: symbolic links, which are not followed, pipes, sockets and devices, and directories that are deeper than
            a path may be or cannot be opened; each with the error.
        empty: the number of empty directories.
        own: whether the folder contains a store's own directory, which is left out.
        enters: which directories are listed.
    """

    files: list[str] = field(default_factory=list)
    others: dict[str, AgentMemoryError] = field(default_factory=dict)
    empty: int = 0
    own: bool = False
    enters: Callable[[str], bool] = lambda _: True

    def where(self, takes: Callable[[str], bool]) -> FolderContents:
        """A copy with only the paths that ``takes`` accepts."""
        return replace(
            self,
            files=[path for path in self.files if takes(path)],
            others={path: error for path, error in self.others.items() if takes(path)},
        )


class Folder(Uncopied):
    """An open folder; its methods may be called from any thread.

    Args:
        path: the folder.
        make: whether to create the folder, and the directories above it, if it is missing.

    Raises:
        UnsupportedOperationError: the system has no directory descriptors.
        OSError: the folder cannot be opened.
    """

    def __init__(self, path: str, *, make: bool = False) -> None:
        if os.open not in os.supports_dir_fd or os.scandir not in os.supports_fd:
            raise UnsupportedOperationError("import and export need directory descriptors, which this system lacks")
        if make:
            Path(path).mkdir(parents=True, exist_ok=True)
        self._top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def find(self, enters: Callable[[str], bool] = lambda _: True) -> FolderContents:
        """List the folder with everything below it, but of the directories only those that ``enters`` accepts."""
        found = FolderContents(enters=enters)
        self._find(os.dup(self._top), "", 1, found)
        found.files.sort()
        return found

    @contextmanager
    def reading(self, path: str) -> Iterator[tuple[int, Blocks]]:
        """Open a regular file: its size and its content as `put` takes it, without bytes that are appended later.

        Raises:
            InvalidPathError: the file, or a directory above it, has become a link or something special.
        """
        with self._parent(path, make=False) as directory:
            with _no_link(path):
                descriptor = _open_to_read(directory, _name(path))
            try:
                size = _regular(path, os.fstat(descriptor)).st_size
                yield size, lambda: _blocks(descriptor, size)
            finally:
                os.close(descriptor)

    def sha256(self, path: str) -> str:
        """The SHA-256 of a regular file, in hexadecimal digits; raises as `reading` does."""
        with self._parent(path, make=False) as directory, _no_link(path):
            descriptor = _open_to_read(directory, _name(path))
        with os.fdopen(descriptor, "rb") as file:
            _regular(path, os.fstat(descriptor))
            return hashlib.file_digest(file, "sha256").hexdigest()

    def put(self, path: str, size: int, blocks: Blocks, *, overwrite: bool) -> bool:
        """Write a file of ``size`` bytes, whole or not at all; False if it exists with the same content.

        ``blocks`` is called once to compare and once to write; each call gives the content from the beginning.

        Raises:
            FileAlreadyExistsError: a file with other content exists and ``overwrite`` is not set; or the path exists
                and is not a regular file.
            InvalidPathError: a part of the path is a symbolic link.
        """
        with self._parent(path, make=True) as directory, _no_link(path):
            same = _same(directory, path, size, blocks)
            if same:
                return False
            if same is not None and not overwrite:
                raise _differs(path)
            _place(directory, path, blocks, overwrite, exists=same is not None)
            return True

    def folds_case(self) -> bool:
        """Whether the folder ignores case in names, found out by a temporary file."""
        name = f".{secrets.token_hex(8)}x{TEMPORARY_SUFFIX}"
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self._top))
        try:
            os.stat(name.upper(), dir_fd=self._top, follow_symlinks=False)
        except FileNotFoundError:
            return False
        finally:
            os.unlink(name, dir_fd=self._top)
        return True

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._top)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _find(self, directory: int, above: str, depth: int, found: FolderContents) -> None:
        """Add the entries of a directory to ``found``, and close its descriptor."""
        try:
            with os.scandir(directory) as entries:
                listed = list(entries)
            for entry in listed:
                self._add(directory, entry, above, depth, found)
        finally:
            os.close(directory)
        found.empty += bool(above and not listed)

    def _add(self, directory: int, entry: os.DirEntry[str], above: str, depth: int, found: FolderContents) -> None:
        path = above + entry.name
        if entry.is_symlink():
            found.others[path] = _link_refused(path)
        elif entry.is_file(follow_symlinks=False):
            found.files.append(path)
        elif not entry.is_dir(follow_symlinks=False):
            found.others[path] = FileOperationError("not a regular file", path=path)
        elif path.lower() == RESERVED:
            found.own = True
        elif not found.enters(path):
            return
        elif depth >= MAX_SEGMENTS:
            found.others[path] = InvalidPathError(RULES["too-deep"], "too-deep", path=path)
        else:
            self._enter(directory, entry.name, path, depth, found)

    def _enter(self, directory: int, name: str, path: str, depth: int, found: FolderContents) -> None:
        try:
            below = _open_directory(directory, name)
        except OSError as error:
            found.others[path] = FileOperationError(error.strerror or type(error).__name__, path=path)
            return
        self._find(below, path + "/", depth + 1, found)

    @contextmanager
    def _parent(self, path: str, *, make: bool) -> Iterator[int]:
        descriptor = os.dup(self._top)
        try:
            for segment in path.split("/")[:-1]:
                above, descriptor = descriptor, _entered(descriptor, segment, path, make)
                os.close(above)
            yield descriptor
        finally:
            os.close(descriptor)


def _entered(directory: int, segment: str, path: str, make: bool) -> int:
    if make:
        with suppress(FileExistsError):
            os.mkdir(segment, dir_fd=directory)
    try:
        return _open_directory(directory, segment)
    except NotADirectoryError:
        if stat.S_ISLNK(os.lstat(segment, dir_fd=directory).st_mode):
            raise _link_refused(path) from None
        raise FileAlreadyExistsError("a part of this path is a file, not a directory", path=path) from None


def _open_directory(directory: int, name: str) -> int:
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)


def _open_to_read(directory: int, name: str) -> int:
    return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


@contextmanager
def _no_link(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _link_refused(path) from None
        raise


def _link_refused(path: str) -> InvalidPathError:
    """The error for a symbolic link."""
    return InvalidPathError(RULES["symlink"], "symlink", path=path)


def _regular(path: str, found: os.stat_result) -> os.stat_result:
    if not stat.S_ISREG(found.st_mode):
        raise _in_the_way(path)
    return found


def _in_the_way(path: str) -> FileAlreadyExistsError:
    return FileAlreadyExistsError("in the folder, this name is not a regular file", path=path)


def _differs(path: str) -> FileAlreadyExistsError:
    return FileAlreadyExistsError("a file with other content exists", path=path)


def _same(directory: int, path: str, size: int, blocks: Blocks) -> bool | None:
    """Whether the existing file has this content; None if there is no file."""
    try:
        descriptor = _open_to_read(directory, _name(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a device without a driver
            raise _in_the_way(path) from None
        raise
    try:
        if _regular(path, os.fstat(descriptor)).st_size != size:
            return False
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return all(file.read(len(block)) == block for block in blocks())
    finally:
        os.close(descriptor)


def _blocks(descriptor: int, size: int) -> Iterator[bytes]:
    at = 0
    while block := os.pread(descriptor, min(BLOCK, size - at), at):
        yield block
        at += len(block)


def _place(directory: int, path: str, blocks: Blocks, overwrite: bool, *, exists: bool) -> None:
    temporary = f".{secrets.token_hex(8)}{TEMPORARY_SUFFIX}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, 0o600 if exists else 0o666, dir_fd=directory), "wb") as file:
            if exists:
                _keep_attributes(directory, path, file.fileno())
            file.writelines(blocks())
        if overwrite or not _linked(directory, temporary, path):
            with with_reason(_name(path), directory):
                os.replace(temporary, _name(path), src_dir_fd=directory, dst_dir_fd=directory)
            return
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
        raise
    os.unlink(temporary, dir_fd=directory)


def _keep_attributes(directory: int, path: str, new: int) -> None:
    """Give a new file the attributes of the existing one, unless that is gone by now."""
    try:
        old = _open_to_read(directory, _name(path))
    except FileNotFoundError:
        return
    try:
        _regular(path, os.fstat(old))
        keep_attributes(old, new)
    finally:
        os.close(old)


def _linked(directory: int, temporary: str, path: str) -> bool:
    """Give the file its name in one step, if the name is free; False if the filesystem has no hard links."""
    try:
        os.link(temporary, _name(path), src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except FileExistsError:
        raise _differs(path) from None
    except OSError as error:
        if error.errno in _NO_LINKS:
            return False
        raise
    return True
