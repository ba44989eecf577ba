"""Directories by descriptors: every component is opened below the one before it, and no link is followed.

A path that is resolved first and opened later can be exchanged in between; a descriptor cannot. So nothing
here joins host paths: a key's segments are opened one by one with ``O_NOFOLLOW``, starting at the root.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Sequence

from agent_memory.backend import Uncopied, not_found, taken_name
from agent_memory.errors import FileOperationError, PathTraversalError
from agent_memory.key import RULES, Key
from agent_memory_local import _openat2
from agent_memory_local._descriptor import Descriptor
from agent_memory_local._locks import StalePath, close
from agent_memory_local._openat2 import HOW_SIZE, OpenBelow

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
OPEN_DIRECTORY = _openat2.how(_DIRECTORY)
OPEN_FILE = _openat2.how(os.O_RDONLY | _FILE)
OPEN_FILE_TO_CHANGE = _openat2.how(os.O_RDWR | os.O_APPEND | _FILE)
DIRECTORY_MODE = 0o700


UTF8_LOCALE = sys.getfilesystemencoding() == "utf-8"


def on_disk(name: str) -> str:
    """A key's segment as this process has to give it to the system, so that its bytes are UTF-8 in any locale."""
    return name if UTF8_LOCALE else os.fsdecode(name.encode())


def from_disk(name: str) -> str:
    """A name as this process got it from the system, with bytes that are not UTF-8 as lone surrogates."""
    return name if UTF8_LOCALE else os.fsencode(name).decode("utf-8", "surrogateescape")


def segments_of(path: str) -> list[str]:
    """The segments of a path, none of an empty one."""
    return path.split("/") if path else []


