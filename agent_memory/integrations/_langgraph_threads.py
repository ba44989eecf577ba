"""The files of LangGraph's threads: their checkpoints, the writes after each, and large values.

`agent_memory.integrations.langgraph_saver` has the saver over them.
"""

from __future__ import annotations

import hashlib
import logging
import re
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import uuid4

from agent_memory.errors import AgentMemoryFileNotFoundError, FileAlreadyExistsError, ReadError
from agent_memory.integrations.toolkit import (
    append_records,
    done_each,
    from_json,
    known_text,
    read_each,
    record_segment,
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
        writes_sort_key,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol
except ImportError as error:
    raise unusable("langgraph-checkpoint", "langgraph", error) from error

__all__ = ["Threads"]

_log = logging.getLogger(__name__)
_SUFFIX: Final = ".json"
_WRITES: Final = ".jsonl"
_INLINE: Final = 65_536
"""The most bytes of a serialized value that stay in the file of its checkpoint, or of its write."""
_VALUE_FILE = re.compile(r"[0-9a-f]{32}\.value")
_BLOCK: Final = 16
"""The number of checkpoints that a listing reads at once."""
_MOST_KNOWN: Final = 10_000
_Record: TypeAlias = dict[str, Any]


class _At(NamedTuple):
    """Where a checkpoint is; its order is that of the ids."""

    id: str
    thread: str
    namespace: str

    @property
    def directory(self) -> str:
        return f"{encode_segment(self.thread)}/{encode_segment(self.namespace)}"

    @property
    def path(self) -> str:
        return f"{self.directory}/{encode_segment(self.id, _SUFFIX)}"

    @property
    def writes(self) -> str:
        return f"{self.directory}/{encode_segment(self.id, _WRITES)}"

    @property
    def config(self) -> RunnableConfig:
        return {
            "configurable": {
                "thread_id": self.thread,
                "checkpoint_ns": self.namespace,
                "checkpoint_id": self.id,
            }
        }


class _SavedCheckpoint(NamedTuple):
    """The records of a checkpoint and of the writes after it, in their order."""

    at: _At
    record: _Record
    writes: Sequence[_Record]

    @property
    def values(self) -> list[_Record]:
        return [self.record["checkpoint"], *self.record["values"].values(), *(row["value"] for row in self.writes)]


@dataclass(frozen=True)
class _Facts:
    """What decides whether a checkpoint goes, and which files go with it."""

    at: _At
    run: object
    parent: str | None
    filled: frozenset[str]
    deltas: frozenset[str]
    files: frozenset[str]


@dataclass(frozen=True)
class Threads:
    """The operations of a saver, over either view of its memory.

    Attributes:
        known: the paths of values that are stored.
    """

    memory: AsyncAgentMemory
    serde: SerializerProtocol
    known: dict[str, None]

    async def get(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read the checkpoint of a config, or the newest one of its namespace."""
        thread, namespace = _place(config)
        at = _At(get_checkpoint_id(config) or "", thread, namespace)
        if not at.id:
            found = await self._find(thread, namespace)
            if not found:
                return None
            at, config = found[0], found[0].config
        data, lines = await self.memory._map(self._bytes, (at.path, at.writes))
        if data is None:
            return None
        if (stored := _stored(at, data, lines)) is None:
            raise ReadError("the file holds no checkpoint", path=at.path)
        return await self._tuple(stored, config)

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
        found = [at for at in found if only in (None, at.id) and (first is None or at.id < first)]
        left = len(found) if limit is None else limit
        async for stored in self._each(found):
            if left <= 0:
                return
            if all(stored.record["metadata"].get(name) == value for name, value in (wanted or {}).items()):
                left -= 1
                yield await self._tuple(stored, stored.at.config)

    async def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, after its large values."""
        at, values = await self._recorded(config, checkpoint["id"]), dict[str, _Record]()
        for channel, value in checkpoint["channel_values"].items():
            version = checkpoint["channel_versions"].get(channel, at.id)
            name = hashlib.sha256(to_json([channel, version]).encode()).hexdigest()[:32]
            values[channel] = await self._keep(at, name, value, is_new=channel in new_versions)
        rest = {name: value for name, value in checkpoint.items() if name != "channel_values"}
        record = {
            "parent": get_checkpoint_id(config),
            "metadata": get_checkpoint_metadata(config, metadata),
            "checkpoint": _inline(*self.serde.dumps_typed(rest)),
            "values": values,
        }
        await self.memory.write(at.path, f"{to_json(record)}\n")
        return at.config

    async def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task: str, task_path: str
    ) -> None:
        """Append the writes of a task, after its large values."""
        at, rows = await self._recorded(config, config["configurable"]["checkpoint_id"]), list[_Record]()
        for number, (channel, value) in enumerate(writes):
            kept = await self._keep(at, uuid4().hex, value, is_new=True)
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
        facts = [_facts(stored) async for stored in self._each(await self._find())] if runs else []
        await self._drop(facts, {each.at for each in facts if each.run not in runs})

    async def prune(self, threads: Sequence[str], strategy: str) -> None:
        """Delete the checkpoints of threads: all, or all but those that the newest one of each namespace needs."""
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"the strategy of a prune is 'keep_latest' or 'delete', not {strategy!r}")
        for thread in threads:
            if strategy == "delete":
                await self.delete_thread(thread)
            else:
                facts = [_facts(stored) async for stored in self._each(await self._find(str(thread)))]
                await self._drop(facts, _needed(facts))

    async def copy_thread(self, source: str, target: str) -> None:
        """Copy the files of a thread; what the target has already stays."""
        old, new = encode_segment(str(source)), await record_segment(self.memory, str(target))
        paths = [entry.path.removeprefix(old) for entry in await self.memory.list(old)]

        async def copy(path: str) -> None:
            try:
                await self.memory.copy(f"{old}{path}", f"{new}{path}")
            except FileAlreadyExistsError:
                if path.endswith(_WRITES):  # the lines that it has already do not count again
                    await self.memory.append(f"{new}{path}", await self.memory.read(f"{old}{path}"), separator="\n")

        for is_last in (False, True):  # a checkpoint after what it needs
            await done_each(self.memory, copy, [path for path in paths if path.endswith(_SUFFIX) == is_last])

    async def _recorded(self, config: RunnableConfig, id_: str) -> _At:
        """The place of a checkpoint, whose texts can be found again."""
        at = _At(id_, *_place(config))
        for text in (at.thread, at.namespace):
            await record_segment(self.memory, text)
        await record_segment(self.memory, at.id, _SUFFIX)
        return at

    async def _find(self, thread: str | None = None, namespace: str | None = None) -> list[_At]:
        """The checkpoints of a namespace, of a thread or of all threads, newest first."""
        directory = "" if thread is None else encode_segment(thread)
        if namespace is not None:
            directory = f"{directory}/{encode_segment(namespace)}"
        entries = await self.memory.list(directory, recursive=namespace is None)
        known, found = dict[str, str | None](), list[_At]()
        for path in (entry.path for entry in entries if entry.path.endswith(_SUFFIX)):
            segments = path.split("/")
            for segment in segments:
                if segment not in known:
                    suffix = _SUFFIX if segment == segments[-1] else ""
                    known[segment] = await known_text(self.memory, segment, suffix)
            texts = [text for segment in segments if (text := known[segment]) is not None]
            if len(texts) == len(segments) == 3:
                found.append(_At(texts[2], texts[0], texts[1]))
        return sorted(found, reverse=True)

    async def _each(self, found: Sequence[_At]) -> AsyncIterator[_SavedCheckpoint]:
        """What is stored of checkpoints; those that are gone meanwhile or unreadable are skipped."""
        for start in range(0, len(found), _BLOCK):
            block = found[start : start + _BLOCK]
            read = await read_each(self.memory, [path for at in block for path in (at.path, at.writes)])
            for at in block:
                stored = _stored(at, read[at.path], read.get(at.writes)) if at.path in read else None
                if stored:
                    yield stored
                elif at.path in read:
                    _log.warning("%s holds no checkpoint and is skipped", at.path)

    async def _tuple(self, stored: _SavedCheckpoint, config: RunnableConfig) -> CheckpointTuple:
        at, record = stored.at, stored.record
        paths = list({f"{at.directory}/{value['file']}" for value in stored.values if "file" in value})
        files = dict(zip(paths, await self.memory._map(self._bytes, paths), strict=True))
        self._remember(paths)

        def loaded(value: _Record) -> Any:
            data = b64decode(value["data"]) if "data" in value else files[f"{at.directory}/{value['file']}"]
            if data is None:
                raise ReadError("the file of a value is missing", path=at.path)
            return self.serde.loads_typed((value["type"], data))

        checkpoint = loaded(record["checkpoint"])
        checkpoint["channel_values"] = {channel: loaded(value) for channel, value in record["values"].items()}
        parent = _At(record["parent"], at.thread, at.namespace).config if record["parent"] else None
        writes = [(row["task"], row["channel"], loaded(row["value"])) for row in stored.writes]
        return CheckpointTuple(config, checkpoint, record["metadata"], parent, writes)

    async def _keep(self, at: _At, name: str, value: object, *, is_new: bool) -> _Record:
        """A value as a record has it; a large one is stored in a file, unless that is known to be there."""
        kind, data = self.serde.dumps_typed(value)
        if len(data) <= _INLINE:
            return _inline(kind, data)
        file = f"{name}.value"
        path = f"{at.directory}/{file}"
        if is_new:
            await self.memory.write(path, data)
        elif path not in self.known:
            with suppress(FileAlreadyExistsError):
                await self.memory.create(path, data)
        self._remember([path])
        return {"type": kind, "file": file}

    def _remember(self, paths: Iterable[str]) -> None:
        if len(self.known) > _MOST_KNOWN:
            self.known.clear()
        self.known.update(dict.fromkeys(paths))

    async def _bytes(self, path: str) -> bytes | None:
        try:
            return await self.memory.read_bytes(path)
        except AgentMemoryFileNotFoundError:
            return None

    async def _remove(self, paths: Iterable[str]) -> None:
        await done_each(self.memory, partial(remove, self.memory), paths)

    async def _drop(self, facts: Sequence[_Facts], kept: set[_At]) -> None:
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


