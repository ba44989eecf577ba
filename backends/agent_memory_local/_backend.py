"""`LocalBackend`: the five verbs, append in place, and moves and deletes of whole directories."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Literal, TypeVar

from agent_memory.backend import (
    ANY,
    PRESENT,
    Appended,
    AppendWhen,
    BlockingBackend,
    Capabilities,
    DeletedTree,
    Entry,
    ETag,
    NewOrigin,
    Page,
    ReadWhen,
    Snapshot,
    WriteWhen,
)
from agent_memory.backend._host_files import with_reason
from agent_memory.backend.helpers import (
    PageBuilder,
    TryLater,
    content_etag,
    digest_etag,
    may_try_later,
    refuse_larger_read,
    refuse_over_most,
    require,
    trying_later,
)
from agent_memory.errors import (
    AgentMemoryFileNotFoundError,
    AppendError,
    FileOperationError,
    ReadError,
    WriteError,
)
from agent_memory.key import Key
from agent_memory_local import _files, _trees
from agent_memory_local._descriptor import LOST
from agent_memory_local._files import NewModes
from agent_memory_local._locked_path import STATE, LockedPath, TreeLocks, refuse_other_names, state_etag
from agent_memory_local._locks import StalePath, close, raised_as, retry_while_locked, settled_size
from agent_memory_local._scan import remove_empty, scan
from agent_memory_local._staged import LocalParts, StagedFile
from agent_memory_local._walk import OPEN_FILE, Walker, require_regular, segments_of

T = TypeVar("T")


class LocalBackend(BlockingBackend):
    """Files below one directory of a local disk.

    Args:
        root: the directory; the first write creates it.
        durability: "full" survives a crash of the machine (``fsync``); "process" survives only a crash of this process,
            for tests and temporary data.
        allow_hard_links: read files with further hard links, which may be outside the root; for backups made of
            links. Such a file is never changed in place.
        within: a directory above the root that the operator chose, if the rest of the root's path comes from another
            source, such as a cloned repository. No symbolic link below it is followed, also not on the way to the root.
        mode: the permission bits of new files, as a number or as octal digits ("0640"), for every umask. New
            directories also get search permission for each reader. The default is 0600, and 0700 for directories, less
            the umask. A file that is replaced keeps its own bits.

    Raises:
        ValueError: the path of the root is not inside ``within``; or another option has a value that is not allowed.
        TypeError: ``allow_hard_links`` is not true or false.
    """

    keeps_origins = True

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        durability: Literal["full", "process"] = "full",
        allow_hard_links: bool = False,
        within: str | os.PathLike[str] | None = None,
        mode: int | str | None = None,
    ) -> None:
        if durability not in ("full", "process"):
            raise ValueError(f"durability must be 'full' or 'process', not {durability!r}")
        if not isinstance(allow_hard_links, bool):
            raise TypeError(f"allow_hard_links must be true or false, not {allow_hard_links!r}")
        above = None if within is None else os.fspath(within)
        self._walker = Walker(os.fspath(root), above, NewModes.of(mode))
        self._locks = TreeLocks(self._walker)
        self._sync = durability == "full"
        self._allow_hard_links = allow_hard_links
        self._capabilities = Capabilities(
            atomic_write=True,
            atomic_create=True,
            compare_and_swap=True,
            conditional_delete=True,
            durability=durability,
            exclusive_names=True,
            case_sensitive=True,
            read_after_write=True,
        )

    @property
    def capabilities(self) -> Capabilities:  # type: ignore[override]  # never set by a caller
        """See `Capabilities`; ``case_sensitive`` is true until a directory is found that ignores case."""
        if self._walker.spelling.folds_case and self._capabilities.case_sensitive:
            self._capabilities = replace(self._capabilities, case_sensitive=False)
        return self._capabilities

    def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        def look() -> Snapshot:
            file = self._walker.open(key.storage, OPEN_FILE)
            if file < 0:
                file = self._walked(key)
            try:
                return self._snapshot(key, file, start, end, when)
            finally:
                close(file)

        return self._looked(key, look)

    def stat(self, key: Key) -> Entry:
        def look() -> Entry:
            file = self._walked(key)
            try:
                found, size = self._settled(key, file)
            finally:
                close(file)
            return Entry(key, size, found.st_mtime)

        return self._looked(key, look)

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        self._written(key, when, lambda: self._write(key, data, when, origin))
        return content_etag(data)

    def append(
        self,
        key: Key,
        data: bytes,
        *,
        separator: bytes = b"",
        when: AppendWhen = ANY,
        most: int | None = None,
        origin: NewOrigin | None = None,
    ) -> Appended:
        return self._change(key, AppendError, lambda: self._append(key, data, separator, when, most, origin))

    def delete(self, key: Key, when: ReadWhen = ANY) -> None:
        self._change(key, WriteError, lambda: self._delete(key, when))
        remove_empty(self._walker, key.segments[:-1], key)

    def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        def look() -> Page:
            builder = PageBuilder(prefix, recursive)
            try:
                directory = self._walker.directory(prefix.segments, prefix)
            except AgentMemoryFileNotFoundError:
                return Page(())
            try:
                scan(directory, builder, recursive, len(segments_of(prefix.path)))
            finally:
                close(directory)
            return builder.page(after, limit)

        return self._looked(prefix, look)

    def write_in_parts(self, key: Key, size: int, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> LocalParts:
        staged = self._written(key, when, lambda: self._staged(key, size, when, origin))
        return LocalParts(key, staged, self.part_bytes, partial(self._complete, key, when), partial(self._tidy, key))

    def move_file(self, source: Key, target: Key, when: ReadWhen = ANY) -> int | None:
        def require_state(file: int) -> None:
            end = 0 if os.fstat(file).st_size > self.max_bytes else None
            self._snapshot(source, file, None, end, when)

        check = None if when is ANY else require_state
        move = partial(_trees.move_file, self._walker, source, target, self._sync, check)
        return self._attempted(source, WriteError, move)

    def move_tree(self, source: Key, target: Key) -> int | None:
        return self._attempted(source, WriteError, partial(_trees.move_tree, self._walker, source, target, self._sync))

    def delete_tree(self, prefix: Key) -> DeletedTree:
        return self._attempted(prefix, WriteError, partial(_trees.delete_tree, self._walker, prefix, self._sync))

    def erase(self, prefix: Key) -> DeletedTree:
        own = 0
        if prefix.path:
            with suppress(AgentMemoryFileNotFoundError):
                self.delete(prefix)
                own = 1
            self.erase_earlier(prefix)
        with trying_later(may_try_later() and not own):  # a retry of the whole erase would not count the file
            below = self.delete_tree(prefix)
        return DeletedTree(own + below.files, below.skipped)

    def erase_earlier(self, key: Key, is_meant: Callable[[Key], bool] | None = None) -> int:
        """See `agent_memory.backend.Erases`: a listing removes the temporary files of dead writers."""
        if is_meant is None:
            self.list(key.parent, recursive=False)
        else:
            self.list(key)
        return 0

    def close(self) -> None:
        self._locks.forget()
        self._walker.close()

    def _written(self, key: Key, when: WriteWhen, attempt: Callable[[], T]) -> T:
        try:
            return self._change(key, WriteError, attempt)
        except AgentMemoryFileNotFoundError:
            require(key, None, when)  # a write on an etag creates no directory, and the directory is gone
            raise

    def _change(self, key: Key, error: type[FileOperationError], attempt: Callable[[], T]) -> T:
        try:
            return self._attempted(key, error, attempt)
        except BaseException as failure:
            if not isinstance(failure, AgentMemoryFileNotFoundError | TryLater):  # these are retried
                self._tidy(key)
            raise

    def _attempted(self, key: Key, error: type[FileOperationError], attempt: Callable[[], T]) -> T:
        """Make a change in the confirmed root, and retry it while a lock is held."""
        with raised_as(key, error):
            self._walker.confirm_root(key)
            return retry_while_locked(attempt)

    def _tidy(self, key: Key) -> None:
        """Remove the empty directories that were created for a file, if the file was not written."""
        remove_empty(self._walker, key.segments[:-1], key)

    def _looked(self, key: Key, look: Callable[[], T]) -> T:
        """Read the storage; if the root is lost, read once more in the root that has its path now."""
        with raised_as(key, ReadError):
            try:
                return look()
            except OSError as error:
                if not self._is_elsewhere(key, error):
                    raise
                return look()

    def _is_elsewhere(self, key: Key, error: OSError) -> bool:
        """Whether the failure was in a root that is lost, and the same store is now open in another directory."""
        if error.errno not in LOST:
            return False
        with suppress(OSError):  # the first failure has the better message
            return self._walker.confirm_root(key)
        return False

    def _walked(self, key: Key) -> int:
        """Walk to a file and open it for reading; the caller closes the descriptor."""
        directory = self._walker.directory(key.segments[:-1], key)
        try:
            return self._walker.file(directory, key)
        finally:
            close(directory)

    def _settled(self, key: Key, file: int) -> tuple[os.stat_result, int]:
        """The status of an open file, and its size without a half-finished append."""
        found = self._readable(key, file)
        while True:
            if (size := settled_size(file)) is not None:
                return found, size
            now = os.fstat(file)
            if now.st_size == found.st_size:
                return now, now.st_size
            found = now  # an append ended between the two calls, so the first size may be from the middle of it

    def _readable(self, key: Key, file: int) -> os.stat_result:
        found = os.fstat(file)
        require_regular(key, found)
        if found.st_nlink > 1 and not self._allow_hard_links:
            directory = self._walker.directory(key.segments[:-1], key)
            try:
                refuse_other_names(directory, file)
            finally:
                close(directory)
        return found

    def _snapshot(self, key: Key, file: int, start: int | None, end: int | None, when: ReadWhen) -> Snapshot:
        found, size = self._settled(key, file)
        span = range(*slice(start, end).indices(size))
        refuse_larger_read(key, len(span), self.max_bytes)
        data = _files.read_range(file, span.start, span.stop)
        whole = len(data) == size
        if isinstance(when, ETag) and (when.token.startswith(STATE) or size > self.max_bytes):
            require(key, state_etag(found, size), when)
        else:
            require(key, lambda: content_etag(data if whole else _files.read_range(file, 0, size)), when)
        etag = (lambda: content_etag(data)) if whole else state_etag(found, size)
        return Snapshot(data, etag, size, _files.origin_of(file))

    def _write(self, key: Key, data: bytes, when: WriteWhen, origin: NewOrigin | None) -> None:
        with self._locked_path(key, make=not isinstance(when, ETag)) as place:
            found = place.open_file()
            require(key, found and (lambda: self._etag(place)), when)
            self._put(place, data, origin(time.time()) if origin else None)

    def _staged(self, key: Key, size: int, when: WriteWhen, origin: NewOrigin | None) -> StagedFile:
        with self._locked_path(key, make=not isinstance(when, ETag)) as place:
            found = place.open_file()
            require(key, found and (lambda: self._etag(place)), when)
            return place.staged(size, origin(time.time()) if origin else None, nameless=True)

    def _complete(self, key: Key, when: WriteWhen, new: StagedFile, sha256: str) -> ETag:
        if self._sync:
            with raised_as(key, WriteError):
                new.sync()
        return self._written(key, when, lambda: self._named(key, when, new, sha256))

    def _named(self, key: Key, when: WriteWhen, new: StagedFile, sha256: str) -> ETag:
        with self._locked_path(key, make=not isinstance(when, ETag)) as place:
            found = place.open_file()
            require(key, found and (lambda: self._etag(place)), when)
            place.give_name(new)
            _files.sync_written(place.directory, self._sync)
            if new.size > self.max_bytes:
                with suppress(OSError):  # the file is written; without its status the digest is its etag
                    return state_etag(new.state, new.size)
        return digest_etag(sha256)

    def _append(
        self,
        key: Key,
        data: bytes,
        separator: bytes,
        when: AppendWhen,
        most: int | None,
        origin: NewOrigin | None,
    ) -> Appended:
        with self._locked_path(key, make=when is ANY) as place:
            found = place.open_file(must_exist=when is PRESENT)
            if found is None:
                refuse_over_most(key, len(data), most)
                made = origin(time.time()) if origin else None
                self._put(place, data, made)
                return Appended(len(data), origin=made)
            file, size = place.file, found.st_size
            kept = None if origin is None else _files.origin_of(file)
            if separator and size:
                tail = _files.read_range(file, max(0, size - len(separator)), size)
                data = data if tail == separator else separator + data
            refuse_over_most(key, size + len(data), most)
            if found.st_nlink > 1:  # the content under the file's other name must not change
                whole = place.content(self._allow_hard_links) + data
                self._put(place, whole, _files.origin_of(file))
                return Appended(size + len(data), origin=kept)
            _files.append(file, data, size)
            place.release()
            place.release_file()
            _files.sync_written(file, self._sync)
            return Appended(size + len(data), origin=kept)

    def _delete(self, key: Key, when: ReadWhen) -> None:
        with self._locked_path(key, make=False) as place:
            place.open_file(must_exist=True)
            if when is not ANY:
                require(key, lambda: self._etag(place), when)
            with with_reason(place.name, place.directory):
                os.unlink(place.name, dir_fd=place.directory)
            place.release()
            _files.sync_written(place.directory, self._sync)

    def _put(self, place: LockedPath, data: bytes, origin: str | None) -> None:
        """Write a new file and give it the name, replacing the file that is open, if any.

        The tree is not locked during the sync to disk. Afterwards the path is walked again, to check that it still
        leads to the same directory.
        """
        if self._sync:
            place.release()
        new = place.prepared(data, self._sync, origin)
        try:
            if self._sync:
                with self._walked_again(place):
                    place.give_name(new)
            else:
                place.give_name(new)
            _files.sync_written(place.directory, self._sync)
        finally:
            new.close()

    def _walked_again(self, place: LockedPath) -> LockedPath:
        try:
            now = retry_while_locked(lambda: self._locked_path(place.key, make=False))
        except AgentMemoryFileNotFoundError:
            raise StalePath from None
        try:
            now.require_same(place)
        except BaseException:
            now.close()
            raise
        return now

    def _etag(self, place: LockedPath) -> ETag:
        return place.etag(self._allow_hard_links, self.max_bytes)

    def _locked_path(self, key: Key, *, make: bool) -> LockedPath:
        return LockedPath(self._walker, self._locks, key, make=make, sync=self._sync)
