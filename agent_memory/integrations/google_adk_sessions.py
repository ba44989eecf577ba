"""Sessions of Google's Agent Development Kit; `agent_memory.integrations.google_adk` exports the class.

Needs ``pip install 'agent-memory-files[google-adk]'``.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from weakref import WeakValueDictionary

from agent_memory import PRESENT
from agent_memory.errors import (
    AgentMemoryFileNotFoundError,
    FileAlreadyExistsError,
    InvalidContentError,
    OperationDenied,
    ReadError,
)
from agent_memory.integrations import toolkit as kit
from agent_memory.key import encode_segment

try:
    from google.adk.errors import StaleSessionError
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events import Event
    from google.adk.sessions import BaseSessionService, Session
    from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
    from google.adk.sessions.state import State
    from pydantic_core import to_jsonable_python
except ImportError as error:
    raise kit.unusable("google-adk", "google-adk", error) from error

__all__ = ["AgentMemorySessionService"]

_log = logging.getLogger("agent_memory")
_EVENTS: Final = "events.jsonl"
_STATE: Final = "state.json"
_DEPTH: Final = 6
"""The number of slashes in the path of a session's file."""
_STALE: Final = "The session has newer events in the storage: get it again."
_Shared = dict[str, dict[str, Any]]
"""A state that sessions share: by key the value, and the time of the event that set it."""


@dataclass(frozen=True)
class _SessionFile:
    """What the file of a session holds: the first line, and the events as JSON.

    Attributes:
        token: tells it from an earlier session with the same id.
        size: where a reader found the end.
        number: that of the next event.
    """

    token: str
    size: int
    number: int
    created: float
    state: dict[str, Any]
    events: list[dict[str, Any]]

    @property
    def marker(self) -> str:
        return f"{self.token} {self.size} {self.number}"

    @property
    def updated(self) -> float:
        return _time(self.events[-1]) if self.events else self.created

    @cached_property
    def folded(self) -> tuple[dict[str, Any], _Shared, _Shared]:
        """The session's own state after all events; and what they changed in the states of the app and the user."""
        own, app, user = dict[str, Any](), _Shared(), _Shared()
        for delta, at in [(self.state, self.created), *((_delta(event), _time(event)) for event in self.events)]:
            changes = _scoped(delta)
            own |= changes[0]
            for shared, values in ((app, changes[1]), (user, changes[2])):
                shared |= {key: _set(shared, key, value, at) for key, value in values.items()}
        return own, app, user


