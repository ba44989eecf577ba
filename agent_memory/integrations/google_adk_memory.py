"""Memories of Google's Agent Development Kit; `agent_memory.integrations.google_adk` exports the class.

Needs ``pip install 'agent-memory-files[google-adk]'``.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from agent_memory.backend import Entry
from agent_memory.integrations import toolkit as kit
from agent_memory.key import encode_segment

try:
    from google.adk.events import Event
    from google.adk.memory import BaseMemoryService, InMemoryMemoryService
    from google.adk.memory.base_memory_service import SearchMemoryResponse
    from google.adk.memory.memory_entry import MemoryEntry
    from google.adk.sessions import Session
    from google.genai import types
    from pydantic import BaseModel
except ImportError as error:
    raise kit.unusable("google-adk", "google-adk", error) from error

__all__ = ["AgentMemoryMemoryService"]

_log = logging.getLogger("agent_memory")
_END: Final = ".jsonl"
_DELETED: Final = ".deleted.jsonl"
_NO_SESSION: Final = ".no-session.jsonl"  # the file of a session never begins with a dot


class _EventRecord(BaseModel):
    """One line of a file: an event with text, or a memory that was added as such."""

    id: str
    author: str | None = None
    timestamp: float | str | None = None
    content: types.Content
    custom_metadata: dict[str, Any] = {}

    def line(self) -> bytes:
        return kit.to_json(self.model_dump(mode="json", exclude_none=True, exclude_defaults=True)).encode()

    def time(self) -> float:
        return self.timestamp if isinstance(self.timestamp, float) else 0.0

    def as_entry(self, found: MemoryEntry) -> MemoryEntry:
        """What a search returns for this record, from what the framework's search returned."""
        timestamp = found.timestamp if isinstance(self.timestamp, float) else self.timestamp
        changes = {"id": self.id, "author": self.author, "timestamp": timestamp}
        return found.model_copy(update={**changes, "custom_metadata": self.custom_metadata})


