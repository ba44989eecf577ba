"""The names and the identity of a filesystem: names stay in the tree, and no two filesystems are equal."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NoReturn, cast

from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path

from agent_memory.backend import Entry
from agent_memory.backend.helpers import Uncopied
from agent_memory.errors import AgentMemoryFileNotFoundError
from agent_memory.memory import AgentMemory

_LOCAL: Final = ("file", "local")


class _NoTransactions:
    """fsspec's class of transactions for a filesystem without them."""

    def __init__(self, fs: AbstractFileSystem) -> None:
        raise NotImplementedError(
            f"{type(fs).__name__} has no transactions: it saves each file when the file is closed"
        )


class Confined(Uncopied, AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A filesystem over a memory, without its file operations."""

    protocol = "agentmemory"
    cachable = False
    transaction_type = _NoTransactions

    def __init__(self, memory: AgentMemory) -> None:
        super().__init__()
        self._memory = memory
        self._token = secrets.token_hex(16)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        """The name as in listings; a path that is not a name is returned unchanged, so that it is refused.

        Raises:
            ValueError: an object of another filesystem, such as a ``UPath``: its text would be a name in this one.
        """
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        if _has_filesystem(path):
            raise ValueError("a path with a filesystem of its own is no name in this one; give the name as text")
        path = stringify_path(path)
        if not isinstance(path, str):
            return path
        name = path.removeprefix(f"{cls.protocol}://")
        if "://" in name or name.startswith("//"):
            return path  # strip one protocol only, although fsspec calls this repeatedly
        return "/".join(part for part in name.split("/") if part not in ("", "."))

    def _text(self, path: Any) -> str:
        """The text of one path, with its trailing slash."""
        if not is_path(path):
            raise _no_path(path)
        self._strip_protocol(path)  # refuses an object of another filesystem
        return str(stringify_path(path))

    def _names(self, paths: Any) -> list[str]:
        return [self._strip_protocol(path) for path in ([paths] if is_path(paths) else list_of_paths(paths))]

    @contextmanager
    def _file(self, path: str) -> Iterator[None]:
        """Raise `IsADirectoryError` if a name is missing as a file but is a directory, found by one more list.

        The root needs no list.
        """
        if path != "":
            try:
                yield
                return
            except AgentMemoryFileNotFoundError:
                if not self._memory.list(path, recursive=False):
                    raise
        raise is_a_directory(path)

    @property
    def _fs_token(self) -> Any:
        return self._token

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._token}>"  # fsspec's caches distinguish filesystems by this text

    def to_dict(self, **_: object) -> NoReturn:
        self.__reduce_ex__(2)

    def to_json(self, **_: object) -> NoReturn:
        self.__reduce_ex__(2)


def is_path(paths: Any) -> bool:
    """Whether this is one path, and not a list of paths."""
    return isinstance(paths, str | os.PathLike) or _has_filesystem(paths)


def list_of_paths(paths: Any) -> list[Any]:
    """Return paths that are not one path, as a list.

    Raises:
        TypeError: it is neither a path nor a collection of paths.
    """
    if isinstance(paths, bytes | bytearray | Mapping) or not isinstance(paths, Iterable):
        raise _no_path(paths, " or a list of them")
    return list(paths)


def _no_path(path: object, lists: str = "") -> TypeError:
    return TypeError(f"a path is a str or a PathLike{lists}, not {type(path).__name__}")


def _has_filesystem(path: Any) -> bool:
    """Whether this is an object that has a path and a filesystem: a ``UPath``, an ``OpenFile``."""
    return not isinstance(path, str) and hasattr(path, "path")


def local_path(path: Any) -> str:
    """The text of a path of the local disk, also of a URL ``file://``.

    Raises:
        ValueError: the path is of another filesystem.
    """
    if not isinstance(path, str | os.PathLike) and not _has_filesystem(path):
        raise _no_path(path)
    text = stringify_path(path)
    is_local = getattr(path, "protocol", "" if isinstance(path, str | os.PathLike) else None) in ("", *_LOCAL)
    scheme, is_url, _ = text.partition("://")
    if not is_local or (is_url and scheme not in _LOCAL):
        raise ValueError(
            "this copies only between the memory and the local disk: give a local path or a file:// URL, or copy the "
            "content by open() of both filesystems"
        )
    return cast(str, LocalFileSystem._strip_protocol(text)) if is_url else text


def is_a_directory(path: str) -> IsADirectoryError:
    """The error for a directory where a file is needed."""
    return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)


def described(entry: Entry) -> dict[str, Any]:
    """Fsspec's description of an entry: size in bytes, ``mtime`` in POSIX seconds."""
    if entry.is_directory:
        return directory(entry.path)
    return {"name": entry.path, "size": entry.size, "type": "file", "mtime": entry.modified}


def directory(path: str) -> dict[str, Any]:
    """Fsspec's description of a directory."""
    return {"name": path, "size": 0, "type": "directory"}


def below(
    path: str, entries: Iterable[Entry], maxdepth: int | None = None, withdirs: bool = False
) -> dict[str, dict[str, Any]]:
    """The content of a directory by name, at most ``maxdepth`` levels deep; directories only if ``withdirs``."""
    found: dict[str, dict[str, Any]] = {}
    skip = len(path) + 1 if path else 0
    for entry in entries:
        parts = entry.path[skip:].split("/")
        if withdirs:
            tops = ("/".join(parts[:level]) for level in range(1, min(len(parts), (maxdepth or len(parts)) + 1)))
            names = [path, *(entry.path[:skip] + top for top in tops)]
            found.update((name, directory(name)) for name in names if name)
        if (maxdepth is None or len(parts) <= maxdepth) and (withdirs or not entry.is_directory):
            found[entry.path] = described(entry)
    return dict(sorted(found.items()))
