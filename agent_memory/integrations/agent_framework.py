"""A file store for Microsoft's Agent Framework. Needs ``pip install 'agent-memory-files[agent-framework]'``.

The framework warns once, at the import of this module, that its `AgentFileStore` is experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    FileAlreadyExistsError,
    FileTooLargeError,
    InvalidPathError,
)
from agent_memory.integrations.toolkit import (
    AnyMemory,
    ModelText,
    async_view,
    checked_id,
    mapped_errors,
    overwriting,
    refusal,
    unusable,
)

try:
    from agent_framework import AgentFileStore, FileSearchResult, FileStoreEntry
except ImportError as error:
    raise unusable("agent-framework-core", "agent-framework", error) from error

__all__ = ["AgentMemoryFileStore"]

_TILDE: Final = "~"  # a memory refuses a path that begins with it; the framework's names of scopes do
_STORED_TILDE: Final = "=7E"


class AgentMemoryFileStore(AgentFileStore):
    """The files of a memory, for `FileMemoryProvider` and `FileAccessProvider`.

    A path is the path of the file, for example ``<session>/notes.md``; ``~`` at its beginning is stored as ``=7E``.
    A directory exists while there are files below it.

    A name that the framework or the storage refuses is a `ValueError`, with another name in its text. A name that is
    taken is a `FileExistsError`; a directory's name is an `IsADirectoryError`, a name below a file's a
    `NotADirectoryError`. Other errors are those of `agent_memory`.
    """

    def __init__(self, memory: AnyMemory) -> None:
        self._memory = async_view(memory)

    async def write(self, path: str, content: str, *, overwrite: bool = True) -> None:
        """See `AgentFileStore.write`; one of several writers that do not overwrite creates the file."""
        name = _stored(path)
        with mapped_errors(_ERRORS):
            if overwrite:
                await self._memory.write(name, await overwriting(self._memory, name, content))
            else:
                await self._memory.create(name, content)

    async def read(self, path: str) -> str | None:
        """See `AgentFileStore.read`.

        Raises:
            ValueError: the name is refused, or the file is not UTF-8 or too large for one read.
        """
        try:
            with mapped_errors(_ERRORS):
                return ModelText((await self._memory.read_bytes(_stored(path))).decode()).text
        except AgentMemoryFileNotFoundError:
            return None
        except FileTooLargeError as error:
            raise ValueError(str(error)) from error
        except UnicodeDecodeError:
            raise ValueError(f"{_last(path)!r} is not UTF-8 text and cannot be read") from None

    async def delete(self, path: str) -> bool:
        """See `AgentFileStore.delete`."""
        name = _stored(path)
        with mapped_errors(_ERRORS), suppress(AgentMemoryFileNotFoundError):
            await self._memory.delete(name)
            return True
        return False

    async def list_children(self, directory: str = "") -> list[FileStoreEntry]:
        """See `AgentFileStore.list_children`; sorted by name."""
        top = _stored_directory(directory)
        with mapped_errors(_ERRORS):
            entries = await self._memory.list(top, recursive=False)
        found = [(not entry.is_directory, _shown(entry.path, top)) for entry in entries]
        return [
            FileStoreEntry(name, FileStoreEntry.FILE if is_file else FileStoreEntry.DIRECTORY)
            for is_file, name in sorted(found)
        ]

    async def file_exists(self, path: str) -> bool:
        """See `AgentFileStore.file_exists`."""
        with mapped_errors(_ERRORS):
            return await self._memory.exists(_stored(path))

    async def search(
        self, directory: str, regex_pattern: str, glob_pattern: str | None = None, *, recursive: bool = False
    ) -> list[FileSearchResult]:
        """See `AgentFileStore.search`."""
        directory = checked_id("directory", directory).strip()
        return await super().search(directory, regex_pattern, glob_pattern, recursive=recursive)

    async def find_matching_files(
        self,
        directory: str,
        regex_pattern: str,  # noqa: ARG002 - the storage has no index; `search` reads the files
        glob_pattern: str | None = None,  # noqa: ARG002 - `search` applies it before it reads
        *,
        recursive: bool = False,
    ) -> list[str]:
        """See `AgentFileStore.find_matching_files`; one listing, instead of one for each directory."""
        top = _stored_directory(directory)
        with mapped_errors(_ERRORS):
            entries = await self._memory.list(top, recursive=recursive)
        return [_shown(entry.path, top) for entry in entries if not entry.is_directory]

    async def create_directory(self, path: str) -> None:
        """Check the name; the first file below it creates the directory."""
        if name := _stored_directory(path):
            with mapped_errors(_ERRORS):
                self._memory.subtree(name)


def _stored(path: str) -> str:
    """The path of a file in the memory.

    Raises:
        ValueError: the framework refuses the path, or it has the stored form of another one.
    """
    name = checked_id("path", path).strip().replace("\\", "/")
    if "." in name.split("/"):
        raise ValueError("Invalid path: a path has no '.' segments")
    if name.startswith(_STORED_TILDE):
        raise ValueError(f"Invalid path: a path does not begin with {_STORED_TILDE!r}")
    return _STORED_TILDE + name[1:] if name.startswith(_TILDE) else name


def _stored_directory(path: str) -> str:
    """The path of a directory in the memory; "" is the whole memory."""
    name = _stored(path)
    return name if name.startswith("/") else "/".join(filter(None, name.split("/")))


def _shown(path: str, top: str) -> str:
    """The framework's path of a file, relative to a directory."""
    if top:
        return path.removeprefix(f"{top}/")
    return _TILDE + path.removeprefix(_STORED_TILDE) if path.startswith(_STORED_TILDE) else path


def _last(path: str) -> str:
    """The name in a path: a model must not see the scope before it, which may be the id of a user."""
    return path.rpartition("/")[2]


def _taken(error: AgentMemoryError) -> Exception:
    taken_by = error.taken_by if isinstance(error, FileAlreadyExistsError) else "file"
    kinds: dict[str, type[OSError]] = {"directory": IsADirectoryError, "file_above": NotADirectoryError}
    return kinds.get(taken_by, FileExistsError)(f"{_last(error.path or '')!r}: {error.args[0]}")


def _refused(error: AgentMemoryError) -> Exception:
    return ValueError(f"Invalid path: {refusal(error)}")


_ERRORS: Final[Mapping[type[AgentMemoryError], Callable[[AgentMemoryError], Exception]]] = {
    InvalidPathError: _refused,
    FileAlreadyExistsError: _taken,
}