def _inline(kind: str, data: bytes) -> _Record:
    return {"type": kind, "data": b64encode(data).decode()}


def _stored(at: _At, data: bytes, lines: bytes | None) -> _SavedCheckpoint | None:
    """The records of two files; None if the first one holds no checkpoint."""
    record = from_json(data)
    try:
        values = [record["checkpoint"], *record["values"].values()]
        is_whole = isinstance(record["metadata"], dict) and isinstance(record["parent"], str | None)
    except (AttributeError, KeyError, TypeError):
        return None
    return _SavedCheckpoint(at, record, _writes(lines or b"")) if is_whole and all(map(_is_value, values)) else None


def _is_value(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    return isinstance(value.get("data"), str) or bool(_VALUE_FILE.fullmatch(str(value.get("file"))))


def _writes(lines: bytes) -> list[_Record]:
    """The writes after a checkpoint in the order of the run: the first one of each, of a special channel the last."""
    found: dict[tuple[str, int], _Record] = {}
    for line in lines.splitlines():
        row = from_json(line)
        if _is_write(row) and (row["index"] < 0 or (row["task"], row["index"]) not in found):
            found[row["task"], row["index"]] = row
    return sorted(found.values(), key=lambda row: writes_sort_key(row["path"], row["task"], row["index"]))


def _is_write(row: Any) -> bool:
    kinds = {"task": str, "index": int, "path": str, "channel": str}
    is_row = isinstance(row, dict) and all(isinstance(row.get(name), kind) for name, kind in kinds.items())
    return is_row and _is_value(row.get("value"))


def _facts(stored: _SavedCheckpoint) -> _Facts:
    metadata, values = stored.record["metadata"], stored.record["values"]
    return _Facts(
        stored.at,
        metadata.get("run_id"),
        stored.record["parent"],
        frozenset(values),
        frozenset(metadata.get("counters_since_delta_snapshot") or ()),
        frozenset(f"{stored.at.directory}/{value['file']}" for value in stored.values if "file" in value),
    )


def _needed(facts: Sequence[_Facts]) -> set[_At]:
    """The newest checkpoint of each namespace, and its ancestors until each of its delta channels has a value."""
    by_place, needed = {each.at: each for each in facts}, set[_At]()
    for namespace in {each.at.namespace for each in facts}:
        each: _Facts | None = max((one for one in facts if one.at.namespace == namespace), key=lambda one: one.at)
        missing = each.deltas if each else frozenset[str]()
        while each:
            needed.add(each.at)
            missing -= each.filled
            each = by_place.get(each.at._replace(id=each.parent)) if missing and each.parent else None
    return needed
