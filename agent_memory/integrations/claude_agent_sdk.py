"""The Claude Agent SDK's `SessionStore` over a memory. Needs ``pip install 'agent-memory-files[claude-agent-sdk]'``."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Literal, cast

from agent_memory.backend import Entry
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    FileTooLargeError,
    InvalidContentError,
)
from agent_memory.integrations.toolkit import (
    AnyMemory,
    async_view,
    checked_id,
    found_each,
    from_json,
    known_text,
    record_segment,
    records,
    remove,
    to_json,
    unusable,
)
from agent_memory.key import encode_segment
from agent_memory.memory import AsyncAgentMemory

try:
    from claude_agent_sdk import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStore,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
        __version__,
        fold_session_summary,
    )
except ImportError as error:
    raise unusable("claude-agent-sdk", "claude-agent-sdk", error) from error

__all__ = ["AgentMemorySessionStore"]

_log = logging.getLogger("agent_memory")
_TRANSCRIPT: Final = ".jsonl"
_SUBPATHS: Final = ".subpaths"
_SUMMARY: Final = ".summary.json"
_MOST_BYTES: Final = 16 * 1024 * 1024  # `records` skips longer lines


class AgentMemorySessionStore(SessionStore):
    """The transcripts of sessions, for ``ClaudeAgentOptions(session_store=...)``; several processes may use it at once.

    ``<project>/<session>.jsonl`` is the transcript of a session, one entry a line. ``<session>.subpaths/`` beside it
    has those of its subagents, one file a subpath. ``<session>.summary.json`` is the summary that the SDK makes, kept
    until the transcript changes. Each id is one name, encoded by `agent_memory.encode_segment`; an id over 240 bytes is
    kept in ``.texts/``, also after its session is deleted.

    `append` sends only the new lines. To leave out the entries that are there already, it would have to read and write
    the whole transcript, which grows to many megabytes. `load` leaves them out instead: it returns the first entry of
    each uuid, so an append that is repeated, also in part or by two processes at once, adds nothing. Damaged lines are
    left out, and counted in one logged warning.

    Args:
        memory: the tree of the transcripts, without other files.

    Raises the errors of `AgentMemory`; `append` also `InvalidContentError` for an entry that is not JSON, and
    `FileTooLargeError` for an entry over 16 MiB, before anything is written. An empty subpath is a `ValueError`.
    """

    def __init__(self, memory: AnyMemory) -> None:
        self._memory = async_view(memory)

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """See `SessionStore.append`: one append of all entries."""
        path, lines = _path(key), "".join(map(_line, entries))
        if lines:
            await record_segment(self._memory, key.get("subpath") or key["session_id"], _TRANSCRIPT)
            await self._memory.append(path, lines, separator="\n")

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """See `SessionStore.load`."""
        path = _path(key)
        found = await records(self._memory, path, _entry)
        if found is None:
            return None
        _warn(path, found.damaged)
        distinct = _distinct()
        return [entry for entry in found if distinct(entry)]

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """See `SessionStore.list_sessions`."""
        found = await _transcripts(self._memory, _project(project_key))
        return [{"session_id": session_id, "mtime": int(entry.modified * 1000)} for session_id, entry in found]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """See `SessionStore.list_session_summaries`: reads the transcripts that changed since the last call."""

        async def summary(found: tuple[str, Entry]) -> SessionSummaryEntry:
            session_id, entry = found
            data = await _summary(self._memory, {"project_key": project_key, "session_id": session_id}, entry)
            return {"session_id": session_id, "mtime": int(entry.modified * 1000), "data": data}

        transcripts = await _transcripts(self._memory, _project(project_key))
        found = await found_each(self._memory, summary, transcripts, lambda each: each[1].path)
        return [each for _, each in found]

    async def delete(self, key: SessionKey) -> None:
        """See `SessionStore.delete`: the session itself last, so that a call which fails can be repeated."""
        if key.get("subpath") is not None:
            await remove(self._memory, _path(key))
            return
        with suppress(AgentMemoryFileNotFoundError):
            await self._memory.delete_tree(_beside(key, _SUBPATHS))
        await remove(self._memory, _path(key))
        await remove(self._memory, _beside(key, _SUMMARY))

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """See `SessionStore.list_subkeys`."""
        return [subpath for subpath, _ in await _transcripts(self._memory, _beside(key, _SUBPATHS))]


def _entry(value: Any) -> SessionStoreEntry | None:
    return cast(SessionStoreEntry, value) if isinstance(value, dict) else None


def _distinct() -> Callable[[SessionStoreEntry], bool]:
    """A function that tells whether it has not seen the uuid of an entry before."""
    seen: set[str] = set()

    def is_new(entry: SessionStoreEntry) -> bool:
        uuid = entry.get("uuid")
        if not isinstance(uuid, str):
            return True
        is_known = uuid in seen
        seen.add(uuid)
        return not is_known

    return is_new


def _warn(path: str, damaged: int) -> None:
    if damaged:
        _log.warning("%s: %d lines hold no entry of a session", path, damaged)


async def _summary(memory: AsyncAgentMemory, key: SessionKey, entry: Entry) -> dict[str, Any]:
    """The SDK's summary of a transcript: kept, or made again."""
    path, is_new = _beside(key, _SUMMARY), _distinct()
    kept = from_json((await memory.read_many([path], missing_ok=True, bytes=True)).get(path, b""))
    if isinstance(kept, dict) and kept.get("of") == _state(entry) and isinstance(data := kept.get("data"), dict):
        return cast("dict[str, Any]", data)
    summary = fold_session_summary(None, key, [])

    def fold(value: Any) -> Literal[True] | None:
        nonlocal summary
        if (found := _entry(value)) is None:
            return None
        if is_new(found):
            summary = fold_session_summary(summary, key, [found])
        return True

    with suppress(AgentMemoryFileNotFoundError):  # another caller deleted the session
        entry = await memory.stat(_path(key))  # entries that are added from now on will be summarised again
        found = await records(memory, _path(key), fold)
        _warn(_path(key), found.damaged if found is not None else 0)
    with suppress(AgentMemoryError):  # a read-only memory has summaries too
        await memory.write(path, to_json({"of": _state(entry), "data": summary["data"]}))
        if not await memory.exists(_path(key)):  # `delete` may have ended before this write
            await remove(memory, path)
    return summary["data"]


