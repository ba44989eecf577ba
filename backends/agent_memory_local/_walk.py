"""Walks by descriptors: each component of a path is opened below the previous one, and no link is followed.

A path that is resolved first and opened later can be exchanged in between; a descriptor cannot. So this module never
joins host paths: it opens a key's segments one by one with ``O_NOFOLLOW``, from the root on.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress

from agent_memory.backend._host_files import raise_with_reason
from agent_memory.backend.helpers import not_found, taken_name
from agent_memory.errors import (
    AgentMemoryError,
    FileAlreadyExistsError,
    PathTraversalError,
)
from agent_memory.key import RESERVED, RULES, Key
from agent_memory_local._descriptor import Descriptor
from agent_memory_local._files import NewModes, set_bits
from agent_memory_local._locks import Failed, StalePath, close
from agent_memory_local._root import Root
from agent_memory_local._spelling import Spelling, on_disk
from agent_memory_local._staged import make_ignore_file
from agent_memory_local._system_calls import HOW_SIZE, OpenBelow, find_openat2, open_how

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
OPEN_DIRECTORY = open_how(_DIRECTORY)
OPEN_FILE = open_how(os.O_RDONLY | _FILE)
OPEN_FILE_TO_CHANGE = open_how(os.O_RDWR | os.O_APPEND | _FILE)
DIRECTORY_MODE = 0o700
_NOT_REGULAR = "not a regular file"
_ABOVE_ROOT = ".."
"""The path under which `Spelling` remembers the directories above the root; no key has this segment."""


def segments_of(path: str) -> list[str]:
    """The segments of a path; an empty list for an empty path."""
    return path.split("/") if path else []


class Walker:
    """Opens directories and files below one root, and keeps a descriptor of the root.

    The path of the root may contain symbolic links of the operator; they are resolved once, in the constructor. With
    ``within``, only the path of that directory may contain them. If the root is moved, it stays the same directory. If
    it is lost, it is opened again by its path, if the same store is there; see `Root`.

    A name leads only to a file or directory of exactly that name, also on a volume that ignores case; see `_spelling`.
    """

    def __init__(self, root: str, within: str | None = None, new_modes: NewModes | None = None) -> None:
        self.new_modes = new_modes or NewModes()
        self._base = os.path.realpath(root if within is None else within)
        self._names = [] if within is None else _names_between(within, root)
        self._root = Root(os.path.join(self._base, *self._names))
        self._has_ignore_file = False
        self._below: OpenBelow | None = None
        self.spelling = Spelling()

    def close(self) -> None:
        """Drop the root's descriptor; operations under way continue, and later ones open the root again."""
        self._root.close()

    def confirm_root(self, key: Key) -> bool:
        """Check before a change that the root is still where it was opened; see `Root.confirm`."""
        is_another = self._root.confirm(lambda: self._root_of(key))
        if is_another:
            self._look_below()
        return is_another

    def identity(self, path: str) -> tuple[int, int] | None:
        """The device and inode of the directory at a path below the root, or None; only for comparisons."""
        root = self._root.now
        if root is None:
            return None
        try:
            found = os.stat(on_disk(path), dir_fd=root.number) if path else os.fstat(root.number)
        except OSError:
            return None
        return (found.st_dev, found.st_ino) if found.st_nlink else None

    def open(self, path: str, how: bytes) -> int:
        """Open a path below the root in one system call; a negative number if that fails or is not supported."""
        root, below = self._root.now, self._below
        if root is None or below is None or not self.spelling.is_known_exact(_above(path)) or not root.is_open():
            return -1
        return below(root.number, path.encode(), how, HOW_SIZE)

    def directory(self, segments: Sequence[str], key: Key) -> int:
        """A descriptor of an existing directory; the caller closes it.

        Raises:
            AgentMemoryFileNotFoundError: it does not exist, or the name is a file.
            PathTraversalError: a component is a symbolic link.
        """
        try:
            root = self._opened_root(key)
        except FileNotFoundError:
            raise not_found(key) from None
        return self.directory_below(root.number, "", segments, key)

    def found_or_made(self, segments: Sequence[str], key: Key, make: bool, sync: bool) -> int:
        """As `made_directory` with ``make``, else as `directory`."""
        return self.made_directory(segments, key, sync) if make else self.directory(segments, key)

    def directory_below(self, directory: int, path: str, segments: Sequence[str], key: Key) -> int:
        """As `directory`, below an open directory with this path below the root."""
        found = self._shortcut(directory, path, segments)
        return found if found >= 0 else self._stepped(directory, path, segments, key)

    def made_directory(self, segments: Sequence[str], key: Key, sync: bool) -> int:
        """As `directory`, but create missing directories; with ``sync``, each new name is synced to disk.

        Raises:
            FileAlreadyExistsError: a component is a file.
            PathTraversalError: a component is a symbolic link.
            StalePath: a directory was removed meanwhile.
        """
        try:
            root = self._opened_root(key)
        except FileNotFoundError:
            root = self._made_root(key, sync)
        if segments[:1] == [RESERVED] and not self._has_ignore_file:
            self._make_ignore_file(root, key, sync)
        return self.made_below(root.number, "", segments, key, sync)

    def made_below(self, directory: int, path: str, segments: Sequence[str], key: Key, sync: bool) -> int:
        """As `made_directory`, below an open directory with this path below the root."""
        found = self._shortcut(directory, path, segments)
        return found if found >= 0 else self._made_stepped(directory, path, segments, key, sync)

    def _shortcut(self, directory: int, path: str, segments: Sequence[str]) -> int:
        if self._below is None or not segments:
            return -1
        if not self.spelling.is_known_exact("/".join([path, *segments[:-1]] if path else segments[:-1])):
            return -1
        return self._below(directory, "/".join(segments).encode(), OPEN_DIRECTORY, HOW_SIZE)

    def _opened_root(self, key: Key) -> Descriptor:
        root = self._root.now
        if root is None or not root.is_open():
            root = self._root.opened(lambda: self._root_of(key))
            self._look_below()
        return root

    def _made_root(self, key: Key, sync: bool) -> Descriptor:
        _make_base(self._base, sync, self.new_modes.directory)
        try:
            root = self._root.opened(
                lambda: self._walked(key, lambda base: self._made_stepped(base, _ABOVE_ROOT, self._names, key, sync))
            )
        except FileNotFoundError:
            raise StalePath from None
        self._look_below()
        return root

    def _root_of(self, key: Key) -> Descriptor:
        return self._walked(key, lambda base: self._stepped(base, _ABOVE_ROOT, self._names, key))

    def _look_below(self) -> None:
        """Find out whether the open root is walked by ``openat2``; forget the facts about another root."""
        root = self._root.now
        self._below = None if root is None else find_openat2(root.number)
        self.spelling.forget()
        self._has_ignore_file = False

    def _make_ignore_file(self, root: Descriptor, key: Key, sync: bool) -> None:
        """Let git ignore this package's own data before its first file is written; no file is replaced."""
        directory = Descriptor(self.made_below(root.number, "", [RESERVED], key, sync))
        make_ignore_file(directory, sync, self.new_modes.file)
        self._has_ignore_file = True

    def _walked(self, key: Key, walk: Callable[[int], int]) -> Descriptor:
        try:
            base = Descriptor(os.open(self._base, _DIRECTORY))
        except NotADirectoryError:
            raise NotADirectoryError(errno.ENOTDIR, "the root is not a directory") from None
        if not self._names:
            return base
        try:
            return Descriptor(walk(base.number))
        except PathTraversalError:
            message = f"the path to the memory's directory contains a symbolic link, and {RULES['symlink']}"
            raise PathTraversalError(message, "symlink", refused=ascii(key.path)) from None
        finally:
            base.close()  # a traceback would keep it open

    def file(self, directory: int, key: Key) -> int:
        """Open the key's file in its directory for reading; the caller closes the descriptor and checks its type.

        Raises:
            AgentMemoryFileNotFoundError: the name does not exist.
            PathTraversalError: the name is a symbolic link.
        """
        while True:
            try:
                return self._file(directory, key)
            except StalePath:
                continue  # a file that was replaced was never missing

    def _file(self, directory: int, key: Key) -> int:
        path, name = _above(key.storage), on_disk(key.name)
        try:
            file = os.open(name, os.O_RDONLY | _FILE, dir_fd=directory)
        except (FileNotFoundError, IsADirectoryError):
            raise not_found(key) from None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise symlink(key) from None
            raise
        try:
            self._require_exact(file, directory, path, name, lambda: not_found(key))
        except BaseException:
            close(file)
            raise
        return file

    def file_to_change(self, directory: int, key: Key) -> int | None:
        """Open the key's file for reading and appending; None if it does not exist. The caller closes and checks it.

        Raises:
            FileAlreadyExistsError: the name is a directory, or differs from an existing name only by case.
            PathTraversalError: the name is a symbolic link.
            Failed: the name is a special file that cannot be opened.
        """
        path, name = _above(key.storage), on_disk(key.name)
        try:
            file = os.open(name, os.O_RDWR | os.O_APPEND | _FILE, dir_fd=directory)
        except FileNotFoundError:
            return None
        except IsADirectoryError:
            raise taken_name(key, "directory") from None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise symlink(key) from None
            if error.errno == errno.ENXIO:
                raise Failed(_NOT_REGULAR) from None
            raise_with_reason(error, name, directory)
        try:
            self._require_exact(file, directory, path, name, lambda: taken_name(key, "other_case"))
        except BaseException:
            close(file)
            raise
        return file

    def has_exactly(self, directory: int, key: Key, found: os.stat_result | int) -> bool:
        """Whether the key's name, which was found in its open directory, is spelled so there; see `Spelling.is_exact`.

        Raises:
            FileNotFoundError: the directory has no such name any more.
        """
        return self.spelling.is_exact(directory, _above(key.storage), on_disk(key.name), found)

    def _require_exact(
        self, found: int, directory: int, path: str, name: str, error: Callable[[], AgentMemoryError]
    ) -> None:
        """Raise if the entry that was opened by a name has another spelling; the caller closes the descriptor.

        Raises:
            StalePath: the entry was replaced or deleted after it was opened.
        """
        try:
            if self.spelling.is_exact(directory, path, name, found):
                return
        except FileNotFoundError:
            raise StalePath from None
        raise error()

    def _stepped(self, directory: int, path: str, segments: Sequence[str], key: Key) -> int:
        return _down(directory, path, segments, lambda above, at, segment: self._step(above, at, segment, key))

    def _made_stepped(self, directory: int, path: str, segments: Sequence[str], key: Key, sync: bool) -> int:
        try:
            return _down(
                directory, path, segments, lambda above, at, segment: self._made_step(above, at, segment, key, sync)
            )
        except FileNotFoundError:
            raise StalePath from None

    def _step(self, above: int, path: str, segment: str, key: Key) -> int:
        try:
            found = os.open(segment, _DIRECTORY, dir_fd=above)
        except FileNotFoundError:
            raise not_found(key) from None
        except NotADirectoryError:
            _refuse_symlink(above, segment, key)
            raise not_found(key) from None
        try:
            self._require_exact(found, above, path, segment, lambda: not_found(key))
        except StalePath:
            close(found)
            raise not_found(key) from None  # a directory is never replaced by one step
        except BaseException:
            close(found)
            raise
        return found

    def _made_step(self, above: int, path: str, segment: str, key: Key, sync: bool) -> int:
        made = False
        try:
            try:
                found = os.open(segment, _DIRECTORY, dir_fd=above)
            except FileNotFoundError:
                made = _make(above, segment, sync, self.new_modes.directory)
                self.spelling.forget(f"{path}/{segment}" if path else segment)
                found = os.open(segment, _DIRECTORY, dir_fd=above)
        except NotADirectoryError:
            _refuse_symlink(above, segment, key)
            raise taken_name(key, "file_above") from None
        try:
            self._require_exact(found, above, path, segment, lambda: taken_name(key, "other_case"))
        except BaseException as error:
            close(found)
            if made and isinstance(error, FileAlreadyExistsError):  # the volume stores the name otherwise
                with suppress(OSError):
                    os.rmdir(segment, dir_fd=above)
            raise
        return found


