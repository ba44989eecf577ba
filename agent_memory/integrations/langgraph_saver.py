"""LangGraph's `BaseCheckpointSaver` over a memory. Needs ``pip install 'agent-memory-files[langgraph]'``."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agent_memory.integrations.toolkit import AnyMemory, async_view, step, sync_view, unusable

try:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        BaseCheckpointSaver,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from agent_memory.integrations._langgraph_threads import Threads
except ImportError as error:
    raise unusable("langgraph-checkpoint", "langgraph", error) from error

if TYPE_CHECKING:
    from langgraph.checkpoint.base import DeltaChannelHistory  # of langgraph-checkpoint 4.1 and later

__all__ = ["AgentMemorySaver"]


class AgentMemorySaver(BaseCheckpointSaver[str]):
    """The checkpoints of graphs: the state of each thread after each step, and the writes of tasks that follow it.

    A checkpoint is the file ``<thread>/<namespace>/<id>.json``, which one operation writes; the writes of a task are
    one append to ``<id>.jsonl``. A serialized value of over 65,536 bytes has a file of its own, once for each version
    of its channel. Thread ids, namespaces and ids may be any text, encoded by `agent_memory.encode_segment`. The
    metadata is plain JSON. A listing and ``prune`` read the checkpoints of the thread, ``delete_for_runs`` those of all
    threads. ``prune`` keeps the ancestors that the delta channels of a kept checkpoint need.

    Args:
        memory: the tree of the threads.
        serde: the serializer of values; without it the framework's own, which does not unpickle.

    Raises `ReadError` for a file that holds no checkpoint and for a value that is missing or damaged; a listing skips
    such a checkpoint, with a warning in the log. Metadata that JSON cannot store are an `InvalidContentError` (a
    ValueError). Other errors are those of `AgentMemory`.
    """

    def __init__(self, memory: AnyMemory, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde)
        self._views = sync_view(memory), async_view(memory)

    @property
    def _sync(self) -> Threads:
        return Threads(self._views[0], self.serde)

    @property
    def _async(self) -> Threads:
        return Threads(self._views[1], self.serde)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """See `BaseCheckpointSaver.get_tuple`."""
        return step(self._sync.get(config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """See `BaseCheckpointSaver.get_tuple`."""
        return await self._async.get(config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the framework's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """See `BaseCheckpointSaver.list`; newest first."""
        found = self._sync.listed(config, filter, before, limit)
        with suppress(StopAsyncIteration):
            while True:
                yield step(_next(found))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the framework's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """See `BaseCheckpointSaver.list`; newest first."""
        async for found in self._async.listed(config, filter, before, limit):
            yield found

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """See `BaseCheckpointSaver.put`."""
        return step(self._sync.put(config, checkpoint, metadata, new_versions))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """See `BaseCheckpointSaver.put`."""
        return await self._async.put(config, checkpoint, metadata, new_versions)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """See `BaseCheckpointSaver.put_writes`."""
        step(self._sync.put_writes(config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """See `BaseCheckpointSaver.put_writes`."""
        await self._async.put_writes(config, writes, task_id, task_path)

    def delete_thread(self, thread_id: str) -> None:
        """See `BaseCheckpointSaver.delete_thread`."""
        step(self._sync.delete_thread(thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """See `BaseCheckpointSaver.delete_thread`."""
        await self._async.delete_thread(thread_id)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """See `BaseCheckpointSaver.delete_for_runs`."""
        step(self._sync.delete_for_runs(run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """See `BaseCheckpointSaver.delete_for_runs`."""
        await self._async.delete_for_runs(run_ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """See `BaseCheckpointSaver.copy_thread`; what the target has already stays."""
        step(self._sync.copy_thread(source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """See `BaseCheckpointSaver.copy_thread`; what the target has already stays."""
        await self._async.copy_thread(source_thread_id, target_thread_id)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """See `BaseCheckpointSaver.prune`."""
        step(self._sync.prune(thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """See `BaseCheckpointSaver.prune`."""
        await self._async.prune(thread_ids, strategy)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """See `BaseCheckpointSaver.get_delta_channel_history`."""
        return step(self._sync.history(config, channels))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """See `BaseCheckpointSaver.get_delta_channel_history`."""
        return await self._async.history(config, channels)

    def get_next_version(self, current: str | None, channel: None) -> str:  # noqa: ARG002 - the framework's
        """A version greater than another one, and unlike those of other branches of the thread."""
        number = 0 if current is None else int(str(current).partition(".")[0])
        return f"{number + 1:032}.{secrets.randbelow(10**16):016}"


async def _next(found: AsyncIterator[CheckpointTuple]) -> CheckpointTuple:
    return await anext(found)
