"""A `Storage` of Strands Agents over a memory. Needs ``pip install 'agent-memory-files[strands]'``."""

from __future__ import annotations

import builtins
import re
from contextlib import suppress
from typing import Final

from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError, InvalidPathError
from agent_memory.integrations.toolkit import AnyMemory, async_view, checked_id, mapped_errors, unusable

try:
    from strands.storage import Storage
    from strands.types.exceptions import StorageError
except ImportError as error:
    raise unusable("strands-agents", "strands", error) from error

__all__ = ["AgentMemoryStorage"]

_SLASHES: Final = re.compile("/+")


def _storage_error(error: AgentMemoryError) -> Exception:
    return StorageError(str(error))


_ERRORS: Final = {AgentMemoryError: _storage_error}


class AgentMemoryStorage(Storage):
    """The storage of an agent: each key is the path of a file in the memory.

    As in the SDK's own storages, slashes at both ends and repeated slashes are removed from a key.

    Args:
        memory: the tree that holds the files.

    Every error of the memory is a `StorageError` with the same text, also that for a key which is no path of a memory:
    its text has the broken rule and a valid name. `search` is the SDK's own search by keywords, over all keys.

    Raises:
        TypeError: ``memory`` is no memory.
    """

    def __init__(self, memory: AnyMemory) -> None:
        self._memory = async_view(memory)

    async def write(self, key: str, data: bytes) -> None:
        """Write a file in one atomic step; the last writer wins. See `Storage.write`."""
        with mapped_errors(_ERRORS):
            await self._memory.write(_path(key), bytes(memoryview(data)))

    async def read(self, key: str) -> bytes | None:
        """See `Storage.read`."""
        with mapped_errors(_ERRORS), suppress(AgentMemoryFileNotFoundError):
            return await self._memory.read_bytes(_path(key))
        return None

    async def delete(self, key: str) -> None:
        """See `Storage.delete`."""
        with mapped_errors(_ERRORS), suppress(AgentMemoryFileNotFoundError):
            await self._memory.delete(_path(key))

    async def list(self, query: str = "") -> builtins.list[str]:
        """Return the keys that begin with a text, sorted. See `Storage.list`."""
        prefix = _SLASHES.sub("/", checked_id("query", query)).lstrip("/")
        if "\\" in prefix or ".." in prefix.split("/"):
            raise StorageError("a prefix of keys must not contain a backslash or a segment '..'")
        directory, _, name = prefix.rpartition("/")
        with mapped_errors(_ERRORS), suppress(InvalidPathError):  # no key begins with a name that is refused
            found = await self._memory.list(directory, name_prefix=name)
            return [entry.path for entry in found if entry.path.startswith(prefix)]
        return []

    def namespace(self, prefix: str) -> AgentMemoryStorage:
        """Return a storage of the keys below a prefix; its `search` reads only these.

        Raises:
            StorageError: the prefix is no path of a memory.
        """
        with mapped_errors(_ERRORS):
            return AgentMemoryStorage(self._memory.subtree(_path(prefix)))


def _path(key: str) -> str:
    """Return the path of a key."""
    segments = [segment for segment in checked_id("key", key).split("/") if segment]
    if "." in segments:  # a path of a memory may have it, and then two keys would be one file
        raise StorageError("a storage key must not contain a segment '.'; leave it out")
    return "/".join(segments)