def _above(path: str) -> str:
    """The path of the directory of a path."""
    return path.rpartition("/")[0]


def _down(directory: int, path: str, segments: Sequence[str], step: Callable[[int, str, str], int]) -> int:
    descriptor = os.open(".", _DIRECTORY, dir_fd=directory)  # with its own lock and position; "." is never a link
    for segment in segments:
        above = descriptor
        try:
            descriptor = step(above, path, on_disk(segment))
        finally:
            close(above)
        path = f"{path}/{segment}" if path else segment
    return descriptor


def subdirectory(directory: int, name: str) -> int | None:
    """Open a directory that was found in a listing; None if it is gone or no longer a directory."""
    try:
        return os.open(name, _DIRECTORY, dir_fd=directory)
    except (FileNotFoundError, NotADirectoryError):
        return None


def symlink(key: Key) -> PathTraversalError:
    """The error for a symbolic link on a key's path."""
    return PathTraversalError(RULES["symlink"], "symlink", refused=ascii(key.path), path=key.path)


def require_regular(key: Key, found: os.stat_result) -> None:
    """Raise unless the status is of a regular file: refuse links, directories, pipes, sockets and devices."""
    if stat.S_ISREG(found.st_mode):
        return
    if stat.S_ISLNK(found.st_mode):
        raise symlink(key)
    if stat.S_ISDIR(found.st_mode):
        raise not_found(key)
    raise Failed(_NOT_REGULAR)


