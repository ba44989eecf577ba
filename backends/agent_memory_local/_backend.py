"""`LocalBackend`: the five verbs and append in place, each under the lock of one directory."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeVar

from agent_memory.backend import (
    ABSENT,
    ANY,
    PRESENT,
    Appended,
    AppendWhen,
    BlockingBackend,
    Capabilities,
    Entry,
    Page,
    PageBuilder,
    ReadWhen,
    Snapshot,
    Version,
    WriteWhen,
    content_version,
    not_found,
    refuse_larger,
    require,
    taken_name,
    translating,
)
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    AppendError,
    FileOperationError,
    ReadError,
    UnsupportedOperationError,
    WriteError,
)
from agent_memory.key import Key
from agent_memory_local import _files
from agent_memory_local._scan import scan
from agent_memory_local._walk import Walker, on_disk, require_regular, subdirectory

_MOST_WALKS = 1000
_PARTIAL = "stat:"
_NameError = Callable[[Key], AgentMemoryError]
T = TypeVar("T")


class LocalBackend(BlockingBackend):
    """Files below one directory of a local disk.

    Args:
        root: the directory; made, with mode 0700, by the first write.
        durability: "full" survives a crash of the machine (``fsync``), "process" one of this process.
    """

    def __init__(self, root: str | os.PathLike[str], *, durability: Literal["full", "process"] = "full") -> None:
        if sys.platform == "win32":
            raise UnsupportedOperationError("the local backend is not tested on Windows, so it does not run there")
        if durability not in ("full", "process"):
            raise ValueError(f"durability is 'full' or 'process', not {durability!r}")
        self._walker = Walker(os.fspath(root))
        self._sync = durability == "full"
        self.capabilities = Capabilities(
            atomic_write=True,
            atomic_create=True,
            compare_and_swap=True,
            durability=durability,
            exclusive_names=True,
            case_sensitive=not self._walker.folds_case,
            read_after_write=True,
        )

    def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        with self._opened(key) as file:
            return self._snapshot(key, file, start, end, when)

    def stat(self, key: Key) -> Entry:
        with self._opened(key) as file:
            found = os.fstat(file)
            return Entry(key, found.st_size, found.st_mtime)

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY) -> Version:
        with translating(key, WriteError, OSError):
            if isinstance(when, Version):
                self._replace(key, data, when)
            else:
                self._change(key, lambda directory: self._write(directory, key, data, when))
        return content_version(data)

    def append(self, key: Key, data: bytes, *, separator: bytes = b"", when: AppendWhen = ANY) -> Appended:
        with translating(key, AppendError, OSError):
            if when is PRESENT:
                with self._directory(key) as directory, _locked(directory):
                    return Appended(self._append(directory, key, data, separator, when))
            return Appended(self._change(key, lambda directory: self._append(directory, key, data, separator, when)))

    def delete(self, key: Key, when: ReadWhen = ANY) -> None:
        with translating(key, WriteError, OSError):
            with self._directory(key) as directory, _locked(directory):
                self._walker.refuse_other_case(directory, on_disk(key.name), key)
                found = self._target(directory, key, WriteError, not_found)
                require(key, self._state(directory, key, found), PRESENT, when)
                os.unlink(on_disk(key.name), dir_fd=directory)
                _files.sync_directory(directory, self._sync)
            self._remove_empty(key)

    def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        builder = PageBuilder(prefix, recursive)
        with translating(prefix, ReadError, OSError):
            try:
                directory = self._walker.directory(prefix.segments, prefix)
            except AgentMemoryFileNotFoundError:
                return Page(())
            try:
                scan(directory, builder, recursive, len(prefix.path.split("/")) if prefix.path else 0)
            finally:
                os.close(directory)
        return builder.page(after, limit)

    def _write(self, directory: int, key: Key, data: bytes, when: WriteWhen) -> None:
        require(key, self._state(directory, key, self._target(directory, key, WriteError)), when)
        change = _files.create if when is ABSENT else _files.replace
        change(directory, on_disk(key.name), data, self._sync)

    def _replace(self, key: Key, data: bytes, when: Version) -> None:
        try:
            with self._directory(key) as directory, _locked(directory):
                self._write(directory, key, data, when)
        except AgentMemoryFileNotFoundError:
            require(key, None, when)

    def _append(self, directory: int, key: Key, data: bytes, separator: bytes, when: AppendWhen) -> int:
        found = self._target(directory, key, AppendError)
        require(key, self._state(directory, key, found), when)
        if found is None:
            _files.create(directory, on_disk(key.name), data, self._sync)
            return len(data)
        file = self._walker.file(directory, key, os.O_RDWR | os.O_APPEND)
        try:
            if separator and found.st_size:
                tail = _files.read_range(file, max(0, found.st_size - len(separator)), found.st_size)
                data = data if tail == separator else separator + data
            if found.st_nlink == 1:
                return _files.append(file, data, self._sync)
            # The file has another name, perhaps outside the root: what is read there must not change.
            whole = _files.read_range(file, 0, found.st_size) + data
        finally:
            os.close(file)
        _files.replace(directory, on_disk(key.name), whole, self._sync)
        return len(whole)

    def _snapshot(self, key: Key, file: int, start: int | None, end: int | None, when: ReadWhen) -> Snapshot:
        found = os.fstat(file)
        size = found.st_size
        span = range(*slice(start, end).indices(size))
        refuse_larger(key, len(span), self.max_bytes)
        data = _files.read_range(file, span.start, span.stop)
        whole = len(data) == size
        version: Version | Callable[[], Version] = lambda: content_version(data)  # noqa: E731
        if not whole:
            version = _partial_version(found)
        if _is_partial(when):
            require(key, _partial_version(found), when)
        elif when is not ANY:
            require(key, lambda: content_version(data if whole else _files.read_range(file, 0, size)), when)
        return Snapshot(data, version, size)

    def _state(self, directory: int, key: Key, found: os.stat_result | None) -> Callable[[], Version] | None:
        def version() -> Version:
            file = self._walker.file(directory, key, os.O_RDONLY)
            try:
                return content_version(_files.read_range(file, 0, os.fstat(file).st_size))
            finally:
                os.close(file)

        return version if found else None

    def _target(
        self, directory: int, key: Key, error: type[FileOperationError], is_directory: _NameError = taken_name
    ) -> os.stat_result | None:
        """What is to be changed: a regular file, or nothing yet."""
        if self._walker.taken_by_other_case(directory, on_disk(key.name)):
            raise taken_name(key)
        found = self._walker.kind(directory, key)
        if found is not None and stat.S_ISDIR(found.st_mode):
            raise is_directory(key)
        if found is not None:
            require_regular(key, found, error)
        return found

    def _change(self, key: Key, change: Callable[[int], T]) -> T:
        """Run a change under the lock of the key's directory, which is made if it is missing."""
        try:
            return self._change_in_directory(key, change)
        except BaseException as error:
            self._remove_empty(key)
            if isinstance(error, FileExistsError | IsADirectoryError) and not isinstance(error, AgentMemoryError):
                raise taken_name(key) from None  # made a directory, on somebody's walk, while we held the lock
            raise

    def _change_in_directory(self, key: Key, change: Callable[[int], T]) -> T:
        for _ in range(_MOST_WALKS):
            try:
                directory = self._walker.made_directory(key.segments[:-1], key, self._sync)
            except FileNotFoundError:
                continue  # a delete emptied and removed a directory on our way
            try:
                with _locked(directory):
                    if os.fstat(directory).st_nlink:
                        return change(directory)
            finally:
                os.close(directory)
        raise WriteError(f"{key.path!r}: its directory kept disappearing")

    @contextmanager
    def _opened(self, key: Key) -> Iterator[int]:
        """A file to read, no append being half-way: an append excludes readers for its one write, no longer."""
        with translating(key, ReadError, OSError), self._directory(key) as directory:
            file = self._walker.file(directory, key, os.O_RDONLY)
            try:
                require_regular(key, os.fstat(file), ReadError)
                fcntl.flock(file, fcntl.LOCK_SH)  # given back by close()
                yield file
            finally:
                os.close(file)

    @contextmanager
    def _directory(self, key: Key) -> Iterator[int]:
        directory = self._walker.directory(key.segments[:-1], key)
        try:
            yield directory
        finally:
            os.close(directory)

    def _remove_empty(self, key: Key) -> None:
        """Remove the directories that a delete left empty, from the deepest up, unless somebody uses them."""
        segments = key.segments[:-1]
        for depth in range(len(segments) - 1, -1, -1):
            try:
                parent = self._walker.directory(segments[:depth], key)
            except (AgentMemoryError, OSError):
                return  # the file is deleted all the same
            try:
                if not _remove_if_empty(parent, on_disk(segments[depth])):
                    return
            finally:
                os.close(parent)


def _remove_if_empty(parent: int, name: str) -> bool:
    directory = subdirectory(parent, name)
    if directory is None:
        return False
    try:
        # A writer that holds the lock is about to put a file here; one that waits for it walks again.
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rmdir(name, dir_fd=parent)
    except OSError:
        return False
    finally:
        os.close(directory)
    return True


@contextmanager
def _locked(directory: int) -> Iterator[None]:
    fcntl.flock(directory, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(directory, fcntl.LOCK_UN)  # a forked child shares the lock: closing would not give it back


def _is_partial(when: ReadWhen) -> bool:
    return isinstance(when, Version) and when.token.startswith(_PARTIAL)


def _partial_version(found: os.stat_result) -> Version:
    """Pins partial reads of one state; equals no content's version, so no write can be conditional on it."""
    return Version(f"{_PARTIAL}{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}")
