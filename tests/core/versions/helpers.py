"""What the tests of versions share."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from agent_memory import (
    AgentMemory,
    FileVersion,
    MadeBy,
    OutcomeUnknownError,
    VersionLimits,
)
from agent_memory.backend import Key
from agent_memory.core import tree_flows
from agent_memory.core.versions.find import Histories
from agent_memory.core.versions.reader import ListedRecord
from agent_memory.core.versions.record import records_of
from agent_memory.object_store.conditional_write import Write
from agent_memory.registry import open_backend
from agent_memory.runtime.run import step
from tests.support.servers import Root

ON = VersionLimits()


def opened(root: Root, versions: VersionLimits | None = ON, **options: Any) -> AgentMemory:
    return AgentMemory.open(root.url, storage_options=root.options, versions=versions, **options)


def contents(memory: AgentMemory, path: str) -> list[str]:
    """The contents of a file's versions, oldest first, with the current one."""
    found = memory.versions.list(path)
    return [memory.read(path) if each.ended_by is None else memory.versions.read(path, each.id) for each in found][::-1]


def files(memory: AgentMemory) -> dict[str, str]:
    """The content of each file."""
    return {entry.path: memory.read(entry.path) for entry in memory.list()}


def refuse_outcome(*_: object, **__: object) -> Any:
    raise OutcomeUnknownError("stopped")


def who(by: MadeBy | None) -> tuple[object, ...]:
    """An operation without its time: a state ends a moment after its record is written."""
    return by.facts[:3] if by else ()


def operations(versions: tuple[FileVersion, ...]) -> list[tuple[str | None, str | None]]:
    return [
        (each.made_by.operation if each.made_by else None, each.ended_by.operation if each.ended_by else None)
        for each in versions
    ]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def records(root: Root) -> list[Key]:
    """The names of all records of a tree without agents."""
    backend: Any = open_backend(root.url, root.options)
    with AgentMemory.open(backend) as memory:
        listed = step(tree_flows.list_all(backend, memory._run, records_of(None)))
        return [entry.key for entry in listed.entries]


def opened_with_small_calls(root: Root, plugins: Sequence[object] = ()) -> AgentMemory:
    """A memory that keeps versions, with calls of at most 6 MB."""
    backend: Any = open_backend(root.url, root.options)
    backend.max_bytes, backend.part_bytes = 6_000_000, 5 << 20
    return AgentMemory.open(backend, versions=ON, plugins=plugins)


def list_with_few_times(monkeypatch: pytest.MonkeyPatch, cuts: Sequence[int] = (), *, is_reversed: bool) -> None:
    """List records as a storage of whole seconds may do.

    In the order of their true times, those between two cuts have one time. They are listed in this order or reversed.
    """
    names = Histories.names

    async def listed(histories: Histories, history: str = "") -> list[ListedRecord]:
        keys = [each.key for each in sorted(await names(histories), key=lambda each: each.modified)]
        times = {key: 1e9 + sum(cut <= index for cut in cuts) for index, key in enumerate(keys)}
        found = [
            ListedRecord(replace(each.entry, modified=times[each.key]), each.name)
            for each in await names(histories, history)
        ]
        return sorted(found, key=lambda each: keys.index(each.key), reverse=is_reversed)

    monkeypatch.setattr(Histories, "names", listed)


def settle_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file get the content that it had before, as on S3 after the five minutes in which a request may be late."""
    monkeypatch.setattr(Write, "avoided", lambda *_: {})