def _state(entry: Entry) -> list[object]:
    """The state of a transcript, which only grows, and the SDK that summarises it."""
    return [__version__, entry.size, int(entry.modified)]  # on S3 a listing can have other fractions of a second


async def _transcripts(memory: AsyncAgentMemory, directory: str) -> list[tuple[str, Entry]]:
    """The ids of the transcripts in a directory, each with its entry in the listing."""
    found = []
    for entry in await memory.list(directory, recursive=False):
        name = entry.path.rpartition("/")[2]
        is_transcript = name.endswith(_TRANSCRIPT) and not entry.is_directory
        if is_transcript and (text := await known_text(memory, name, _TRANSCRIPT)) is not None:
            found.append((text, entry))
    return found


def _project(project_key: str) -> str:
    return encode_segment(checked_id("project_key", project_key))


def _beside(key: SessionKey | SessionListSubkeysKey, suffix: str) -> str:
    return f"{_project(key['project_key'])}/{encode_segment(checked_id('session_id', key['session_id']), suffix)}"


def _path(key: SessionKey) -> str:
    subpath = key.get("subpath")
    if subpath is None:
        return _beside(key, _TRANSCRIPT)
    if not checked_id("subpath", subpath):
        raise ValueError("a subpath must not be empty: leave it out for the transcript of the session itself")
    return f"{_beside(key, _SUBPATHS)}/{encode_segment(subpath, _TRANSCRIPT)}"


def _line(entry: SessionStoreEntry) -> str:
    if not isinstance(entry, dict):
        raise TypeError(f"an entry must be a dict, not {type(entry).__name__}")
    line = f"{_json(entry)}\n"
    if len(line.encode()) > _MOST_BYTES:
        raise FileTooLargeError(f"an entry has more than {_MOST_BYTES:,} bytes of JSON")
    return line


def _json(value: object) -> str:
    """As `to_json`, but half a character, as in a text that was cut, is escaped instead of refused."""
    try:
        return to_json(value)
    except InvalidContentError:
        with suppress(TypeError, ValueError, RecursionError):
            return json.dumps(value, allow_nan=False, separators=(",", ":"))
        raise