def _names_between(above: str, below: str) -> list[str]:
    names = os.path.relpath(os.path.abspath(below), os.path.abspath(above)).split(os.sep)
    if names[0] == os.pardir:
        raise ValueError("the root is not inside the directory that the option 'within' names")
    return [] if names == [os.curdir] else names


def _make_base(path: str, sync: bool, bits: int | None) -> None:
    if os.path.isdir(path):
        return
    _make_base(os.path.dirname(path), sync, bits)
    try:
        os.mkdir(path, DIRECTORY_MODE)
    except FileExistsError:
        return
    if bits is not None:
        _opened_for(lambda made: set_bits(made, bits), path, _DIRECTORY)
    if sync:
        _opened_for(os.fsync, os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _opened_for(action: Callable[[int], None], path: str, flags: int, directory: int | None = None) -> None:
    opened = os.open(path, flags, dir_fd=directory)
    try:
        action(opened)
    finally:
        close(opened)


def _make(directory: int, segment: str, sync: bool, bits: int | None) -> bool:
    """Create a directory; False if it exists."""
    try:
        os.mkdir(segment, DIRECTORY_MODE, dir_fd=directory)
    except FileExistsError:
        return False
    if bits is not None:
        _opened_for(lambda made: set_bits(made, bits), segment, _DIRECTORY, directory)
    if sync:
        os.fsync(directory)
    return True


def _refuse_symlink(directory: int, segment: str, key: Key) -> None:
    try:
        found = os.stat(segment, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISLNK(found.st_mode):
        raise symlink(key)