class AgentMemorySessionService(BaseSessionService):
    """The sessions of any apps and users in one memory.

    A session is the file ``apps/<app>/users/<user>/sessions/<session>/events.jsonl``: its first line has the time and
    the initial state, each other line an event with its number. Its state is that of all lines. The states of users
    and apps are in ``apps/<app>/users/<user>/state.json`` and ``apps/<app>/state.json``.

    An event is one append. Of events with one number, which processes appended to the same state of the session, the
    first one counts; the others raise the framework's `StaleSessionError`, and their lines are ignored. An event that
    is stored already is not stored again. If a process is killed between an event and the states that it shares, the
    next reading of the session shares them.

    Raises the framework's `AlreadyExistsError` and `SessionNotFoundError`, `InvalidContentError` (a ValueError) for an
    event that is no JSON or has over 16 MiB, `ReadError` for a file that holds no session or state, and the errors of
    `AgentMemory`.
    """

    def __init__(self, memory: kit.AnyMemory) -> None:
        self._memory = kit.async_view(memory)
        self._locks = WeakValueDictionary[tuple[int, str], asyncio.Lock]()

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        """See `BaseSessionService.create_session`."""
        name, now = (session_id or "").strip() or str(uuid.uuid4()), time.time()
        lasting = {key: value for key, value in (state or {}).items() if not key.startswith(State.TEMP_PREFIX)}
        stored = to_jsonable_python(lasting, fallback=_as_text)
        path = _file(app_name, user_id, name)
        for text in (app_name, user_id, name):
            await kit.record_segment(self._memory, text)
        token = uuid.uuid4().hex
        line = kit.record_line({"session": token, "created": now, "state": stored})
        try:
            await self._memory.create(path, line)
        except FileAlreadyExistsError as error:
            raise AlreadyExistsError(f"Session with id {name} already exists.") from error
        _, app, user = _scoped(stored)
        await self._share(_app(app_name), _changes(app, now))
        await self._share(_user(app_name, user_id), _changes(user, now))
        return self._session_of(
            app_name,
            user_id,
            name,
            _SessionFile(token, len(line.encode()), 0, now, stored, []),
            await self._shared(_app(app_name)),
            await self._shared(_user(app_name, user_id)),
        )

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """See `BaseSessionService.get_session`; the whole file is read, for its state."""
        name = kit.checked_id("session_id", session_id).strip()
        path = _file(app_name, user_id, name)
        try:
            found = await self._read(path)
        except AgentMemoryFileNotFoundError:
            return None
        _, app, user = found.folded
        events = found.events
        if config and config.after_timestamp:
            events = [event for event in events if _time(event) >= config.after_timestamp]
        if config and config.num_recent_events is not None:
            events = events[len(events) - min(len(events), config.num_recent_events) :]
        session = self._session_of(
            app_name,
            user_id,
            name,
            found,
            await self._healed(_app(app_name), app),
            await self._healed(_user(app_name, user_id), user),
        )
        for event in events:
            try:
                session.events.append(Event.model_validate(event))
            except ValueError as error:  # of pydantic
                _log.warning("an event of %s is skipped: %s", path, type(error).__name__)
        return session

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """See `BaseSessionService.list_sessions`; the files of all sessions are read, for their states."""
        directory = f"{_app(app_name)}/users" if user_id is None else f"{_user(app_name, user_id)}/sessions"
        paths = [entry.path for entry in await self._memory.list(directory)]
        paths = [path for path in paths if path.endswith(f"/{_EVENTS}") and path.count("/") == _DEPTH]
        app, users, sessions = await self._shared(_app(app_name)), dict[str, _Shared](), list[Session]()
        for path, found in await kit.found_each(self._memory, self._read, paths):
            user, name = [await kit.known_text(self._memory, path.split("/")[at]) for at in (3, 5)]
            if user is None or name is None:
                continue
            if user not in users:
                users[user] = await self._shared(_user(app_name, user))
            sessions.append(self._session_of(app_name, user, name, found, app, users[user]))
        sessions.sort(key=lambda each: (each.last_update_time, each.user_id, each.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """See `BaseSessionService.delete_session`; the session's artifacts stay."""
        await kit.remove(self._memory, _file(app_name, user_id, session_id.strip()))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """See `BaseSessionService.get_user_state`."""
        return _values(await self._shared(_user(app_name, user_id)))

    async def append_event(self, session: Session, event: Event) -> Event:
        """See `BaseSessionService.append_event`; an event that the session has already is not stored again."""
        if event.partial:
            return event
        path = _file(session.app_name, session.user_id, session.id)
        async with self._lock(path):  # of calls on one session object each has its turn
            if any(each == event for each in session.events if each.id == event.id):
                return event
            self._apply_temp_state(session, event)
            event = self._trim_temp_delta_state(event)
            stored = kit.from_json(event.model_dump_json(exclude_none=True))
            if not isinstance(stored, dict):
                raise InvalidContentError("the event cannot be stored as JSON")
            try:
                is_new = await self._append(path, session, stored)
            except AgentMemoryFileNotFoundError as error:
                raise SessionNotFoundError(f"Session {session.id} not found.") from error
            session.last_update_time = event.timestamp
            event = self._commit_event_to_session(session, event)
            _, app, user = _scoped(_delta(stored))
            if is_new:  # else `get_session` shares what the earlier attempt did not share
                await self._share(_app(session.app_name), _changes(app, event.timestamp))
                await self._share(_user(session.app_name, session.user_id), _changes(user, event.timestamp))
            return event

    def _lock(self, path: str) -> asyncio.Lock:
        return self._locks.setdefault((id(asyncio.get_running_loop()), path), asyncio.Lock())

    async def _append(self, path: str, session: Session, event: dict[str, Any]) -> bool:
        """Append an event with the number after those that the session was read with; False if it is stored already."""
        marker = session._storage_update_marker
        if marker is None:  # the session was made by hand
            found = await self._read(path)
            if found.updated > session.last_update_time and not _is_last(found.events, session.events):
                raise StaleSessionError(_STALE)
            marker = found.marker
        token, *numbers = marker.split()
        size, number = map(int, numbers)
        line = kit.record_line({"session": token, "n": number, "event": event})
        await self._memory.append(path, line, separator="\n", when=PRESENT)
        rows = await kit.records(self._memory, path, lambda row: row if _is_row(row, token) else None, start=size)
        same = [at for at, row in enumerate(rows or ()) if row["n"] == number]
        if rows and same and rows[same[0]]["event"] == event:
            session._storage_update_marker = f"{token} {rows.ends[same[0]]} {number + 1}"
            return [rows[at] for at in same].count(rows[same[0]]) == 1
        if event in (await self._read(path)).events:
            return False  # by an earlier attempt, whose outcome was unknown
        raise StaleSessionError(_STALE)

    async def _read(self, path: str) -> _SessionFile:
        rows = await kit.records(self._memory, path, lambda row: row if isinstance(row, dict) else None)
        if rows is None:
            raise AgentMemoryFileNotFoundError("the session has no file", path=path)
        head = rows[0] if rows else {}
        if not isinstance(head.get("state"), dict) or not _is_time(head.get("created")):
            raise ReadError("the file holds no session", path=path)
        token, number, damaged, events = str(head.get("session")), 0, rows.damaged, list[dict[str, Any]]()
        for row in rows[1:]:
            if not _is_row(row, token):
                damaged += 1
            elif row["n"] >= number:  # else another event was faster
                events.append(row["event"])
                number = row["n"] + 1
        if damaged:
            _log.warning("%d lines of %s hold no event and are skipped", damaged, path)
        return _SessionFile(token, rows.size, number, head["created"], head["state"], events)

    def _session_of(
        self, app_name: str, user_id: str, name: str, found: _SessionFile, app: _Shared, user: _Shared
    ) -> Session:
        state = found.folded[0]
        for prefix, shared in ((State.APP_PREFIX, app), (State.USER_PREFIX, user)):
            state |= {f"{prefix}{key}": value for key, value in _values(shared).items()}
        session = Session(app_name=app_name, user_id=user_id, id=name, state=state, last_update_time=found.updated)
        session._storage_update_marker = found.marker
        return session

    async def _shared(self, directory: str) -> _Shared:
        path = f"{directory}/{_STATE}"
        files = await self._memory.read_many([path], missing_ok=True, bytes=True)
        return _parsed_state(files[path], path) if path in files else {}

    async def _healed(self, directory: str, changes: _Shared) -> _Shared:
        """The state of an app or a user, after the changes that a killed process did not share."""
        shared = await self._shared(directory)
        missing = {key: change for key, change in changes.items() if not _is_newer(shared, key, change["at"])}
        if missing:
            with suppress(OperationDenied):  # of a view that may only read
                await self._share(directory, missing, unless_newer=True)
                return await self._shared(directory)
        return shared

    async def _share(self, directory: str, changes: _Shared, *, unless_newer: bool = False) -> None:
        """Change the state of an app or a user; ``unless_newer`` keeps what an event at that time or later has set."""
        path = f"{directory}/{_STATE}"

        def changed(old: bytes) -> bytes:
            state = _parsed_state(old, path) if old else {}
            for key, change in changes.items():
                if not (unless_newer and _is_newer(state, key, change["at"])):
                    state[key] = _set(state, key, **change)
            return f"{kit.to_json(state)}\n".encode()

        if changes:
            await self._memory.edit_bytes(path, changed, missing=b"")


def _app(app: str) -> str:
    return f"apps/{encode_segment(kit.checked_id('app_name', app))}"


def _user(app: str, user: str) -> str:
    return f"{_app(app)}/users/{encode_segment(kit.checked_id('user_id', user))}"


def _file(app: str, user: str, session: str) -> str:
    name = encode_segment(kit.checked_id("session_id", session))
    return f"{_user(app, user)}/sessions/{name}/{_EVENTS}"


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _is_row(row: Any, token: str) -> bool:
    """Whether a line holds an event of a session."""
    if not isinstance(row, dict) or row.get("session") != token or not isinstance(row.get("n"), int):
        return False
    event = row.get("event")
    if not isinstance(event, dict) or not _is_time(event.get("timestamp")):
        return False
    actions = event.get("actions", {})
    return isinstance(actions, dict) and isinstance(actions.get("state_delta", {}), dict)


def _time(event: Mapping[str, Any]) -> float:
    return float(event["timestamp"])


def _delta(event: Mapping[str, Any]) -> dict[str, Any]:
    delta: dict[str, Any] = event.get("actions", {}).get("state_delta", {})
    return delta


def _is_last(stored: Sequence[Mapping[str, Any]], events: Sequence[Event]) -> bool:
    """Whether a session that was made by hand has the newest event."""
    return (stored[-1].get("id") if stored else None) == (events[-1].id if events else None)


def _changes(values: Mapping[str, Any], at: float) -> _Shared:
    return {key: {"value": value, "at": at} for key, value in values.items()}


def _set(state: _Shared, key: str, value: object, at: float) -> dict[str, Any]:
    """A change of a key, which is always later than the one before it."""
    before = state[key]["at"] if key in state else -math.inf
    return {"value": value, "at": max(at, math.nextafter(before, math.inf))}


def _is_newer(state: _Shared, key: str, at: float) -> bool:
    """Whether an event at a time or later has set a key."""
    return key in state and state[key]["at"] >= at


def _scoped(delta: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The changes of the session's own state, of the app's and of the user's, without prefixes."""
    own, app, user = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    for key, value in delta.items():
        if key.startswith(State.APP_PREFIX):
            app[key.removeprefix(State.APP_PREFIX)] = value
        elif key.startswith(State.USER_PREFIX):
            user[key.removeprefix(State.USER_PREFIX)] = value
        elif not key.startswith(State.TEMP_PREFIX):
            own[key] = value
    return own, app, user


def _values(state: _Shared) -> dict[str, Any]:
    return {key: each["value"] for key, each in state.items()}


def _parsed_state(data: bytes, path: str) -> _Shared:
    state = kit.from_json(data)
    try:
        return {key: {"value": each["value"], "at": float(each["at"])} for key, each in state.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ReadError("the file holds no state of sessions", path=path) from error


def _as_text(value: object) -> str:
    _log.warning("a %s in the state of a session is no JSON, so its text is stored", type(value).__name__)
    return str(value)
