"""Sessions of Google's Agent Development Kit; `agent_memory.integrations.google_adk` exports the class.

Needs ``pip install 'agent-memory-files[google-adk]'``.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from agent_memory import ETag
from agent_memory.errors import (
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileAlreadyExistsError,
    OperationDenied,
    ReadError,
)
from agent_memory.integrations import toolkit as kit
from agent_memory.key import encode_segment

try:
    from google.adk.errors._stale_session_error import StaleSessionError
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
_BLOCK: Final = 4 * 1024 * 1024
_Shared = dict[str, dict[str, Any]]
"""A state that sessions share: by key the value, and the time of the event that set it."""


@dataclass(frozen=True)
class _SessionFile:
    """What the file of a session holds."""

    etag: ETag | None
    created: float
    state: dict[str, Any]
    events: list[Event] = field(default_factory=list)

    @property
    def marker(self) -> str | None:
        return self.etag.token if self.etag else None

    @property
    def updated(self) -> float:
        return self.events[-1].timestamp if self.events else self.created

    def folded(self) -> dict[str, Any]:
        """The session's own state after all events."""
        state = _scoped(self.state)[0]
        for event in self.events:
            state |= _scoped(event.actions.state_delta)[0]
        return state

    def last_delta(self) -> tuple[dict[str, Any], float]:
        """The last change of states, and its time: a process that was killed after it may not have shared it."""
        delta = self.events[-1].actions.state_delta if self.events else self.state
        return delta, self.updated


