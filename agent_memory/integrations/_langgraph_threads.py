"""The files of LangGraph's threads: their checkpoints, the writes after each, and large values.

`agent_memory.integrations.langgraph_saver` has the saver over them.
"""

from __future__ import annotations

import hashlib
import logging
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from agent_memory.errors import AgentMemoryFileNotFoundError, FileAlreadyExistsError, ReadError
from agent_memory.integrations._langgraph_records import (
    SUFFIX,
    WRITES,
    At,
    CheckpointFacts,
    Record,
    SavedCheckpoint,
    facts_of,
    inline,
    is_checkpoint,
    is_write,
    key_of,
    needed,
)
from agent_memory.integrations.toolkit import (
    PathTexts,
    append_records,
    done_each,
    found_each,
    from_json,
    record_segment,
    records,
    remove,
    to_json,
    unusable,
)
from agent_memory.key import encode_segment
from agent_memory.memory import AsyncAgentMemory

try:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        get_checkpoint_id,
        get_checkpoint_metadata,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol
except ImportError as error:
    raise unusable("langgraph-checkpoint", "langgraph", error) from error

if TYPE_CHECKING:
    from langgraph.checkpoint.base import DeltaChannelHistory  # of langgraph-checkpoint 4.1 and later

__all__ = ["Threads"]

_log = logging.getLogger(__name__)
_INLINE: Final = 65_536
"""The most bytes of a serialized value that stay in the file of its checkpoint, or of its write."""
_ALL_INLINE: Final = 16 * _INLINE
"""The most bytes of all such values in one checkpoint, or of the writes that one task stores at once."""
_BLOCK: Final = 16
"""The number of checkpoints that a listing reads at once."""
_DEPTH: Final = 3
"""The segments in the path of a checkpoint."""


