"""Moves and deletes under the exclusive lock of a tree: of whole directories, and moves of files."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Self

from agent_memory.backend import DeletedTree, Entry, Page
from agent_memory.backend._host_files import with_reason
from agent_memory.backend.helpers import (
    PageBuilder,
    TryLater,
    Uncopied,
    not_found,
    raise_failures,
    storage_failure,
    taken_name,
)
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    OutcomeUnknownError,
    WriteError,
)
from agent_memory.key import Key
from agent_memory_local._descriptor import LockedDescriptor
from agent_memory_local._files import sync_written
from agent_memory_local._locks import (
    Busy,
    StalePath,
    announce_exclusive,
    close,
    lock_tree,
    retry_while_locked,
    unlock_tree,
)
from agent_memory_local._scan import remove_empty, remove_if_empty, scan
from agent_memory_local._spelling import on_disk
from agent_memory_local._system_calls import rename_to_free
from agent_memory_local._walk import Walker, require_regular, segments_of, symlink

_ACROSS = {errno.EXDEV, errno.EBUSY}
"""The errors of a directory that is a mount, or lies on another mount or a lower layer of an overlay filesystem."""
Rename = Callable[[int, Key, int, Key], bool]
"""Renames a key in an open directory to another key in another one; False if that is not possible in one step."""


class DirectoryTree(Uncopied):
    """The tree of a key, open and exclusively locked, so that no other writer can change its files.

    Raises:
        AgentMemoryFileNotFoundError: the tree has no directory yet.
        Failed: the lock was held until the deadline, by default 60 seconds.
        StalePath: the directory was removed or replaced after it was opened.
    """

    __slots__ = ("_directory", "_walker")

    def __init__(self, walker: Walker, key: Key) -> None:
        self._walker = walker
        self._directory = LockedDescriptor(walker.directory(segments_of(key.base), key))
        try:
            self._lock(key)
        except TryLater as later:
            later.kept = self._directory  # its announcement stays until the next attempt makes its own
            del self._directory  # the traceback keeps this object alive
            raise
        except BaseException:
            self._directory.close()
            raise

    def _lock(self, key: Key) -> None:
        directory = self._directory.number
        try:
            lock_tree(directory)
        except Busy:
            announce_exclusive(directory)
            retry_while_locked(lambda: lock_tree(directory))
        if self._walker.identity(key.base) != self._directory.identity:
            raise StalePath

    def open(self, prefix: Key) -> int:
        """A descriptor of a directory of the tree; the caller closes it."""
        return self._walker.directory_below(self._directory.number, prefix.base, segments_of(prefix.path), prefix)

    def make(self, prefix: Key, sync: bool) -> int:
        """A descriptor of a directory of the tree, created if it is missing; the caller closes it."""
        return self._walker.made_below(self._directory.number, prefix.base, segments_of(prefix.path), prefix, sync)

    def files(self, prefix: Key) -> Page:
        """All files below a directory of the tree."""
        builder = PageBuilder(prefix)
        directory = self.open(prefix)
        try:
            scan(directory, builder, recursive=True, depth=len(segments_of(prefix.path)))
        finally:
            close(directory)
        return builder.whole_page(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        unlock_tree(self._directory.number)
        self._directory.close()


def move_file(
    walker: Walker, source: Key, target: Key, sync: bool, require_state: Callable[[int], None] | None
) -> int | None:
    """See `agent_memory.backend.MovesFiles`; the lock of the whole tree excludes a writer that has the file open.

    ``require_state`` gets a descriptor of the file, and raises if the file must not move.
    """
    try:
        locked = DirectoryTree(walker, source)
    except OSError as error:
        if error.errno == errno.EBADF:
            return None  # NFS has no exclusive locks of directories
        raise
    with locked as tree:
        old = tree.open(source.parent)
        try:
            found = _file(walker, old, source)
            if found.st_nlink > 1:
                return None  # a file with a second hard link is not moved; the caller may copy it
            if require_state:
                file = walker.file(old, source)
                try:
                    require_state(file)
                finally:
                    close(file)
            try:
                if not _move(walker, tree, old, source, target, sync, _rename_file):
                    return None
            except BaseException:
                remove_empty(walker, target.segments[:-1], target)
                raise
        finally:
            close(old)
    remove_empty(walker, source.segments[:-1], source)
    return found.st_size


def _file(walker: Walker, directory: int, key: Key) -> os.stat_result:
    try:
        found = os.stat(on_disk(key.name), dir_fd=directory, follow_symlinks=False)
        is_exact = walker.has_exactly(directory, key, found)
    except FileNotFoundError:
        raise not_found(key) from None
    if not is_exact:
        raise not_found(key)
    require_regular(key, found)
    return found


def _move(walker: Walker, tree: DirectoryTree, old: int, source: Key, target: Key, sync: bool, rename: Rename) -> bool:
    """Move a file or directory; False if the names are on different filesystems, or on different layers of one."""
    new = tree.make(target.parent, sync)
    try:
        _require_free(walker, new, target)  # a free name stays free: other writers wait for the tree's lock
        if not rename(old, source, new, target):
            return False
        _require_exact(walker, old, source, new, target)
        sync_written(new, sync)
        sync_written(old, sync)
        return True
    finally:
        close(new)


def _rename_file(old: int, source: Key, new: int, target: Key) -> bool:
    try:
        with with_reason(on_disk(source.name), old):
            rename_to_free(on_disk(source.name), on_disk(target.name), source_directory=old, target_directory=new)
    except FileNotFoundError:
        raise StalePath from None  # another program removed or moved the file
    except FileExistsError:
        raise taken_name(target, "file") from None
    except OSError as error:
        if error.errno == errno.EXDEV:
            return False
        raise
    return True


def _require_exact(walker: Walker, old: int, source: Key, new: int, target: Key) -> None:
    """Undo a rename if the volume stores the new name otherwise than it was given."""
    name = on_disk(target.name)
    try:
        is_exact = walker.has_exactly(new, target, os.stat(name, dir_fd=new, follow_symlinks=False))
    except OSError:
        return  # the file was renamed; another program moved it since, or the next use of the name checks again
    if not is_exact:
        with suppress(FileNotFoundError):
            os.rename(name, on_disk(source.name), src_dir_fd=new, dst_dir_fd=old)
        raise taken_name(target, "other_case")


def _require_free(walker: Walker, directory: int, key: Key) -> None:
    name = on_disk(key.name)
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        is_exact = walker.has_exactly(directory, key, found)
    except FileNotFoundError:
        return
    if not is_exact:
        raise taken_name(key, "other_case")
    if stat.S_ISLNK(found.st_mode):
        raise symlink(key)
    if not stat.S_ISDIR(found.st_mode):
        raise taken_name(key, "file")
    if not remove_if_empty(directory, name):
        raise taken_name(key, "directory")


def move_tree(walker: Walker, source: Key, target: Key, sync: bool) -> int | None:
    """See `agent_memory.backend.MovesTrees.move_tree`."""
    with DirectoryTree(walker, source) as tree:
        page = tree.files(source)
        if not page.entries:
            raise not_found(source)
        if page.skipped:
            return None
        for entry in page.entries:
            target.join(entry.key.relative_to(source).path)  # raises an error for a name that would be too long
        old = tree.open(source.parent)
        try:
            if not _move(walker, tree, old, source, target, sync, partial(_rename_directory, walker)):
                return None
        except BaseException:
            remove_empty(walker, target.segments[:-1], target)  # under the lock: another move may have created it
            raise
        finally:
            close(old)
    remove_empty(walker, source.segments[:-1], source)
    return len(page.entries)


def delete_tree(walker: Walker, prefix: Key, sync: bool) -> DeletedTree:
    """See `agent_memory.backend.MovesTrees.delete_tree`."""
    try:
        with DirectoryTree(walker, prefix) as tree:
            page = tree.files(prefix)
            try:
                failures = _delete_files(tree, page.entries, sync)
            finally:
                for directory in sorted({entry.key.parent for entry in page.entries}, reverse=True):
                    remove_empty(walker, directory.segments, prefix)
    except AgentMemoryFileNotFoundError:
        return DeletedTree(0, 0)
    raise_failures(page.entries, [failures.get(entry.path) for entry in page.entries])
    return DeletedTree(len(page.entries), page.skipped)


def _rename_directory(walker: Walker, old: int, source: Key, new: int, target: Key) -> bool:
    try:
        os.rename(on_disk(source.name), on_disk(target.name), src_dir_fd=old, dst_dir_fd=new)
    except FileNotFoundError:
        raise StalePath from None  # a writer that failed removed the empty directory
    except OSError as error:
        if error.errno in _ACROSS:
            return False
        raise
    walker.spelling.forget()  # the paths below both names lead to other directories now
    return True


def _delete_files(tree: DirectoryTree, entries: Iterable[Entry], sync: bool) -> dict[str, AgentMemoryError]:
    """Delete files, sync each directory once, and return the failures by path."""
    failures: dict[str, AgentMemoryError] = {}
    by_parent = sorted(entries, key=_parent)
    for _, files in groupby(by_parent, key=_parent):
        _delete_in_one_directory(tree, list(files), sync, failures)
    return failures


def _parent(entry: Entry) -> str:
    return entry.key.storage.rpartition("/")[0]


def _delete_in_one_directory(
    tree: DirectoryTree, files: list[Entry], sync: bool, failures: dict[str, AgentMemoryError]
) -> None:
    try:
        directory = tree.open(files[0].key.parent)
    except AgentMemoryFileNotFoundError:
        return  # another program removed the directory, so the files are deleted
    except (AgentMemoryError, OSError) as error:
        failures.update((entry.path, _as_ours(entry.key, error)) for entry in files)
        return
    try:
        for entry in files:
            _delete(directory, entry.key, failures)
        sync_written(directory, sync)
    except OutcomeUnknownError as error:
        failures.update((entry.path, error) for entry in files)
    finally:
        close(directory)


def _delete(directory: int, key: Key, failures: dict[str, AgentMemoryError]) -> None:
    try:
        with with_reason(on_disk(key.name), directory):
            os.unlink(on_disk(key.name), dir_fd=directory)
    except FileNotFoundError:
        return  # another program deleted the file
    except OSError as error:
        failures[key.path] = _as_ours(key, error)


def _as_ours(key: Key, error: OSError | AgentMemoryError) -> AgentMemoryError:
    return error if isinstance(error, AgentMemoryError) else storage_failure(key, WriteError, error)
