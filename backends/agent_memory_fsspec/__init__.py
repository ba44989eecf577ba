"""The backend for all other fsspec filesystems; it promises only what every filesystem can do.

fsspec has no conditional write: creating, comparing and appending raise `UnsupportedOperationError`, unless the caller
sets ``allow_single_writer=True``, because no other process writes there. These operations then check and write under a
lock of this process, which does not protect against other writers.

- this module: `FsspecBackend`, the five verbs, translation of errors, opening of URLs
- ``_names``: look-up of names, detection of filesystems that ignore case, directories above a written file, and
  removal of those that a delete leaves empty
"""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import fsspec

from agent_memory.backend import (
    ANY,
    BackendFactory,
    BlockingBackend,
    Capabilities,
    Entry,
    ETag,
    Page,
    ReadWhen,
    Snapshot,
    WriteWhen,
    hookimpl,
)
from agent_memory.backend._checks import refuse_patched_modules
from agent_memory.backend.helpers import PageBuilder, content_etag, named, not_found, refuse_larger_read, require
from agent_memory.errors import (
    AgentMemoryError,
    BackendNotAvailableError,
    FileOperationError,
    ReadError,
    UnsupportedOperationError,
    WriteError,
)
from agent_memory.key import Key
from agent_memory_fsspec._names import BlockingDirectories, Names, is_missing

__all__ = ["FsspecBackend", "agent_memory_register_backends"]

_IGNORE_FILE: Final = Key.internal(".gitignore")


class FsspecBackend(BlockingBackend):
    """Files of an fsspec filesystem below ``root``.

    Args:
        filesystem: any fsspec filesystem; its listings must not be cached.
        root: a path of that filesystem.
        allow_single_writer: True if the caller guarantees that no other process writes below the root.
    """

    capabilities = Capabilities(
        atomic_write=False,
        atomic_create=False,
        compare_and_swap=False,
        conditional_delete=False,
        durability="none",
        exclusive_names=False,
        case_sensitive=True,
        read_after_write=False,
    )

    def __init__(self, filesystem: fsspec.AbstractFileSystem, root: str, *, allow_single_writer: bool = False) -> None:
        self._fs: Any = filesystem
        self._names = Names(filesystem, root)
        self._directories = BlockingDirectories(filesystem, self._names)
        self._has_ignore_file = False
        self._single_writer = allow_single_writer
        # A client with one connection must not be used by two threads at once; asynchronous clients run on one loop.
        alone = allow_single_writer or not getattr(filesystem, "async_impl", False)
        self._lock = threading.RLock() if alone else nullcontext()

    def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        with self._operation(key, ReadError):
            refuse_larger_read(key, len(range(*slice(start, end).indices(self._info(key)["size"]))), self.max_bytes)
            whole: bytes = self._fs.cat_file(self._path(key))  # for a range too: an etag needs the whole file
        snapshot = Snapshot(whole[start:end], lambda: content_etag(whole), len(whole))
        require(key, lambda: snapshot.etag, when)
        return snapshot

    def stat(self, key: Key) -> Entry:
        with self._operation(key, ReadError):
            info = self._info(key)
            return Entry(key, info["size"], _seconds(info))

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY) -> ETag:
        self._require_single_writer(when)
        with self._operation(key, WriteError):
            exists = self._directories.claim(key)
            if when is not ANY:
                require(key, self._etag(key) if exists else None, when)
            if key.is_internal and not self._has_ignore_file:
                self._make_ignore_file()
            self._directories.put(key, data)
            self._names.learn(key.storage)
        return content_etag(data)

    def delete(self, key: Key, when: ReadWhen = ANY) -> None:
        self._require_single_writer(when)
        with self._operation(key, WriteError):
            self._info(key)
            require(key, self._etag(key), when)
            self._fs.rm_file(self._path(key))
            with suppress(Exception):  # the file is deleted
                self._directories.tidy(key)

    def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        builder = PageBuilder(prefix, recursive)
        with self._operation(prefix, ReadError):
            self._fs.invalidate_cache()
            for path, info in self._files(prefix).items():
                builder.file(self._as_key(prefix, path), info["size"], _seconds(info))
        return builder.page(after, limit)

    def _make_ignore_file(self) -> None:
        """Let git ignore this package's own data before the first file of them is written; no file is replaced."""
        if not self._directories.claim(_IGNORE_FILE):
            self._directories.put(_IGNORE_FILE, b"*\n")
            self._names.learn(_IGNORE_FILE.storage)
        self._has_ignore_file = True

    def _as_key(self, prefix: Key, path: str) -> str:
        """The name of a listed path below a prefix, in the form of keys (NFC) if it is found by that.

        Some filesystems decompose names, also those of the prefix.
        """
        top = self._path(prefix)
        if path.isascii() or unicodedata.is_normalized("NFC", path):
            return path[len(top) :].lstrip("/")
        nfc = unicodedata.normalize("NFC", path)[len(unicodedata.normalize("NFC", top)) :].lstrip("/")
        if self._names.info(f"{prefix.storage}/{nfc}".lstrip("/")) is None:
            return path[len(top) :].lstrip("/")
        return nfc

    def _files(self, prefix: Key) -> dict[str, Any]:
        if (there := self._names.info(prefix.storage)) is None or not self._is_exact(prefix):
            return {}
        if there["type"] != "directory" and not self._fs.isdir(self._path(prefix)):  # HTTP: a directory is a "file"
            return {}
        try:
            found: dict[str, Any] = self._fs.find(self._path(prefix), detail=True)
        except FileNotFoundError:
            return {}
        return found

    def _info(self, key: Key) -> dict[str, Any]:
        info = self._names.info(key.storage)
        if info is None or info["type"] != "file" or not self._is_exact(key):
            raise not_found(key)
        return info

    def _is_exact(self, key: Key) -> bool:
        self._names.learn(key.storage)
        return self._names.is_exact(key.storage)

    @contextmanager
    def _operation(self, key: Key, error: type[FileOperationError]) -> Iterator[None]:
        with self._lock, _translated(key, error):
            try:
                yield
            finally:
                if self._names.folds_case and self.capabilities.case_sensitive:
                    self.capabilities = replace(self.capabilities, case_sensitive=False)

    def _require_single_writer(self, when: object) -> None:
        if when is not ANY and not self._single_writer:
            raise UnsupportedOperationError(
                "this filesystem has no conditional write, so creating, appending and editing could lose changes of "
                "other writers; open it with allow_single_writer=True if no other process writes there"
            )

    def _etag(self, key: Key) -> Callable[[], ETag]:
        return lambda: content_etag(self._fs.cat_file(self._path(key)))

    def _path(self, key: Key) -> str:
        return self._names.path(key.storage)