class AgentMemoryMemoryService(BaseMemoryService):
    """The memories of any apps and users in one memory, found by words as `InMemoryMemoryService` finds them.

    The events of a session are the lines of ``apps/<app>/users/<user>/memory/<session>.jsonl``. Events without a
    session and memories that were added as such are in ``.no-session.jsonl``; the ids of deleted memories are in
    ``.deleted.jsonl``. Adding merges by the ids of the events, so a repeated call changes nothing, and the events of
    other processes stay. Events without text are not stored. A search reads all files of the user;
    a file that cannot be read is left out, and counted in one logged warning.

    Damaged lines are left out of a search, which counts them in one logged warning, and are kept by a change.
    """

    def __init__(self, memory: kit.AnyMemory) -> None:
        self._memory = kit.async_view(memory)
        self._cache = kit.ReadCache(memory)

    async def add_session_to_memory(self, session: Session) -> None:
        """See `BaseMemoryService.add_session_to_memory`; events that the session no longer has stay."""
        directory, file = _directory(session.app_name, session.user_id), encode_segment(session.id, _END)
        await self._add(directory, file, _records_of(session.events), replace=True)

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """See `BaseMemoryService.add_events_to_memory`; the metadata are part of what a search returns."""
        file = _NO_SESSION if session_id is None else encode_segment(kit.checked_id("session_id", session_id), _END)
        await self._add(_directory(app_name, user_id), file, _records_of(events, custom_metadata))

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """See `BaseMemoryService.add_memory`; a memory without an id gets one, a known id is not added again."""
        records = [
            _EventRecord(
                id=each.id or uuid.uuid4().hex,
                author=each.author,
                timestamp=each.timestamp,
                content=each.content,
                custom_metadata={**(custom_metadata or {}), **each.custom_metadata},
            )
            for each in memories
        ]
        await self._add(_directory(app_name, user_id), _NO_SESSION, records)

    async def _add(self, directory: str, file: str, records: Iterable[_EventRecord], *, replace: bool = False) -> None:
        deleted = await self._deleted(directory)
        new = {record.id: record.line() for record in records if record.id not in deleted}
        if new:
            await self._memory.edit_bytes(f"{directory}/{file}", partial(_merged, new, replace), missing=b"")

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """See `BaseMemoryService.search_memory`."""
        directory = _directory(app_name, user_id)
        entries = [entry for entry in await self._entries(directory) if entry.key.name != _DELETED]
        deleted = await self._deleted(directory)
        sessions = list(map(_parsed, (await self._cache.read(self._memory, entries)).values()))
        sessions.sort(key=lambda session: session[0].time() if session else 0.0)
        if damaged := sum(session.damaged for session in sessions):
            _log.warning("%s: %d lines hold no memory", directory, damaged)
        records = [record for session in sessions for record in session if record.id not in deleted]
        matcher = InMemoryMemoryService()
        events = [
            Event(id=str(number), timestamp=record.time(), content=record.content)
            for number, record in enumerate(records)
        ]
        await matcher.add_events_to_memory(app_name="", user_id="", events=events)
        found = await matcher.search_memory(app_name="", user_id="", query=query)
        return SearchMemoryResponse(memories=[records[int(each.id or 0)].as_entry(each) for each in found.memories])

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """See `BaseMemoryService.delete_memory`; an event with this id is not added again."""
        directory = _directory(app_name, user_id)
        files = await self._cache.read(self._memory, await self._entries(directory) if memory_id else ())
        paths = [path for path, found in files.items() if any(each.id == memory_id for each in _parsed(found))]
        if paths:
            await kit.append_records(self._memory, f"{directory}/{_DELETED}", [{"id": memory_id}])

        async def remove(path: str) -> None:
            await self._memory.edit_bytes(path, partial(_without, memory_id), missing=b"")

        await kit.done_each(self._memory, remove, paths)

    async def _entries(self, directory: str) -> list[Entry]:
        entries = await self._memory.list(directory, recursive=False)
        return [entry for entry in entries if not entry.is_directory and entry.path.endswith(_END)]

    async def _deleted(self, directory: str) -> set[str]:
        """The ids in the file of deleted memories."""
        path = f"{directory}/{_DELETED}"
        files = await self._memory.read_many([path], missing_ok=True, bytes=True)
        values = map(kit.from_json, files.get(path, b"").split(b"\n"))
        return {str(value["id"]) for value in values if isinstance(value, dict) and "id" in value}


def _directory(app_name: str, user_id: str) -> str:
    app, user = kit.checked_id("app_name", app_name), kit.checked_id("user_id", user_id)
    return f"apps/{encode_segment(app)}/users/{encode_segment(user)}/memory"


def _records_of(events: Sequence[Event], metadata: Mapping[str, object] | None = None) -> list[_EventRecord]:
    """The events that a search can find."""
    return [
        _EventRecord(
            id=event.id,
            author=event.author,
            timestamp=event.timestamp,
            content=event.content,
            custom_metadata=dict(metadata or {}),
        )
        for event in events
        if event.content and any(part.text for part in event.content.parts or ())
    ]


def _record(line: bytes) -> _EventRecord | None:
    try:
        return _EventRecord.model_validate_json(kit.without_mark(line))
    except ValueError:  # pydantic's ValidationError
        return None


def _parsed(data: bytes) -> kit.Records[_EventRecord]:
    found = kit.Records[_EventRecord]()
    for line in filter(bytes.strip, data.split(b"\n")):
        if record := _record(line):
            found.append(record)
        else:
            found.damaged += 1
    return found


def _merged(new: Mapping[str, bytes], replace: bool, old: bytes) -> bytes:
    """Add lines by their ids; the line of a known id is replaced or stays."""
    left, lines = dict(new), []
    for line in filter(None, old.split(b"\n")):
        record = _record(line)
        fresh = left.pop(record.id, line) if record else line
        lines.append(fresh if replace else line)
    return b"".join(b"%b\n" % line for line in (*lines, *left.values()))


def _without(memory_id: str | None, old: bytes) -> bytes:
    """Remove the lines of a memory."""
    lines = [(line, _record(line)) for line in filter(None, old.split(b"\n"))]
    return b"".join(b"%b\n" % line for line, record in lines if record is None or record.id != memory_id)
