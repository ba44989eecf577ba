"""What the files of LangGraph's threads hold: the record of a checkpoint, and the rows of the writes after it."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from agent_memory.integrations.toolkit import unusable
from agent_memory.key import encode_segment

try:
    from langchain_core.runnables import RunnableConfig
except ImportError as error:
    raise unusable("langgraph-checkpoint", "langgraph", error) from error

SUFFIX: Final = ".json"
WRITES: Final = ".jsonl"
_VALUE_FILE = re.compile(r"[0-9a-f]{32}\.value")
Record: TypeAlias = dict[str, Any]


class At(NamedTuple):
    """Where a checkpoint is; its order is that of the ids."""

    id: str
    thread: str
    namespace: str

    @property
    def directory(self) -> str:
        return f"{encode_segment(self.thread)}/{encode_segment(self.namespace)}"

    @property
    def path(self) -> str:
        return f"{self.directory}/{encode_segment(self.id, SUFFIX)}"

    @property
    def writes(self) -> str:
        return f"{self.directory}/{encode_segment(self.id, WRITES)}"

    @property
    def config(self) -> RunnableConfig:
        return {
            "configurable": {
                "thread_id": self.thread,
                "checkpoint_ns": self.namespace,
                "checkpoint_id": self.id,
            }
        }


class SavedCheckpoint(NamedTuple):
    """The records of a checkpoint, and of the writes after it as they were appended."""

    at: At
    record: Record
    rows: Sequence[Record]

    @property
    def writes(self) -> list[Record]:
        """The writes in the order of the run: the first one of each, of a special channel the last."""
        found: dict[tuple[str, int], Record] = {}
        for row in self.rows:
            if row["index"] < 0 or key_of(row) not in found:
                found[key_of(row)] = row
        return sorted(found.values(), key=itemgetter("path", "task", "index"))  # as `writes_sort_key` of the framework

    def files(self, values: Iterable[Record]) -> set[str]:
        """The paths of values that have files."""
        directory = self.at.directory
        return {f"{directory}/{value['file']}" for value in values if "file" in value}


@dataclass(frozen=True)
class CheckpointFacts:
    """What decides whether a checkpoint goes, and which files go with it."""

    at: At
    run: str | None
    parent: str | None
    filled: frozenset[str]
    deltas: frozenset[str]
    files: frozenset[str]


def inline(kind: str, data: bytes) -> Record:
    return {"type": kind, "data": b64encode(data).decode()}


def key_of(row: Record) -> tuple[str, int]:
    return row["task"], row["index"]


def is_checkpoint(record: Any) -> bool:
    try:
        values = [record["checkpoint"], *record["values"].values()]
        is_whole = isinstance(record["metadata"], dict) and isinstance(record["parent"], str | None)
    except (AttributeError, KeyError, TypeError):
        return False
    return is_whole and all(map(is_value, values))


def is_value(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("type"), str) or ("data" in value) == ("file" in value):
        return False
    return isinstance(value.get("data"), str) or bool(_VALUE_FILE.fullmatch(str(value.get("file"))))


def is_write(row: Any) -> bool:
    kinds = {"task": str, "index": int, "path": str, "channel": str}
    is_row = isinstance(row, dict) and all(isinstance(row.get(name), kind) for name, kind in kinds.items())
    return is_row and is_value(row.get("value"))


def facts_of(stored: SavedCheckpoint) -> CheckpointFacts:
    metadata, values = stored.record["metadata"], stored.record["values"]
    run = metadata.get("run_id")
    return CheckpointFacts(
        stored.at,
        run if isinstance(run, str) else None,
        stored.record["parent"],
        frozenset(values),
        frozenset(metadata.get("counters_since_delta_snapshot") or ()),
        frozenset(stored.files([*values.values(), *(row["value"] for row in stored.rows)])),
    )


def needed(facts: Sequence[CheckpointFacts]) -> set[At]:
    """The newest checkpoint of each namespace, and its ancestors until each of its delta channels has a value."""
    by_place, kept = {each.at: each for each in facts}, set[At]()
    newest = {each.at.namespace: each for each in sorted(facts, key=lambda each: each.at)}
    for last in newest.values():
        each: CheckpointFacts | None = last
        missing = last.deltas
        while each:
            kept.add(each.at)
            missing -= each.filled
            each = by_place.get(each.at._replace(id=each.parent)) if missing and each.parent else None
    return kept
