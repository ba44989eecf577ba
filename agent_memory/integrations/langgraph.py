"""LangGraph's `BaseStore` over a memory. Needs ``pip install 'agent-memory-files[langgraph]'``."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time
from enum import Enum
from functools import partial
from itertools import chain, groupby, takewhile
from math import inf
from typing import Any, TypedDict
from uuid import UUID

from agent_memory.backend import Entry
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    InvalidContentError,
    InvalidPathError,
    ReadError,
)
from agent_memory.integrations.toolkit import (
    AnyMemory,
    PathTexts,
    ReadCache,
    async_view,
    attempt_each,
    checked_id,
    from_json,
    mapped_errors,
    raise_failed,
    record_segment,
    remove,
    step,
    sync_view,
    to_json,
    unusable,
)
from agent_memory.key import encode_segment
from agent_memory.memory import AsyncAgentMemory

try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        InvalidNamespaceError,
        Item,
        ListNamespacesOp,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
    )
    from langgraph.store.memory import InMemoryStore
except ImportError as error:
    raise unusable("langgraph-checkpoint", "langgraph", error) from error

__all__ = ["AgentMemoryStore"]

_log = logging.getLogger(__name__)
_SUFFIX = ".json"  # no label contains a dot, so no namespace's directory has this end
_BLOCK = 64
"""The most files that a search reads before it counts its matches, and as many as the storage wrote at one time."""
_NO_MEANING = "a search ranks by the words of its query: this store has no vectors, so no search by meaning"


class AgentMemoryStore(BaseStore):
    """A store of items for graphs and agents, without vectors and without expiry.

    An item is the file ``<label>/<label>/<key>.json`` with its value, ``created_at`` and ``updated_at``. Labels and
    keys may be any str, encoded by `agent_memory.encode_segment`; one over 240 bytes is kept in ``.texts/``, also after
    its items are deleted. A put keeps ``created_at``. A search returns the newest items first, by the storage's times;
    with a ``query``, first those that have more of its words in their values. Other operations in a batch see the state
    before its puts; puts of several items are not one step.

    Args:
        memory: the tree of the items.

    Raises `InvalidNamespaceError` also for an item whose path has over 768 bytes or 32 segments, `NotImplementedError`
    for a ``ttl``, `InvalidContentError` (a ValueError) for a value that JSON cannot store, and the errors of
    `AgentMemory`. A file that holds no item is skipped by a search, with a warning in the log; ``get`` raises
    `ReadError`, and ``put`` replaces it.

    Items that a search read stay in memory, 64 MiB of them, until a listing shows that they changed; see `ReadCache`.
    """

    def __init__(self, memory: AnyMemory) -> None:
        self._sync, self._async = sync_view(memory), async_view(memory)
        self._cache = ReadCache(memory)
        self._has_told = False

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """See `BaseStore.batch`."""
        return step(_batch(self._sync, self._cache, self._told(ops)))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """See `BaseStore.batch`."""
        return await _batch(self._async, self._cache, self._told(ops))

    def _told(self, ops: Iterable[Op]) -> list[Op]:
        """Say once in the log what a query means here."""
        asked = list(ops)
        if not self._has_told and any(isinstance(op, SearchOp) and op.query for op in asked):
            self._has_told = True
            _log.warning(_NO_MEANING)
        return asked


class _ItemRecord(TypedDict):
    value: dict[str, Any]
    created_at: datetime
    updated_at: datetime


async def _batch(memory: AsyncAgentMemory, cache: ReadCache, ops: Iterable[Op]) -> list[Result]:
    async def put(path: str) -> None:
        await _put(memory, path, puts[path])

    checked = [_checked(op) for op in ops]
    gets = [_path(op) for op in checked if isinstance(op, GetOp)]
    puts = {_path(op): op for op in checked if isinstance(op, PutOp)}
    failed: dict[str, AgentMemoryError] = {}
    with mapped_errors({InvalidPathError: lambda error: InvalidNamespaceError(str(error))}):
        found = await attempt_each(memory, partial(_record, memory), dict.fromkeys(gets), failed)
        results = [await _result(memory, cache, op, found) for op in checked]
        await attempt_each(memory, put, puts, failed)
        raise_failed(failed, [*gets, *puts])
    return results


def _checked(op: Op) -> Op:
    if not isinstance(op, GetOp | SearchOp | PutOp | ListNamespacesOp):
        raise ValueError(f"Unknown operation type: {type(op)}")
    for label in chain(*_given_namespaces(op)):
        if not _is_label(label):
            raise InvalidNamespaceError(f"a label must be a text with characters, but no period and no NUL: {label!r}")
    if isinstance(op, PutOp) and op.value is not None:
        if op.ttl is not None:
            raise NotImplementedError("this store keeps an item until it is deleted: pass ttl=None")
        return op._replace(value=_stored(op.value))
    return op


def _given_namespaces(op: Op) -> list[Sequence[object]]:
    if isinstance(op, ListNamespacesOp):
        return [condition.path for condition in op.match_conditions or ()]
    return [op.namespace_prefix if isinstance(op, SearchOp) else op.namespace]


def _path(op: GetOp | PutOp) -> str:
    return f"{_directory(op.namespace)}/{encode_segment(checked_id('a key', op.key), _SUFFIX)}".removeprefix("/")


def _directory(namespace: Sequence[str]) -> str:
    if isinstance(namespace, str):
        raise InvalidNamespaceError("a namespace is a tuple of labels, not a str")
    return "/".join(map(encode_segment, namespace))


async def _record(memory: AsyncAgentMemory, path: str) -> _ItemRecord | None:
    """The record of a file; None without a file."""
    try:
        data = await memory.read_bytes(path)
    except AgentMemoryFileNotFoundError:
        return None
    if (record := _parsed(data)) is None:
        raise ReadError("the file holds no item", path=path)
    return record


async def _result(
    memory: AsyncAgentMemory, cache: ReadCache, op: Op, found: Mapping[str, _ItemRecord | None]
) -> Result:
    if isinstance(op, GetOp):
        return _item(op, found.get(_path(op)))
    if isinstance(op, SearchOp):
        return await _search(memory, cache, op)
    return await _namespaces(memory, op) if isinstance(op, ListNamespacesOp) else None


def _item(op: GetOp, record: _ItemRecord | None) -> Item | None:
    if record is None:
        return None
    return Item(key=op.key, namespace=tuple(op.namespace), **record)


def _parsed(data: bytes) -> _ItemRecord | None:
    """The record of a file; None if it holds none."""
    record = from_json(data)
    try:
        value = record["value"]
        times = [datetime.fromisoformat(record[name]) for name in ("created_at", "updated_at")]
    except (KeyError, TypeError, ValueError):
        return None
    is_item = isinstance(value, dict) and all(time.tzinfo for time in times)
    return _ItemRecord(value=value, created_at=times[0], updated_at=times[1]) if is_item else None


async def _put(memory: AsyncAgentMemory, path: str, op: PutOp) -> None:
    if op.value is None:
        await remove(memory, path)
        return
    value = op.value

    def replaced(old: bytes) -> bytes:
        now, record = datetime.now(UTC), _parsed(old)
        created_at = record["created_at"] if record else now
        times = {"created_at": created_at.isoformat(), "updated_at": max(created_at, now).isoformat()}
        return f"{to_json({'value': value, **times})}\n".encode()

    for label in op.namespace:
        await record_segment(memory, label)
    await record_segment(memory, op.key, _SUFFIX)
    await memory.edit_bytes(path, replaced, missing=b"")


async def _search(memory: AsyncAgentMemory, cache: ReadCache, op: SearchOp) -> list[SearchItem]:
    entries, texts, items = await _files(memory, op.namespace_prefix), _texts(memory), list[SearchItem]()
    stop = op.offset + op.limit if min(op.offset, op.limit) >= 0 else inf  # a slice counts negative bounds from the end
    words = _words(op.query or "")
    if words:
        stop = inf  # the best items may be the oldest ones
    size = _BLOCK if op.filter else int(max(1, min(stop, _BLOCK)))
    for portion in _newest_first(entries, size):
        if len(items) >= stop:
            break
        found = _matching(await cache.read(memory, portion), op.filter)
        for path, record in sorted(found, key=lambda each: each[1]["updated_at"], reverse=True):
            if names := await texts.of(path):
                items.append(SearchItem(names[:-1], names[-1], **record))
    if words:
        items.sort(key=lambda item: len(words & _words("\n".join(_leaves(item.value)))), reverse=True)
    return items[op.offset : op.offset + op.limit]


def _newest_first(entries: Iterable[Entry], size: int) -> Iterator[list[Entry]]:
    """The files in portions of at least ``size``; those that the storage wrote at one time are in one portion."""
    portion: list[Entry] = []
    for _, group in groupby(sorted(entries, key=_modified, reverse=True), _modified):
        portion += group
        if len(portion) >= size:
            yield portion
            portion = []
    yield portion


def _modified(entry: Entry) -> float:
    return entry.modified


def _leaves(value: Any) -> Iterator[str]:
    """The texts and numbers in the value of an item."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _leaves(each)
    else:
        yield str(value)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