class Walker(Uncopied):
    """Opens directories and files below one root, of which it keeps a descriptor.

    The root itself may be reached through symbolic links: they are the operator's, resolved once, here; of a root
    that must lie ``within`` a directory, only that directory may. The root stays the same directory if it is moved;
    if it is deleted, it is opened anew by its path.
    """

    def __init__(self, root: str, within: str | None = None) -> None:
        self._base = os.path.realpath(root if within is None else within)
        self._names = [] if within is None else _names_between(within, root)
        self._root: Descriptor | None = None
        self._below: OpenBelow | None = None
        self.folds_case = _folds_case(self._base)

    def close(self) -> None:
        """Forget the root's descriptor; whoever works below it goes on, whoever comes later opens it anew."""
        self._root = None

    def identity(self, path: str) -> tuple[int, int] | None:
        """The device and inode of the directory a path below the root leads to now, or None; for comparing alone."""
        root = self._root
        if root is None:
            return None
        try:
            found = os.stat(on_disk(path), dir_fd=root.number) if path else os.fstat(root.number)
        except OSError:
            return None
        return (found.st_dev, found.st_ino) if found.st_nlink else None

    def open(self, path: str, how: bytes) -> int:
        """A descriptor of what lies at a path below the root if one system call gives it, else a negative number."""
        root, below = self._root, self._below
        if root is None or below is None or not root.is_open():
            return -1
        return below(root.number, path.encode(), how, HOW_SIZE)

    def directory(self, segments: Sequence[str], key: Key) -> int:
        """A descriptor of an existing directory; the caller closes it.

        Raises:
            AgentMemoryFileNotFoundError: it does not exist, or a file is in its place.
            PathTraversalError: a component is a symbolic link.
        """
        try:
            root = self._opened_root(key)
        except FileNotFoundError:
            raise not_found(key) from None
        return self.directory_below(root.number, segments, key)

    def directory_below(self, directory: int, segments: Sequence[str], key: Key) -> int:
        """The same, below an open directory."""
        found = self._shortcut(directory, segments)
        return found if found >= 0 else self._stepped(directory, segments, key)

    def made_directory(self, segments: Sequence[str], key: Key, sync: bool) -> int:
        """The same as `directory`, making what is missing; each new name is synced to disk if ``sync``.

        Raises:
            FileAlreadyExistsError: a component is a file.
            PathTraversalError: a component is a symbolic link.
            StalePath: a directory was removed meanwhile.
        """
        try:
            root = self._opened_root(key)
        except FileNotFoundError:
            root = self._made_root(key, sync)
        return self.made_below(root.number, segments, key, sync)

    def made_below(self, directory: int, segments: Sequence[str], key: Key, sync: bool) -> int:
        """The same, below an open directory."""
        found = self._shortcut(directory, segments)
        return found if found >= 0 else self._made_stepped(directory, segments, key, sync)

    def _shortcut(self, directory: int, segments: Sequence[str]) -> int:
        if self._below is None or not segments:
            return -1
        return self._below(directory, "/".join(segments).encode(), OPEN_DIRECTORY, HOW_SIZE)

    def _opened_root(self, key: Key) -> Descriptor:
        root = self._root
        if root is None or not root.is_open():
            root = self._kept(self._walked(key, lambda base: self._stepped(base, self._names, key)))
        return root

    def _made_root(self, key: Key, sync: bool) -> Descriptor:
        _make_base(self._base, sync)
        try:
            return self._kept(self._walked(key, lambda base: self._made_stepped(base, self._names, key, sync)))
        except FileNotFoundError:
            raise StalePath from None

    def _kept(self, root: Descriptor) -> Descriptor:
        self._root = root
        self._below = None if self.folds_case else _openat2.find(root.number)
        return root

    def _walked(self, key: Key, walk: Callable[[int], int]) -> Descriptor:
        base = Descriptor(os.open(self._base, _DIRECTORY))
        if not self._names:
            return base
        try:
            return Descriptor(walk(base.number))
        except PathTraversalError:
            message = f"there is a symbolic link on the way to the memory's directory, and {RULES['symlink']}"
            raise PathTraversalError(message, "symlink", refused=ascii(key.path)) from None

    def file(self, directory: int, key: Key) -> int:
        """A descriptor of the key's file in its directory, for reading; the caller closes it and checks its type.

        Raises:
            AgentMemoryFileNotFoundError: no such name.
            PathTraversalError: the name is a symbolic link.
        """
        self.refuse_other_case(directory, on_disk(key.name), key)
        try:
            return os.open(on_disk(key.name), os.O_RDONLY | _FILE, dir_fd=directory)
        except FileNotFoundError:
            raise not_found(key) from None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise symlink(key) from None
            if error.errno == errno.EISDIR:
                raise not_found(key) from None
            raise

    def file_to_change(self, directory: int, key: Key, error: type[FileOperationError]) -> int | None:
        """A descriptor of the key's file for reading and appending, or None; the caller closes it and checks its type.

        Raises:
            FileAlreadyExistsError: the name is a directory.
            PathTraversalError: the name is a symbolic link.
            FileOperationError: of the type ``error``: nothing can be opened by this name.
        """
        try:
            return os.open(on_disk(key.name), os.O_RDWR | os.O_APPEND | _FILE, dir_fd=directory)
        except FileNotFoundError:
            return None
        except IsADirectoryError:
            raise taken_name(key) from None
        except OSError as refused:
            if refused.errno == errno.ELOOP:
                raise symlink(key) from None
            if refused.errno == errno.ENXIO:
                raise error("not a regular file", path=key.path) from None
            raise

    def refuse_other_case(self, directory: int, name: str, key: Key) -> None:
        """On a filesystem that folds case: only the exact spelling is the file."""
        if self.folds_case and name not in os.listdir(directory):
            raise not_found(key)

    def taken_by_other_case(self, directory: int, name: str) -> bool:
        """Whether the name is taken by one that differs only by case."""
        return self.folds_case and any(
            other != name and other.casefold() == name.casefold() for other in os.listdir(directory)
        )

    def _stepped(self, directory: int, segments: Sequence[str], key: Key) -> int:
        return _down(directory, segments, lambda above, segment: self._step(above, segment, key))

    def _made_stepped(self, directory: int, segments: Sequence[str], key: Key, sync: bool) -> int:
        try:
            return _down(directory, segments, lambda above, segment: self._made_step(above, segment, key, sync))
        except FileNotFoundError:
            raise StalePath from None

    def _step(self, descriptor: int, segment: str, key: Key) -> int:
        try:
            self.refuse_other_case(descriptor, segment, key)
            return os.open(segment, _DIRECTORY, dir_fd=descriptor)
        except FileNotFoundError:
            raise not_found(key) from None
        except NotADirectoryError:
            _refuse_symlink(descriptor, segment, key)
            raise not_found(key) from None

    def _made_step(self, descriptor: int, segment: str, key: Key, sync: bool) -> int:
        try:
            if self.taken_by_other_case(descriptor, segment):
                raise taken_name(key)
            try:
                return os.open(segment, _DIRECTORY, dir_fd=descriptor)
            except FileNotFoundError:
                _make(descriptor, segment, sync)
                return os.open(segment, _DIRECTORY, dir_fd=descriptor)
        except NotADirectoryError:
            _refuse_symlink(descriptor, segment, key)
            raise taken_name(key) from None


