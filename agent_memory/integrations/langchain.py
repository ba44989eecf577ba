"""LangChain's `BaseStore[str, bytes]` over a memory. Needs ``pip install 'agent-memory-files[langchain]'``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial

from agent_memory.errors import InvalidPathError
from agent_memory.integrations.toolkit import (
    AnyMemory,
    async_view,
    checked_bytes,
    checked_id,
    done_each,
    known_text,
    mapped_errors,
    record_segment,
    remove,
    step,
    sync_view,
    unusable,
)
from agent_memory.key import decode_segment, encode_segment
from agent_memory.memory import AsyncAgentMemory

try:
    from langchain_core.stores import BaseStore, InvalidKeyException
except ImportError as error:
    raise unusable("langchain-core", "langchain", error) from error

__all__ = ["AgentMemoryByteStore"]


class AgentMemoryByteStore(BaseStore[str, bytes]):
    """A store of bytes by key, for LangChain's caches of embeddings, retrievers and others.

    Each value is one file in the top directory of the memory, byte for byte. Its name is the key, encoded by
    `agent_memory.encode_segment`; a key over 240 bytes is kept in ``.texts/``, also after its value is deleted.
    A key may be any str. A plain file that another program puts there is a value too. The calls change several files
    concurrently, not in one step: what one file cannot do stops no other one, unless the storage itself fails.

    Args:
        memory: the tree of the values.

    Raises `InvalidKeyException` if the memory is a subtree with so long a path that there is no room for the key;
    otherwise the errors of `AgentMemory`, or `PartialOperationError` if several files failed.
    """

    def __init__(self, memory: AnyMemory) -> None:
        self._sync, self._async = sync_view(memory), async_view(memory)

    def mget(self, keys: Sequence[str]) -> list[bytes | None]:
        """See `BaseStore.mget`."""
        return step(_get(self._sync, keys))

    async def amget(self, keys: Sequence[str]) -> list[bytes | None]:
        """See `BaseStore.mget`."""
        return await _get(self._async, keys)

    def mset(self, key_value_pairs: Sequence[tuple[str, bytes]]) -> None:
        """See `BaseStore.mset`; the last value of a key wins."""
        step(_set(self._sync, key_value_pairs))

    async def amset(self, key_value_pairs: Sequence[tuple[str, bytes]]) -> None:
        """See `BaseStore.mset`; the last value of a key wins."""
        await _set(self._async, key_value_pairs)

    def mdelete(self, keys: Sequence[str]) -> None:
        """See `BaseStore.mdelete`; a missing key is no error."""
        step(_delete(self._sync, keys))

    async def amdelete(self, keys: Sequence[str]) -> None:
        """See `BaseStore.mdelete`; a missing key is no error."""
        await _delete(self._async, keys)

    def yield_keys(self, *, prefix: str | None = None) -> Iterator[str]:
        """See `BaseStore.yield_keys`; the keys come in the order of their files' names."""
        yield from step(_keys(self._sync, prefix))

    async def ayield_keys(self, *, prefix: str | None = None) -> AsyncIterator[str]:
        """See `BaseStore.yield_keys`; the keys come in the order of their files' names."""
        for key in await _keys(self._async, prefix):
            yield key


def _errors() -> AbstractContextManager[None]:
    return mapped_errors({InvalidPathError: lambda error: InvalidKeyException(str(error))})


def _paths(keys: Sequence[str]) -> list[str]:
    return [encode_segment(checked_id("a key", key)) for key in keys]


async def _get(memory: AsyncAgentMemory, keys: Sequence[str]) -> list[bytes | None]:
    paths = _paths(keys)
    with _errors():
        found = await memory.read_many(paths, missing_ok=True, bytes=True)
    return [found.get(path) for path in paths]


async def _set(memory: AsyncAgentMemory, pairs: Sequence[tuple[str, bytes]]) -> None:
    async def write(path: str) -> None:
        key, value = values[path]
        await memory.write(await record_segment(memory, key), checked_bytes(value))

    values = {encode_segment(checked_id("a key", key)): (key, value) for key, value in pairs}
    with _errors():
        await done_each(memory, write, values)


async def _delete(memory: AsyncAgentMemory, keys: Sequence[str]) -> None:
    with _errors():
        await done_each(memory, partial(remove, memory), _paths(keys))


async def _keys(memory: AsyncAgentMemory, prefix: str | None) -> list[str]:
    async def text(segment: str) -> str | None:
        try:
            return decode_segment(segment)
        except InvalidPathError as error:
            return await known_text(memory, segment) if error.rule == "hashed" else None

    files = [entry.path for entry in await memory.list(recursive=False) if not entry.is_directory]
    return [key for key in await memory._map(text, files) if key is not None and key.startswith(prefix or "")]