def _matching(found: Mapping[str, bytes], wanted: dict[str, Any] | None) -> list[tuple[str, _ItemRecord]]:
    """The records that a filter selects; LangGraph's own store applies it, so that it means the same here."""
    parsed = {path: _parsed(data) for path, data in found.items()}
    if damaged := [path for path, record in parsed.items() if record is None]:
        _log.warning("%d files hold no item and are skipped; one is %s", len(damaged), damaged[0])
    records = {path: record for path, record in parsed.items() if record is not None}
    store = InMemoryStore()
    store.batch([PutOp((), path, record["value"]) for path, record in records.items()])
    return [(each.key, records[each.key]) for each in store.search((), filter=wanted, limit=len(records))]


async def _namespaces(memory: AsyncAgentMemory, op: ListNamespacesOp) -> Result:
    prefix = next((each.path for each in op.match_conditions or () if each.match_type == "prefix"), ())
    files, texts = await _files(memory, tuple(takewhile(lambda label: label != "*", prefix))), _texts(memory)
    found = [
        await texts.of(directory, is_file=False) for directory in {entry.path.rpartition("/")[0] for entry in files}
    ]
    store = InMemoryStore()
    store.batch([PutOp(namespace, "", {}) for namespace in found if namespace is not None])
    return store.batch([op])[0]