def _seconds(info: Mapping[str, Any]) -> float:
    for name in ("mtime", "modified", "LastModified", "last_modified", "updated", "created"):
        value = info.get(name)
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, datetime):
            return value.timestamp()
    return 0.0


@contextmanager
def _translated(key: Key, error: type[FileOperationError]) -> Iterator[None]:
    """Translate errors of the filesystem to those of this package; the only place that does so."""
    try:
        yield
    except AgentMemoryError:
        raise
    except NotImplementedError as cause:
        raise UnsupportedOperationError(f"{named(key)}: this filesystem does not support the operation") from cause
    except Exception as cause:
        if is_missing(cause):
            raise not_found(key) from cause
        raise error(f"{named(key)}: the storage failed: {type(cause).__name__}") from cause


def _open(url: str, options: Mapping[str, object]) -> FsspecBackend:
    given: dict[str, Any] = {**options}
    allow = given.pop("allow_single_writer", False)
    if not isinstance(allow, bool):
        raise TypeError(f"option allow_single_writer: true or false, not {type(allow).__name__}")
    scheme = url.partition("://")[0]
    try:
        if any(fsspec.get_filesystem_class(name).async_impl for name in scheme.split("::")):
            refuse_patched_modules()
        filesystem, root = fsspec.core.url_to_fs(url, skip_instance_cache=True, **given)
    except (ImportError, ValueError) as error:
        raise BackendNotAvailableError(f"fsspec cannot open {scheme}:// here: {_first_line(error)}") from error
    except AgentMemoryError:
        raise
    except TypeError as error:
        raise TypeError(f"{scheme}:// does not take these options{_names(given)}: {_first_line(error)}") from error
    except Exception as error:  # the constructors of some filesystems connect or open a file
        reason = f"{type(error).__name__}{_names(given)}"
        raise BackendNotAvailableError(f"fsspec cannot open {scheme}:// here: {reason}") from error
    _forget_listings(filesystem)
    return FsspecBackend(filesystem, root, allow_single_writer=allow)


def _forget_listings(filesystem: Any) -> None:
    """Turn off the cache of listings of a filesystem and of the one that it wraps, because other processes write too.

    fsspec's option ``use_listings_cache`` is not used: some filesystems pass it to a client that does not accept it.
    """
    while filesystem is not None:
        if (listings := getattr(filesystem, "dircache", None)) is not None:
            listings.use_listings_cache = False
            listings.clear()
        filesystem = getattr(filesystem, "fs", None)


def _names(options: Mapping[str, object]) -> str:
    """The names of the given options in brackets: fsspec does not tell which one is wrong."""
    return f" (options: {', '.join(map(str, options))})" if options else ""


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


@hookimpl
def agent_memory_register_backends(register: Callable[[str, BackendFactory], None]) -> None:
    """Add this backend for every scheme without a backend of its own."""
    register("*", _open)
