"""One tree as a confined fsspec filesystem, for pandas and other users of fsspec.

It uses only the public methods of a memory, so that every call passes the hooks, and every name the key grammar. It
follows fsspec's conventions except the unsafe ones: fsspec caches filesystems by the text of their arguments and so
confuses them, expands globs in the name to delete, and saves incomplete files.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

from fsspec.compression import compr
from fsspec.core import get_compression

from agent_memory.errors import AgentMemoryFileNotFoundError, FileAlreadyExistsError
from agent_memory.filesystem._confined import below, described, directory, is_a_directory, is_path, list_of_paths
from agent_memory.filesystem._files import PendingFile, RangedFile, compressed, pending_text, sliced
from agent_memory.filesystem._transfers import Transfers
from agent_memory.memory import AgentMemory, AsyncAgentMemory

__all__ = ["AgentMemoryFileSystem", "filesystem"]

_TEXT_OPTIONS = ("encoding", "errors", "newline")


def filesystem(memory: AgentMemory | AsyncAgentMemory) -> AgentMemoryFileSystem:
    """Return a memory as an fsspec filesystem, confined to the same tree, for pandas and other users of fsspec.

    Each of its calls passes the hooks, and blocks: in an event loop, run them in a thread (`asyncio.to_thread`). It is
    closed with the memory.
    """
    if not isinstance(memory, AgentMemory | AsyncAgentMemory):
        raise TypeError(f"filesystem takes an AgentMemory or an AsyncAgentMemory, not {type(memory).__name__}")
    return AgentMemoryFileSystem(memory.as_sync())


class AgentMemoryFileSystem(Transfers):
    """The files of one memory, as an fsspec filesystem; created by `filesystem`.

    A path is ``a/b`` or ``/a/b``, which are the same, optionally after ``agentmemory://``; the root is ``""``. The key
    grammar refuses every other path. Errors are those of `agent_memory.AgentMemory`, which are builtin errors too. If
    an operation needs a file and the name is a directory, it raises `IsADirectoryError`, after one more list. Two
    filesystems are never equal, no filesystem can be pickled, and listings are not cached.

    There are no empty directories: `mkdir` and `makedirs` create nothing. Writing replaces a file in one step, in the
    call itself or when the file is closed. `rm`, `cat` and `mv` take names literally; `copy`, `get` and `put` expand
    ``*``, ``?``, ``[...]`` unless both sides are lists.
    """

    # Listing

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Name, size in bytes, type and ``mtime`` in POSIX seconds: one stat, and for a directory one list."""
        path = self._strip_protocol(path)
        try:
            with self._file(path):
                return described(self._memory._entry(path))
        except IsADirectoryError:
            return directory(path)

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Whether there is a file or a directory; raises for an invalid name, a hook's veto or a storage failure."""
        return self.isfile(path) or self.isdir(path)

    def isfile(self, path: str) -> bool:
        """Whether there is a file: one ``exists``; raises as `exists` does."""
        path = self._strip_protocol(path)
        return path != "" and self._memory.exists(path)

    def isdir(self, path: str) -> bool:
        """Whether there is a directory: one ``is_directory``; raises as `exists` does."""
        path = self._strip_protocol(path)
        return self._memory.is_directory(path)

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """List a directory or a file: one list, and for a file one stat."""
        path = self._strip_protocol(path)
        found = [described(entry) for entry in self._memory.list(path, recursive=False)]
        if not found and path:
            found = [described(self._memory._entry(path))]
        return found if detail else [info["name"] for info in found]

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **kwargs: Any
    ) -> Any:
        """Find the files below a name: one list, and for a file one stat; nothing for a missing name."""
        path = self._strip_protocol(path)
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        found = below(path, self._memory.list(path, recursive=maxdepth != 1), maxdepth, withdirs)
        if not found and path:
            with suppress(AgentMemoryFileNotFoundError):
                found = {path: described(self._memory._entry(path))}
        return found if detail else list(found)

    def glob(self, path: Any, maxdepth: int | None = None, **kwargs: Any) -> Any:
        """As in fsspec: the names that match a pattern; one `find`."""
        return super().glob(self._text(path), maxdepth, **kwargs)

    def expand_path(self, path: Any, *args: Any, **kwargs: Any) -> Any:
        """As in fsspec: the names that match paths and patterns."""
        return super().expand_path(self._text(path) if is_path(path) else list_of_paths(path), *args, **kwargs)

    def du(
        self, path: str, total: bool = True, maxdepth: int | None = None, withdirs: bool = False, **kwargs: Any
    ) -> Any:
        """The size in bytes: one `find`."""
        sizes = {name: i["size"] for name, i in self.find(path, maxdepth, withdirs, detail=True).items()}
        return sum(sizes.values()) if total else sizes

    def modified(self, path: str) -> datetime:
        """The time of the file's last change, by the storage's clock: one stat."""
        path = self._strip_protocol(path)
        with self._file(path):
            return datetime.fromtimestamp(self._memory._entry(path).modified, UTC)

    def created(self, path: str) -> datetime:
        """The same as `modified`: the storage stores no other time."""
        return self.modified(path)

    # Reading

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """A file's bytes, or the slice ``[start:end]`` of them: one read of at most the backend's ``max_bytes``."""
        path = self._strip_protocol(path)
        with self._file(path):
            if start is None and end is None:
                return self._memory.read_bytes(path)
            return self._memory.scan(path, lambda reader: sliced(reader, start, end))

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **kwargs: Any) -> Any:
        """A file's bytes; for a list, or a directory if ``recursive``, a dict by name."""
        names = self._names(path)
        files = [file for name in names for file in self._all_files(name)] if recursive else names
        if names == files and is_path(path):
            return self.cat_file(names[0], **kwargs)
        found: dict[str, Any] = {}
        for name in files:
            try:
                found[name] = self.cat_file(name, **kwargs)
            except Exception as error:
                if on_error == "raise":
                    raise
                if on_error == "return":
                    found[name] = error
        return found

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: dict[str, Any] | None = None,
        compression: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Open a file object, of bytes or text: modes ``r``, ``w``, ``a``, ``x``.

        Reading needs one read, and one more for each block (``block_size`` bytes and ``cache_type`` as in fsspec), and
        raises `ConflictError` if the file is rewritten meanwhile. Writing is exactly one write, append or create when
        the file is closed, and nothing if its ``with`` block raises or it is never closed; ``x`` also needs one
        ``exists`` on opening.
        """
        path = self._strip_protocol(path)
        compression = get_compression(path, compression)
        text = {} if "b" in mode else {key: kwargs.pop(key) for key in _TEXT_OPTIONS if key in kwargs}
        text.setdefault("encoding", "utf-8")  # not the locale's: `AgentMemory.read` reads only UTF-8
        binary = mode if "b" in mode else mode.replace("t", "") + "b"
        file = self._open(path, binary, block_size, cache_options=cache_options, compression=compression, **kwargs)
        if isinstance(file, PendingFile):
            return file if "b" in mode else pending_text(file, text)
        if compression is not None:
            file = compr[compression](file, mode="r")
        return file if "b" in mode else io.TextIOWrapper(file, **text)

    def _open(  # pyright: ignore[reportIncompatibleMethodOverride]  # unknown options are refused
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: dict[str, Any] | None = None,
        cache_type: str = "readahead",
        compression: str | None = None,
    ) -> Any:
        path = self._strip_protocol(path)
        if mode == "rb":
            with self._file(path):
                return RangedFile(self, self._memory, path, block_size, cache_type, cache_options)
        save = self._saving(path, mode)
        if compression is None:
            return PendingFile(self, path, mode, save)
        return PendingFile(self, path, mode, lambda data: save(compressed(data, compression)))

    def _saving(self, path: str, mode: str) -> Callable[[bytes], object]:
        memory = self._memory
        savers: dict[str, Callable[..., object]] = {"wb": memory.write, "ab": memory.append, "xb": memory.create}
        if mode not in savers:
            raise io.UnsupportedOperation(f"mode {mode!r} is not supported: use r, w, a or x")
        if path == "":
            raise is_a_directory(path)
        memory.subtree(path)  # refuses an invalid name on opening, not on closing
        if mode == "xb" and memory.exists(path):
            raise _taken(path)
        return partial(savers[mode], path)

    # Writing

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        """Write a file, or create it with ``mode="create"``: one operation."""
        memoryview(value)  # TypeError: a text is no content of a file of bytes
        opened = {"overwrite": "wb", "create": "xb"}.get(mode)
        if opened is None:
            raise ValueError(f"mode must be 'overwrite' or 'create', not {mode!r}")
        if (path := self._strip_protocol(path)) == "":
            raise is_a_directory(path)
        if opened == "wb":
            self._memory.write(path, value)
        else:
            self._memory.create(path, value)

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        """Write an empty file, or create it with ``truncate=False``; no time is set."""
        try:
            self.pipe_file(path, b"", "overwrite" if truncate else "create")
        except FileAlreadyExistsError as error:
            if truncate:
                raise
            raise NotImplementedError("the time of an existing file cannot be set without writing it") from error

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Create nothing: a directory exists while files are below it. A taken name raises `FileExistsError`."""
        if self.exists(path):
            raise _taken(self._strip_protocol(path))

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """As `mkdir`; with ``exist_ok`` only a file raises `FileExistsError`."""
        if self.isfile(path) or (not exist_ok and self.isdir(path)):
            raise _taken(self._strip_protocol(path))

    # Deleting and moving

    def _rm(self, path: str) -> None:
        path = self._strip_protocol(path)
        with self._file(path):
            self._memory.delete(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Delete files, and directories if ``recursive``, by their literal names: one delete each."""
        names = self._names(path)
        for name in _outermost(names) if recursive else names:
            if not recursive:
                self._rm(name)
            elif maxdepth is None:
                self._rm_tree(name)
            else:
                for file in self._all_files(name, maxdepth):
                    self._rm(file)

    def _rm_tree(self, path: str) -> None:
        try:
            self._memory.delete_tree(path)
        except AgentMemoryFileNotFoundError:
            self._memory.delete(path)

    def rmdir(self, path: str) -> None:
        """Raise `NotADirectoryError`, `FileNotFoundError`, or `OSError`: no directory but the root is ever empty."""
        path = self._strip_protocol(path)
        if self.info(path)["type"] == "file":
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if path or self.ls(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)

    def _all_files(self, path: str, maxdepth: int | None = None) -> list[str]:
        files: list[str] = self.find(path, maxdepth)
        if not files and path != "":
            raise AgentMemoryFileNotFoundError("no such file or directory", path=path)
        return files


def _taken(path: str) -> FileAlreadyExistsError:
    return FileAlreadyExistsError("the name is taken", path=path)


def _outermost(names: list[str]) -> list[str]:
    """The names that are not below another of the names, once each."""
    given = set(names)
    return [name for name in dict.fromkeys(names) if not any(above in given for above in _above(name))]


def _above(name: str) -> Iterator[str]:
    while name:
        name = name.rpartition("/")[0]
        yield name