async def _files(memory: AsyncAgentMemory, namespace: Sequence[str]) -> list[Entry]:
    return [entry for entry in await memory.list(_directory(namespace)) if entry.path.endswith(_SUFFIX)]


def _texts(memory: AsyncAgentMemory) -> PathTexts:
    """The labels and the key of a file, or the labels of a directory."""
    return PathTexts(memory, _SUFFIX, _is_label)


def _is_label(label: object) -> bool:
    """As `validate_op_namespace` of langgraph-checkpoint 4.3 decides; earlier ones lack it."""
    return isinstance(label, str) and label != "" and "." not in label and "\0" not in label


def _stored(value: Mapping[str, Any]) -> dict[str, Any]:
    """A value as its file has it; raises `InvalidContentError` if JSON cannot store it."""
    try:
        stored: dict[str, Any] = _storable(dict(value))
    except RecursionError:
        raise InvalidContentError("the record cannot be stored as JSON: RecursionError") from None
    to_json(stored)
    return stored


def _storable(value: Any, at: str = "the value") -> Any:
    """The JSON of a value as LangGraph's own stores have it: times, UUIDs, enums and dataclasses too.

    Raises:
        InvalidContentError: the key of a dict is no str, for the file could have it twice.
    """
    if isinstance(value, Enum):
        return _storable(value.value, at)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise InvalidContentError(f"{at} has the key {key!r}, a {type(key).__name__}: keys must be str")
        return {str(key): _storable(each, f"{at}[{key!a}]") for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(each, f"{at}[{number}]") for number, each in enumerate(value)]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _storable(getattr(value, each.name), f"{at}.{each.name}") for each in fields(value)}
    if value is None or isinstance(value, str | int | float):
        return value
    raise InvalidContentError(f"{at} is a {type(value).__name__}, which JSON cannot store")