@dataclass(frozen=True)
class Threads:
    """The operations of a saver, over either view of its memory."""

    memory: AsyncAgentMemory
    serde: SerializerProtocol

    async def get(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read the checkpoint of a config, or the newest one of its namespace."""
        stored = await self._stored(config)
        if stored is None:
            return None
        return await self._tuple(stored, config if get_checkpoint_id(config) else stored.at.config)

    async def listed(
        self,
        config: RunnableConfig | None,
        wanted: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Read the checkpoints of a namespace, of a thread or of all threads, newest first."""
        found = await self._find(*(_place(config, None) if config else ()))
        only, first = (get_checkpoint_id(each) if each else None for each in (config, before))
        found = [at for at in found if (not only or at.id == only) and (not first or at.id < first)]
        left = len(found) if limit is None else limit
        async for stored in self._each(found[: None if wanted else max(left, 0)]):
            if left <= 0:
                return
            if all(stored.record["metadata"].get(name) == value for name, value in (wanted or {}).items()):
                try:
                    read = await self._tuple(stored, stored.at.config)
                except ReadError as error:
                    _log.warning("%s is skipped: %s", stored.at.path, error.args[0])
                    continue
                left -= 1
                yield read

    async def history(self, config: RunnableConfig, channels: Sequence[str]) -> Mapping[str, DeltaChannelHistory]:
        """Read what delta channels need: the writes of the ancestors until a value, oldest first, and the value."""
        found: dict[str, DeltaChannelHistory] = {channel: {"writes": []} for channel in channels}
        stored = await self._stored(config) if channels else None
        if stored is None:
            return found
        missing = set(channels)
        async for each in self._ancestors(stored):
            rows = [row for row in each.writes if row["channel"] in missing]
            values = {name: value for name, value in each.record["values"].items() if name in missing}
            load = await self._loader(each, [*values.values(), *(row["value"] for row in rows)])
            for row in reversed(rows):
                found[row["channel"]]["writes"].append((row["task"], row["channel"], load(row["value"])))
            for name, value in values.items():
                found[name]["seed"] = load(value)
            missing -= values.keys()
            if not missing:
                break
        for entry in found.values():
            entry["writes"].reverse()
        return found

    async def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, after its large values."""
        at, values, room = await self._recorded(config, checkpoint["id"]), dict[str, Record](), _ALL_INLINE
        for channel, value in checkpoint["channel_values"].items():
            version = checkpoint["channel_versions"].get(channel, at.id)
            name = hashlib.sha256(to_json([channel, version]).encode()).hexdigest()[:32]
            values[channel] = await self._keep(at, name, value, room, is_new=channel in new_versions)
            room -= len(values[channel].get("data", ""))
        rest = {name: value for name, value in checkpoint.items() if name != "channel_values"}
        record = {
            "parent": get_checkpoint_id(config),
            "metadata": get_checkpoint_metadata(config, metadata),
            "checkpoint": inline(*self.serde.dumps_typed(rest)),
            "values": values,
        }
        await self.memory.write(at.path, f"{to_json(record)}\n")
        return at.config

    async def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task: str, task_path: str
    ) -> None:
        """Append the writes of a task, after its large values."""
        at, rows = await self._recorded(config, config["configurable"]["checkpoint_id"]), list[Record]()
        room = _ALL_INLINE
        for number, (channel, value) in enumerate(writes):
            kept = await self._keep(at, uuid4().hex, value, room, is_new=True)
            room -= len(kept.get("data", ""))
            index = WRITES_IDX_MAP.get(channel, number)
            rows.append({"task": task, "index": index, "path": task_path, "channel": channel, "value": kept})
        await append_records(self.memory, at.writes, rows)

    async def delete_thread(self, thread: str) -> None:
        """Delete the checkpoints of a thread, then all its files."""
        await self._remove(at.path for at in await self._find(str(thread)))
        with suppress(AgentMemoryFileNotFoundError):
            await self.memory.delete_tree(encode_segment(str(thread)))

    async def delete_for_runs(self, runs: Sequence[str]) -> None:
        """Delete the checkpoints of runs in all threads, and what only they need."""
        gone = {runs} if isinstance(runs, str) else set(runs)
        facts = [facts_of(stored) async for stored in self._each(await self._find())] if gone else []
        await self._drop(facts, {each.at for each in facts if each.run not in gone})

    async def prune(self, threads: Sequence[str], strategy: str) -> None:
        """Delete the checkpoints of threads: all, or all but those that the newest one of each namespace needs."""
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"the strategy of a prune is 'keep_latest' or 'delete', not {strategy!r}")
        for thread in threads:
            if strategy == "delete":
                await self.delete_thread(thread)
            else:
                facts = [facts_of(stored) async for stored in self._each(await self._find(str(thread)))]
                await self._drop(facts, needed(facts))

    async def copy_thread(self, source: str, target: str) -> None:
        """Copy the files of a thread; what the target has already stays."""
        old, new = encode_segment(str(source)), await record_segment(self.memory, str(target))
        paths = [entry.path.removeprefix(old) for entry in await self.memory.list(old)] if old != new else []

        async def copy(path: str) -> None:
            try:
                await self.memory.copy(f"{old}{path}", f"{new}{path}")
            except FileAlreadyExistsError:
                if path.endswith(WRITES):
                    rows, present = await self._rows(f"{old}{path}"), await self._rows(f"{new}{path}")
                    known = set(map(key_of, present))
                    await append_records(self.memory, f"{new}{path}", [row for row in rows if key_of(row) not in known])

        for is_last in (False, True):  # a checkpoint after what it needs
            await done_each(self.memory, copy, [path for path in paths if path.endswith(SUFFIX) == is_last])

    async def _recorded(self, config: RunnableConfig, id_: str) -> At:
        """The place of a checkpoint, whose texts can be found again."""
        at = At(id_, *_place(config))
        for text in (at.thread, at.namespace):
            await record_segment(self.memory, text)
        await record_segment(self.memory, at.id, SUFFIX)
        return at

    async def _find(self, thread: str | None = None, namespace: str | None = None) -> list[At]:
        """The checkpoints of a namespace, of a thread or of all threads, newest first."""
        directory = "" if thread is None else encode_segment(thread)
        if namespace is not None:
            directory = f"{directory}/{encode_segment(namespace)}"
        entries = await self.memory.list(directory, recursive=namespace is None)
        texts, found = PathTexts(self.memory, SUFFIX), list[At]()
        for path in (entry.path for entry in entries if entry.path.endswith(SUFFIX)):
            names = await texts.of(path)
            if names and len(names) == _DEPTH:
                found.append(At(names[2], names[0], names[1]))
        return sorted(found, reverse=True)

    async def _stored(self, config: RunnableConfig) -> SavedCheckpoint | None:
        """What is stored of the checkpoint of a config, or of the newest one."""
        thread, namespace = _place(config)
        id_ = get_checkpoint_id(config)
        for at in [At(id_, thread, namespace)] if id_ else await self._find(thread, namespace):
            with suppress(AgentMemoryFileNotFoundError):  # else it was deleted after it was found
                return await self._read(at)
        return None

    async def _read(self, at: At) -> SavedCheckpoint:
        record = from_json(await self.memory.read_bytes(at.path))
        if not is_checkpoint(record):
            raise ReadError("the file holds no checkpoint", path=at.path)
        return SavedCheckpoint(at, record, await self._rows(at.writes))

    async def _rows(self, path: str) -> list[Record]:
        return await records(self.memory, path, lambda row: row if is_write(row) else None) or []

    async def _each(self, found: Sequence[At]) -> AsyncIterator[SavedCheckpoint]:
        """Read checkpoints in blocks; skip those that another process deleted, and, with a warning, unreadable ones."""
        for start in range(0, len(found), _BLOCK):
            block = found[start : start + _BLOCK]
            for _, stored in await found_each(self.memory, self._read, block, lambda at: at.path):
                yield stored

    async def _ancestors(self, stored: SavedCheckpoint) -> AsyncIterator[SavedCheckpoint]:
        """The parent of a checkpoint, its parent and so on; read in blocks, because parents are mostly neighbours."""
        found = await self._find(stored.at.thread, stored.at.namespace)
        numbers, block = {at.id: number for number, at in enumerate(found)}, dict[str, SavedCheckpoint]()
        while (parent := stored.record["parent"]) in numbers:
            if parent not in block:
                start = numbers[parent]
                block = {each.at.id: each async for each in self._each(found[start : start + _BLOCK])}
            if parent not in block:
                raise ReadError("an ancestor of the checkpoint cannot be read", path=stored.at.path)
            stored = block[parent]
            yield stored

    async def _tuple(self, stored: SavedCheckpoint, config: RunnableConfig) -> CheckpointTuple:
        at, record, writes = stored.at, stored.record, stored.writes
        values = [record["checkpoint"], *record["values"].values(), *(row["value"] for row in writes)]
        load = await self._loader(stored, values)
        checkpoint = load(record["checkpoint"])
        if not isinstance(checkpoint, dict):
            raise ReadError("the file holds no checkpoint", path=at.path)
        checkpoint["channel_values"] = {channel: load(value) for channel, value in record["values"].items()}
        parent = At(record["parent"], at.thread, at.namespace).config if record["parent"] else None
        pending = [(row["task"], row["channel"], load(row["value"])) for row in writes]
        return CheckpointTuple(config, checkpoint, record["metadata"], parent, pending)

    async def _loader(self, stored: SavedCheckpoint, values: Iterable[Record]) -> Callable[[Record], Any]:
        """A function that deserializes the given values, whose files are read before."""
        directory = stored.at.directory
        files = await self.memory.read_many(sorted(stored.files(values)), missing_ok=True, bytes=True)

        def load(value: Record) -> Any:
            path = f"{directory}/{value['file']}" if "file" in value else None
            if path is not None and path not in files:
                raise ReadError("the file of a value is missing", path=stored.at.path)
            try:
                data = files[path] if path is not None else b64decode(value["data"], validate=True)
                return self.serde.loads_typed((value["type"], data))
            except Exception as error:  # of any serializer
                raise ReadError(f"a value cannot be read: {type(error).__name__}", path=stored.at.path) from error

        return load

    async def _keep(self, at: At, name: str, value: object, room: int, *, is_new: bool) -> Record:
        """A value as a record has it; a large one, or one without room in its record, is stored in a file."""
        kind, data = self.serde.dumps_typed(value)
        if len(data) <= min(_INLINE, room):
            return inline(kind, data)
        file = f"{name}.value"
        path = f"{at.directory}/{file}"
        if is_new:
            await self.memory.write(path, data)
        elif not await self.memory.exists(path):  # the value changed in place, or another process deleted the thread
            with suppress(FileAlreadyExistsError):
                await self.memory.create(path, data)
        return {"type": kind, "file": file}

    async def _remove(self, paths: Iterable[str]) -> None:
        await done_each(self.memory, partial(remove, self.memory), paths)

    async def _drop(self, facts: Sequence[CheckpointFacts], kept: set[At]) -> None:
        """Delete the checkpoints that are not kept, and then what only they need."""
        dropped = [each for each in facts if each.at not in kept]
        needed = {file for each in facts if each.at in kept for file in each.files}
        await self._remove(each.at.path for each in dropped)
        await self._remove(each.at.writes for each in dropped)
        await self._remove(sorted({file for each in dropped for file in each.files} - needed))


def _place(config: RunnableConfig, default: Any = "") -> tuple[str, Any]:
    """The thread and the namespace of a config."""
    configurable = config["configurable"]
    return str(configurable["thread_id"]), configurable.get("checkpoint_ns", default)