def again(directory: int) -> int:
    """Another descriptor of an open directory, with a lock and a position of its own; the caller closes it."""
    return os.open(".", _DIRECTORY, dir_fd=directory)  # "." is no name: no link is near


def _down(directory: int, segments: Sequence[str], step: Callable[[int, str], int]) -> int:
    descriptor = again(directory)
    for segment in segments:
        above = descriptor
        try:
            descriptor = step(above, on_disk(segment))
        finally:
            close(above)
    return descriptor


def subdirectory(directory: int, name: str) -> int | None:
    """A descriptor of a directory found in a listing, or None if it is gone or no directory any more."""
    try:
        return os.open(name, _DIRECTORY, dir_fd=directory)
    except (FileNotFoundError, NotADirectoryError):
        return None


def symlink(key: Key) -> PathTraversalError:
    """The error for a symbolic link somewhere below the root."""
    return PathTraversalError(f"{RULES['symlink']}", "symlink", refused=ascii(key.path), path=key.path)


def require_regular(key: Key, found: os.stat_result, error: type[FileOperationError]) -> None:
    """Refuse links, pipes, sockets and devices."""
    if stat.S_ISREG(found.st_mode):
        return
    if stat.S_ISLNK(found.st_mode):
        raise symlink(key)
    if stat.S_ISDIR(found.st_mode):
        raise not_found(key)
    raise error("not a regular file", path=key.path)


def _names_between(above: str, below: str) -> list[str]:
    names = os.path.relpath(os.path.abspath(below), os.path.abspath(above)).split(os.sep)
    if names[0] == os.pardir:
        raise ValueError("the root does not lie within the directory that it has to lie within")
    return [] if names == [os.curdir] else names


def _make_base(path: str, sync: bool) -> None:
    if os.path.isdir(path):
        return
    _make_base(os.path.dirname(path), sync)
    try:
        os.mkdir(path, DIRECTORY_MODE)
    except FileExistsError:
        return
    if sync:
        parent = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(parent)
        finally:
            close(parent)


def _make(directory: int, segment: str, sync: bool) -> None:
    try:
        os.mkdir(segment, DIRECTORY_MODE, dir_fd=directory)
    except FileExistsError:
        return
    if sync:
        os.fsync(directory)


def _refuse_symlink(directory: int, segment: str, key: Key) -> None:
    try:
        found = os.stat(segment, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISLNK(found.st_mode):
        raise symlink(key)


def _folds_case(path: str) -> bool:
    """Whether a path's filesystem takes another case for the same name; asks, never writes."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    while path != os.path.dirname(path):
        parent, name = os.path.split(path)
        if name.swapcase() != name:
            other = os.path.join(parent, name.swapcase())
            return os.path.exists(other) and os.path.samefile(path, other)
        path = parent
    return False
