"""Directories by descriptors: every component is opened below the one before it, and no link is followed.

A path that is resolved first and opened later can be exchanged in between; a descriptor cannot. So nothing
here joins host paths: a key's segments are opened one by one with ``O_NOFOLLOW``, starting at the root.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Sequence

from agent_memory.backend import not_found, taken_name
from agent_memory.errors import FileOperationError, PathTraversalError
from agent_memory.key import RULES, Key

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
DIRECTORY_MODE = 0o700


_UTF8_LOCALE = sys.getfilesystemencoding() == "utf-8"


def on_disk(name: str) -> str:
    """A key's segment as this process has to give it to the system, so that its bytes are UTF-8 in any locale."""
    return name if _UTF8_LOCALE else os.fsdecode(name.encode())


def from_disk(name: str) -> str:
    """A name as this process got it from the system, with bytes that are not UTF-8 as lone surrogates."""
    return name if _UTF8_LOCALE else os.fsencode(name).decode("utf-8", "surrogateescape")


class Walker:
    """Opens directories and files below one root.

    The root itself may be reached through symbolic links: they are the operator's, resolved once, here.
    """

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)
        self.folds_case = _folds_case(self.root)

    def directory(self, segments: Sequence[str], key: Key) -> int:
        """A descriptor of an existing directory; the caller closes it.

        Raises:
            AgentMemoryFileNotFoundError: it does not exist, or a file is in its place.
            PathTraversalError: a component is a symbolic link.
        """
        try:
            descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise not_found(key) from None
        for segment in segments:
            descriptor = self._below(descriptor, on_disk(segment), key)
        return descriptor

    def made_directory(self, segments: Sequence[str], key: Key, sync: bool) -> int:
        """The same, making what is missing; each new name is synced to disk if ``sync``.

        Raises:
            FileAlreadyExistsError: a component is a file.
            PathTraversalError: a component is a symbolic link.
            FileNotFoundError: a directory was removed meanwhile; walk again.
        """
        _make_root(self.root, sync)
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for segment in segments:
            descriptor = self._made_below(descriptor, on_disk(segment), key, sync)
        return descriptor

    def file(self, directory: int, key: Key, flags: int) -> int:
        """A descriptor of the key's file in its directory; the caller closes it and checks its type.

        Raises:
            AgentMemoryFileNotFoundError: no such name.
            PathTraversalError: the name is a symbolic link.
        """
        self.refuse_other_case(directory, on_disk(key.name), key)
        try:
            return os.open(on_disk(key.name), flags | _FILE, dir_fd=directory)
        except FileNotFoundError:
            raise not_found(key) from None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise symlink(key) from None
            if error.errno == errno.EISDIR:
                raise not_found(key) from None
            raise

    def kind(self, directory: int, key: Key) -> os.stat_result | None:
        """What the key's name is in its directory, without following it; None if it is nothing."""
        try:
            return os.stat(on_disk(key.name), dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def refuse_other_case(self, directory: int, name: str, key: Key) -> None:
        """On a filesystem that folds case: only the exact spelling is the file."""
        if self.folds_case and name not in os.listdir(directory):
            raise not_found(key)

    def taken_by_other_case(self, directory: int, name: str) -> bool:
        """Whether the name is taken by one that differs only by case."""
        return self.folds_case and any(
            other != name and other.casefold() == name.casefold() for other in os.listdir(directory)
        )

    def _below(self, descriptor: int, segment: str, key: Key) -> int:
        try:
            self.refuse_other_case(descriptor, segment, key)
            return os.open(segment, _DIRECTORY, dir_fd=descriptor)
        except FileNotFoundError:
            raise not_found(key) from None
        except NotADirectoryError:
            _refuse_symlink(descriptor, segment, key)
            raise not_found(key) from None
        finally:
            os.close(descriptor)

    def _made_below(self, descriptor: int, segment: str, key: Key, sync: bool) -> int:
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
        finally:
            os.close(descriptor)


def subdirectory(directory: int, name: str) -> int | None:
    """A descriptor of a directory found in a listing, or None if it is gone or no directory any more."""
    try:
        return os.open(name, _DIRECTORY, dir_fd=directory)
    except (FileNotFoundError, NotADirectoryError):
        return None


def symlink(key: Key) -> PathTraversalError:
    """The error for a symbolic link somewhere below the root."""
    return PathTraversalError(f"{key.path!r}: {RULES['symlink']}", "symlink", refused=ascii(key.path))


def require_regular(key: Key, found: os.stat_result, error: type[FileOperationError]) -> None:
    """Refuse links, pipes, sockets and devices."""
    if stat.S_ISLNK(found.st_mode):
        raise symlink(key)
    if stat.S_ISDIR(found.st_mode):
        raise not_found(key)
    if not stat.S_ISREG(found.st_mode):
        raise error(f"{key.path!r}: not a regular file")


def _make_root(path: str, sync: bool) -> None:
    if os.path.isdir(path):
        return
    _make_root(os.path.dirname(path), sync)
    try:
        os.mkdir(path, DIRECTORY_MODE)
    except FileExistsError:
        return
    if sync:
        parent = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)


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