class AgentMemorySessionService(BaseSessionService):
    """The sessions of any apps and users in one memory.

    A session is the file ``apps/<app>/users/<user>/sessions/<session>/events.jsonl``: its first line has the time and
    the initial state, each other line an event. Its state is that of all lines. The states of users and apps are in
    ``apps/<app>/users/<user>/state.json`` and ``apps/<app>/state.json``. An event is appended on the condition that the
    file is as the session was read, else it is the framework's `StaleSessionError`, and nothing is stored; an event
    whose append was acknowledged to nobody is appended once. If a process is killed between an event and the states
    that it shares, the next reading of the session shares them.

    Raises the framework's `AlreadyExistsError` and `SessionNotFoundError`, `InvalidContentError` (a ValueError) for an
    event of over 16 MiB, and the errors of `AgentMemory`.
    """

    def __init__(self, memory: kit.AnyMemory) -> None:
        self._memory = kit.async_view(memory)

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        """See `BaseSessionService.create_session`."""
        name, now = (session_id or "").strip() or str(uuid.uuid4()), time.time()
        lasting = {key: value for key, value in (state or {}).items() if not key.startswith(State.TEMP_PREFIX)}
        stored = to_jsonable_python(lasting, fallback=_as_text)
        for text in (app_name, user_id, name):
            await kit.record_segment(self._memory, text)
        path = f"{_session(app_name, user_id, name)}/{_EVENTS}"
        try:
            result = await self._memory.create(path, kit.record_line({"created": now, "state": stored}))
        except FileAlreadyExistsError as error:
            raise AlreadyExistsError(f"Session with id {name} already exists.") from error
        await self._share(app_name, user_id, stored, now)
        found = _SessionFile(result.etag, now, stored)
        return await self._session_of(app_name, user_id, name, found, found.events)

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """See `BaseSessionService.get_session`; the whole file is read, for its state."""
        name = session_id.strip()
        try:
            found = await self._read(f"{_session(app_name, user_id, name)}/{_EVENTS}")
        except AgentMemoryFileNotFoundError:
            return None
        events = found.events
        if config and config.after_timestamp:
            events = [event for event in events if event.timestamp >= config.after_timestamp]
        if config and config.num_recent_events is not None:
            events = events[len(events) - min(len(events), config.num_recent_events) :]
        with suppress(OperationDenied):  # of a view that may only read
            await self._share(app_name, user_id, *found.last_delta(), again=True)
        return await self._session_of(app_name, user_id, name, found, events)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """See `BaseSessionService.list_sessions`; the files of all sessions are read, for their states."""
        directory = f"{_app(app_name)}/users" if user_id is None else f"{_user(app_name, user_id)}/sessions"
        paths = [entry.path for entry in await self._memory.list(directory) if entry.path.endswith(f"/{_EVENTS}")]
        sessions: list[Session] = []
        for path, found in await kit.found_each(self._memory, self._read, paths):
            _, _, _, user, _, name, _ = path.split("/")
            texts = [await kit.known_text(self._memory, segment) for segment in (user, name)]
            if texts[0] is not None and texts[1] is not None:
                sessions.append(await self._session_of(app_name, texts[0], texts[1], found, []))
        return ListSessionsResponse(
            sessions=sorted(sessions, key=lambda each: (each.last_update_time, each.user_id, each.id))
        )

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """See `BaseSessionService.delete_session`; the session's artifacts stay."""
        await kit.remove(self._memory, f"{_session(app_name, user_id, session_id.strip())}/{_EVENTS}")

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """See `BaseSessionService.get_user_state`."""
        return _values(await self._shared(f"{_user(app_name, user_id)}/{_STATE}"))

    async def append_event(self, session: Session, event: Event) -> Event:
        """See `BaseSessionService.append_event`."""
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        path = f"{_session(session.app_name, session.user_id, session.id)}/{_EVENTS}"
        stored = kit.from_json(event.model_dump_json(exclude_none=True))
        try:
            session._storage_update_marker = await self._append(path, session, kit.record_line(stored))
        except AgentMemoryFileNotFoundError as error:
            raise SessionNotFoundError(f"Session {session.id} not found.") from error
        delta = stored.get("actions", {}).get("state_delta", {})
        await self._share(session.app_name, session.user_id, delta, event.timestamp)
        session.last_update_time = event.timestamp
        return self._commit_event_to_session(session, event)

    async def _append(self, path: str, session: Session, line: str) -> str | None:
        """Append the line of an event to the file that the session was read from; returns the new marker."""
        marker = session._storage_update_marker
        if marker is None:  # the session was made by hand
            found = await self._read(path)
            if found.updated > session.last_update_time and found.events[-1:] != session.events[-1:]:
                raise StaleSessionError("The session has newer events in the storage: get it again.")
            marker = found.marker or ""
        try:
            result = await self._memory.append(path, line, separator="\n", when=ETag(marker))
        except ConflictError as error:
            found = await self._read(path)
            if found.events[-1:] != [Event.model_validate_json(line)]:
                raise StaleSessionError("The session has newer events in the storage: get it again.") from error
            return found.marker  # an earlier attempt, whose outcome was unknown, stored it
        return result.etag.token if result.etag else None

    async def _read(self, path: str) -> _SessionFile:
        async def work(reader: Any) -> tuple[bytes, Any]:
            data = await reader.read(0, _BLOCK)
            etag = reader.etag  # of a later read it could be that of a longer file
            while len(data) < reader.size:
                data += await reader.read(len(data), len(data) + _BLOCK)
            return data, etag

        data, etag = await self._memory.scan(path, work)
        first, *lines = data.split(b"\n")
        head = kit.from_json(first)
        if not isinstance(head, dict) or not isinstance(head.get("state"), dict):
            raise ReadError("the file holds no session", path=path)
        events, damaged = list[Event](), 0
        for line in filter(None, lines):
            try:
                events.append(Event.model_validate_json(line))
            except ValueError:  # of pydantic
                damaged += 1
        if damaged:
            _log.warning("%d lines of %s hold no event and are skipped", damaged, path)
        return _SessionFile(etag, float(head.get("created") or 0), head["state"], events)

    async def _session_of(self, app: str, user: str, name: str, found: _SessionFile, events: list[Event]) -> Session:
        state = found.folded()
        for prefix, path in ((State.APP_PREFIX, _app(app)), (State.USER_PREFIX, _user(app, user))):
            values = _values(await self._shared(f"{path}/{_STATE}"))
            state |= {f"{prefix}{key}": value for key, value in values.items()}
        session = Session(
            app_name=app, user_id=user, id=name, state=state, events=events, last_update_time=found.updated
        )
        session._storage_update_marker = found.marker
        return session

    async def _shared(self, path: str) -> _Shared:
        try:
            data = await self._memory.read_bytes(path)
        except AgentMemoryFileNotFoundError:
            return {}
        return _parsed_state(data, path)

    async def _share(self, app: str, user: str, delta: Mapping[str, Any], at: float, *, again: bool = False) -> None:
        """Change the states of the app and the user; ``again`` changes only what no event at that time or later set."""
        _, of_app, of_user = _scoped(delta)
        for values, directory in ((of_app, _app(app)), (of_user, _user(app, user))):
            path = f"{directory}/{_STATE}"
            if not values or (again and not _missing(await self._shared(path), values, at)):
                continue

            def changed(old: bytes, values: Mapping[str, Any] = values, path: str = path) -> bytes:
                state = _parsed_state(old, path) if old else {}
                for key, value in (_missing(state, values, at) if again else values).items():
                    before = state[key]["at"] if key in state else -math.inf
                    state[key] = {"value": value, "at": max(at, math.nextafter(before, math.inf))}
                return f"{kit.to_json(state)}\n".encode()

            await self._memory.edit_bytes(path, changed, missing=b"")


def _app(app: str) -> str:
    return f"apps/{encode_segment(kit.checked_id('app_name', app))}"


def _user(app: str, user: str) -> str:
    return f"{_app(app)}/users/{encode_segment(kit.checked_id('user_id', user))}"


def _session(app: str, user: str, session: str) -> str:
    return f"{_user(app, user)}/sessions/{encode_segment(kit.checked_id('session_id', session))}"


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


def _missing(state: _Shared, values: Mapping[str, Any], at: float) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in state or state[key]["at"] < at}


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
