"""The sessions of Google's ADK over a memory, beside the framework's own session services."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

pytest.importorskip("google.adk")

from google.adk.agents import LlmAgent
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, InMemorySessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_memory import AgentMemory, InvalidContentError, OperationDenied, ReadError
from agent_memory.backend import ANY, ReadWhen, Snapshot
from agent_memory.integrations.google_adk import AgentMemorySessionService
from agent_memory.key import Key
from agent_memory.reading.lines import BLOCK
from agent_memory.testing import RecordingPlugin
from agent_memory_memory import MemoryBackend
from tests.integrations.kit import ADDITIONS, HOSTILE, PROCESSES, example_output, race, rounds, seen_by
from tests.support.pages import blocks_of
from tests.support.servers import Root, S3Server, free_port

USER: dict[str, Any] = {"app_name": "app", "user_id": "ann"}
SCOPE: dict[str, Any] = {**USER, "session_id": "s"}
FILE = "apps/app/users/ann/sessions/s/events.jsonl"
EXAMPLE = Path(__file__).parents[2] / "examples" / "integrations" / "adk_sessions.py"


def event(name: str, delta: dict[str, Any] | None = None, at: float = 1.0, **more: Any) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=name)])
    actions = EventActions(state_delta=delta or {})
    return Event(id=name, author="ann", invocation_id="i", timestamp=at, content=content, actions=actions, **more)


def line_of(memory: AgentMemory, number: int, each: Event) -> str:
    """The line of an event, as the service appends it."""
    token = json.loads(memory.read(FILE).splitlines()[0])["session"]
    stored = json.loads(each.model_dump_json(exclude_none=True))
    return json.dumps({"session": token, "n": number, "event": stored}) + "\n"


def shown(session: Session | None) -> Any:
    return session and (session.id, session.user_id, session.state, [each.id for each in session.events])


async def got(service: BaseSessionService, **more: Any) -> Session:
    session = await service.get_session(**SCOPE, **more)
    assert session
    return session


# The same calls to this service and to the framework's own

STATES = st.dictionaries(st.sampled_from(["a", "b", "app:a", "user:a", "user:b", "temp:a"]), st.integers() | st.none())
SESSIONS, USERS = st.sampled_from(["s", " t ", "u"]), st.sampled_from(["ann", "bob"])
CALLS = st.one_of(
    st.tuples(st.just("create"), USERS, SESSIONS, STATES),
    st.tuples(st.just("append"), USERS, SESSIONS, STATES),
    st.tuples(st.just("get"), USERS, SESSIONS, st.none() | st.integers(0, 4)),
    st.tuples(st.just("delete"), USERS, SESSIONS, st.none()),
    st.tuples(st.just("list"), USERS, st.booleans(), st.none()),
    st.tuples(st.just("user state"), USERS, SESSIONS, st.none()),
)


async def called(service: BaseSessionService, number: int, call: tuple[Any, ...]) -> Any:
    method, user, session_id, argument = call
    scope = {"app_name": "app", "user_id": user}
    if method == "create":
        try:
            return shown(await service.create_session(**scope, session_id=session_id, state=argument))
        except AlreadyExistsError as error:
            return str(error)
    if method == "append":
        session = await service.get_session(**scope, session_id=session_id)
        if session is None:
            return None
        await service.append_event(session, event(f"e{number}", dict(argument), 10.0 + number))
        return shown(session)
    if method == "get":
        config = GetSessionConfig(num_recent_events=argument, after_timestamp=12.0 if argument == 3 else None)
        return shown(await service.get_session(**scope, session_id=session_id, config=config))
    if method == "delete":
        return await service.delete_session(**scope, session_id=session_id)
    if method == "list":
        found = await service.list_sessions(app_name="app", user_id=user if session_id else None)
        return sorted(map(shown, found.sessions))
    return await service.get_user_state(**scope)


@settings(max_examples=60, deadline=None)
@given(st.lists(CALLS, min_size=3, max_size=20))
@pytest.mark.asyncio
async def test_any_calls_answer_as_the_service_in_memory(calls: list[tuple[Any, ...]]) -> None:
    with AgentMemory.open("memory://") as memory:
        ours, theirs = AgentMemorySessionService(memory), InMemorySessionService()
        for number, call in enumerate(calls):
            assert await called(ours, number, call) == await called(theirs, number, call), call


@pytest.mark.asyncio
async def test_sessions_are_listed_in_the_order_of_their_last_events(memory: AgentMemory) -> None:
    service = AgentMemorySessionService(memory)
    for name, at in (("x", 3e9), ("y", 2e9), ("z", 2.5e9)):
        session = await service.create_session(**USER, session_id=name)
        await service.append_event(session, event("e", at=at))
    listed = (await service.list_sessions(app_name="app")).sessions
    assert [(each.id, each.last_update_time, each.events) for each in listed] == [
        ("y", 2e9, []), ("z", 2.5e9, []), ("x", 3e9, []),
    ]  # fmt: skip


@pytest.mark.asyncio
async def test_a_session_goes_on_in_another_process(memory: AgentMemory) -> None:
    service = AgentMemorySessionService(memory)
    made = await service.create_session(**SCOPE, state={"n": 0, "user:name": "Ann", "app:v": 1, "temp:x": 2})
    first = event("one", {"n": 1, "temp:x": 3, "user:name": "Anna"})
    await service.append_event(made, first)
    again = await got(AgentMemorySessionService(memory))
    assert again.state == {"n": 1, "user:name": "Anna", "app:v": 1}
    assert again.events == [first]
    assert again.last_update_time == first.timestamp
    other = await service.create_session(**USER)
    assert other.state == {"user:name": "Anna", "app:v": 1}


@pytest.mark.asyncio
async def test_a_partial_event_is_not_stored(memory: AgentMemory) -> None:
    service = AgentMemorySessionService(memory)
    session = await service.create_session(**SCOPE)
    before = memory.read(FILE)
    await service.append_event(session, event("half", partial=True))
    assert memory.read(FILE) == before


@pytest.mark.asyncio
async def test_an_event_on_a_stale_session_is_refused_and_nothing_is_stored(memory: AgentMemory) -> None:
    service = AgentMemorySessionService(memory)
    await service.create_session(**SCOPE)
    one, two = await got(service), await got(service)
    await service.append_event(one, event("one", {"user:a": 1}))
    before = {entry.path: memory.read(entry.path) for entry in memory.list()}
    with pytest.raises(StaleSessionError, match="get it again"):
        await service.append_event(two, event("two", {"user:a": 2, "app:b": 2}))
    after = {entry.path: memory.read(entry.path) for entry in memory.list()}
    assert after.keys() == before.keys()
    assert [path for path in after if after[path] != before[path]] == [FILE]
    assert two.events == []
    assert shown(await got(service)) == ("s", "ann", {"user:a": 1}, ["one"])
    fresh = await got(service)
    await service.append_event(fresh, event("two"))
    await service.append_event(fresh, event("three"))
    assert [each.id for each in (await got(service)).events] == ["one", "two", "three"]


@pytest.mark.asyncio
async def test_a_session_that_grew_while_it_was_read_is_stale() -> None:
    class Growing(MemoryBackend):
        lines: list[str]

        def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
            snapshot = super().read(key, start, end, when)
            while self.lines and start and start > BLOCK // 2:  # a later block of the session
                other.append(FILE, self.lines.pop())
            return snapshot

    backend = Growing()
    backend.lines = []
    with AgentMemory.open(backend) as memory, AgentMemory.open(backend) as other:
        service = AgentMemorySessionService(memory)
        session = await service.create_session(**SCOPE)
        for number in range(20):
            await service.append_event(session, event(f"{number}", {"pad": "x" * BLOCK}))
        backend.lines.append(line_of(memory, 20, event("meanwhile")))
        read = await got(service)
        assert not backend.lines
        assert [each.id for each in read.events] == [f"{number}" for number in range(20)]
        with pytest.raises(StaleSessionError):
            await service.append_event(read, event("next"))
        assert [each.id for each in (await got(service)).events][19:] == ["19", "meanwhile"]


@pytest.mark.asyncio
async def test_a_session_that_was_made_by_hand_is_stale_if_the_storage_has_newer_events(memory: AgentMemory) -> None:
    service = AgentMemorySessionService(memory)
    await service.create_session(**SCOPE)
    await service.append_event(await got(service), event("one", at=5e9))
    with pytest.raises(StaleSessionError):
        await service.append_event(Session(**{**USER, "id": "s"}), event("two"))
    by_hand = Session(**{**USER, "id": "s"}, events=[event("one", at=5e9)])
    await service.append_event(by_hand, event("two", at=6e9))
    assert [each.id for each in (await got(service)).events] == ["one", "two"]


@pytest.mark.asyncio
async def test_an_event_without_an_answer_is_appended_once(memory: AgentMemory) -> None:
    service = AgentMemorySessionService(memory)
    session, copy = await service.create_session(**SCOPE), await got(service)
    rich = event("one", {"user:a": {"when": 1}, "b": [1.5]})
    await service.append_event(copy, rich)  # whose answer was lost
    await service.append_event(session, rich)
    await service.append_event(session, event("two"))
    assert [each.id for each in (await got(service)).events] == ["one", "two"]


@pytest.mark.asyncio
async def test_an_event_is_stored_once_however_often_it_is_delivered(memory: AgentMemory) -> None:
    service = AgentMemorySessionService(memory)
    session, old = await service.create_session(**SCOPE), await got(service)
    first = event("one", {"user:a": 1})
    await service.append_event(session, first)
    await service.append_event(session, first)
    await service.append_event(session, event("two", {"user:a": 2}))
    await service.append_event(session, first)
    await service.append_event(old, first)  # whose answer was lost
    found = await got(service)
    assert ([each.id for each in found.events], found.state) == (["one", "two"], {"user:a": 2})
    with pytest.raises(StaleSessionError):
        await service.append_event(old, event("three"))


@pytest.mark.asyncio
async def test_calls_on_one_session_object_each_have_their_turn(memory: AgentMemory) -> None:
    service = AgentMemorySessionService(memory)
    session = await service.create_session(**SCOPE)
    await asyncio.gather(*(service.append_event(session, event(f"{number}")) for number in range(12)))
    assert {each.id for each in (await got(service)).events} == {f"{number}" for number in range(12)}


@pytest.mark.asyncio
async def test_an_event_of_a_deleted_session_is_none_of_its_successor(memory: AgentMemory) -> None:
    service = AgentMemorySessionService(memory)
    session = await service.create_session(**SCOPE)
    for number in range(3):
        await service.append_event(session, event(f"{number}"))
    await service.delete_session(**SCOPE)
    await service.create_session(**SCOPE)
    with pytest.raises(StaleSessionError):
        await service.append_event(session, event("late"))
    fresh = await got(service)
    assert fresh.events == []
    await service.append_event(fresh, event("first"))
    assert [each.id for each in (await got(service)).events] == ["first"]


@pytest.mark.asyncio
async def test_an_append_does_not_read_the_events_before_it() -> None:
    recorder = RecordingPlugin()
    backend = MemoryBackend()
    backend.max_bytes = 2_000_000
    with AgentMemory.open(backend, plugins=[recorder]) as small:
        service = AgentMemorySessionService(small)
        session = await service.create_session(**SCOPE)
        for number in range(30):
            await service.append_event(session, event(f"{number}", {"pad": "x" * 100_000}))
        assert [each.id for each in (await got(service)).events] == [f"{number}" for number in range(30)]
        assert small.stat(FILE).size > backend.max_bytes
    assert {kind for kind, path in seen_by(recorder) if path == FILE} == {"create", "append", "read", "stat"}


@pytest.mark.asyncio
async def test_an_event_that_is_no_json_is_refused_and_not_stored(memory: AgentMemory) -> None:
    service = AgentMemorySessionService(memory)
    session = await service.create_session(**SCOPE)
    before = memory.read(FILE)
    deep: list[Any] = []
    for _ in range(252):
        deep = [deep]
    for value in (10**5000, deep):
        with pytest.raises((InvalidContentError, ValueError)):
            await service.append_event(session, event("one", {"n": value}))
    assert memory.read(FILE) == before
    assert session.events == []


@pytest.mark.asyncio
async def test_foreign_files_are_no_sessions(memory: AgentMemory) -> None:
    service = AgentMemorySessionService(memory)
    await service.create_session(**SCOPE)
    for path in ("apps/app/users/ann/events.jsonl", "apps/app/users/ann/sessions/x/y/events.jsonl"):
        memory.write(path, "{}")
    memory.write("apps/app/users/ann/sessions/z/events.jsonl", '{"created":"abc","state":{}}')
    assert [each.id for each in (await service.list_sessions(app_name="app")).sessions] == ["s"]
    with pytest.raises(ReadError):
        await service.get_session(**USER, session_id="z")
    for wrong in ({"app_name": 1}, {"user_id": 1}, {"session_id": 1}):
        with pytest.raises(TypeError):
            await service.get_session(**{**SCOPE, **wrong})


@pytest.mark.asyncio
async def test_a_damaged_line_takes_no_later_event_along(memory: AgentMemory) -> None:
    service = AgentMemorySessionService(memory)
    session = await service.create_session(**SCOPE)
    for number in range(4):
        await service.append_event(session, event(f"{number}", {"user:a": number}))
    lines = memory.read(FILE).splitlines()
    memory.write(FILE, "\n".join([*lines[:2], lines[2][:-9], *lines[3:]]) + "\n")
    fresh = await got(service)
    assert [each.id for each in fresh.events] == ["0", "2", "3"]
    await service.append_event(fresh, event("4"))
    assert [each.id for each in (await got(service)).events] == ["0", "2", "3", "4"]


@pytest.mark.asyncio
async def test_states_are_shared_though_the_session_object_went_on(memory: AgentMemory) -> None:
    service = AgentMemorySessionService(memory)
    session = await service.create_session(**SCOPE)
    with patch.object(AgentMemorySessionService, "_share", side_effect=asyncio.CancelledError):
        with pytest.raises(asyncio.CancelledError):
            await service.append_event(session, event("one", {"user:x": 1, "user:y": 1}, at=5.0))
    await service.append_event(session, event("two", {"user:y": 2}, at=5.0))
    assert (await got(service)).state == {"user:x": 1, "user:y": 2}


@pytest.mark.asyncio
async def test_states_that_a_killed_process_did_not_share_are_shared_by_the_next_reading(memory: AgentMemory) -> None:
    service = AgentMemorySessionService(memory)
    await service.create_session(**SCOPE, state={"user:a": 0, "user:b": 0})
    killed = event("killed", {"user:a": 1, "app:x": 1}, at=5e9)
    memory.append(FILE, line_of(memory, 0, killed))
    reading = AgentMemorySessionService(memory.read_only())
    assert (await got(reading)).state == {"user:a": 0, "user:b": 0}
    assert (await got(service)).state == {"user:a": 1, "user:b": 0, "app:x": 1}
    other = await service.create_session(**USER, session_id="other")
    await service.append_event(other, event("newer", {"user:a": 2}, at=1e9))  # by a clock that is behind
    assert (await got(service)).state["user:a"] == 2
    with pytest.raises(OperationDenied):
        await reading.append_event(await got(service), event("two"))


@pytest.mark.asyncio
async def test_a_session_that_is_gone_is_the_frameworks_error(memory: AgentMemory) -> None:
    service = AgentMemorySessionService(memory)
    session = await service.create_session(**SCOPE)
    await service.delete_session(**SCOPE)
    await service.delete_session(**SCOPE)
    assert await service.get_session(**SCOPE) is None
    with pytest.raises(SessionNotFoundError):
        await service.append_event(session, event("one"))
    assert (await service.list_sessions(app_name="app")).sessions == []


@pytest.mark.asyncio
async def test_damaged_lines_are_skipped_and_told(memory: AgentMemory, caplog: pytest.LogCaptureFixture) -> None:
    service = AgentMemorySessionService(memory)
    await service.append_event(await service.create_session(**SCOPE), event("one"))
    memory.append(FILE, '{"torn\n[]\n')
    session = await got(service)
    assert [each.id for each in session.events] == ["one"]
    assert "2 lines of" in caplog.text
    await service.append_event(session, event("two"))
    memory.write(FILE, "[]\n")
    with pytest.raises(ReadError, match="holds no session"):
        await service.get_session(**SCOPE)
    assert (await service.list_sessions(app_name="app")).sessions == []
    memory.write("apps/app/users/ann/state.json", '{"a": 1}')
    with pytest.raises(ReadError, match="holds no state"):
        await service.get_user_state(**USER)


@pytest.mark.asyncio
async def test_values_that_are_no_json_are_stored_as_texts(
    memory: AgentMemory, caplog: pytest.LogCaptureFixture
) -> None:
    service = AgentMemorySessionService(memory)
    await service.create_session(**SCOPE, state={"f": len, "path": Path("a/b"), "s": {1}})
    state = (await got(service)).state
    assert (state["path"], state["s"]) == ("a/b", [1])
    assert "built-in function" in state["f"]
    assert "builtin_function_or_method" in caplog.text


@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
@pytest.mark.asyncio
async def test_a_hostile_id_is_stored_and_found_again(hostile: str, memory: AgentMemory) -> None:
    service = AgentMemorySessionService(memory)
    made = await service.create_session(app_name=hostile, user_id=hostile, session_id=hostile)
    await service.append_event(made, event("one", {"user:a": 1}))
    found = await service.get_session(app_name=hostile, user_id=hostile, session_id=made.id)
    assert shown(found) == (made.id, hostile, {"user:a": 1}, ["one"])
    (listed,) = (await service.list_sessions(app_name=hostile)).sessions
    assert (listed.id, listed.user_id, listed.app_name) == (made.id, hostile, hostile)


# Processes


def append_one(memory: AgentMemory, process: int, number: int) -> None:
    asyncio.run(_append_one(memory, process, number))


async def _append_one(memory: AgentMemory, process: int, number: int) -> None:
    service = AgentMemorySessionService(memory)
    while True:
        session = await got(service)
        count = session.state.get("count", 0)
        try:
            await service.append_event(
                session, event(f"{process} {number}", {"count": count + 1, f"user:{process}": number})
            )
        except StaleSessionError:
            continue
        return


@rounds(5, 1)
@pytest.mark.asyncio
async def test_no_event_of_several_processes_is_lost_or_stale(shared_place: Root) -> None:
    with AgentMemory.open(shared_place.url, storage_options=shared_place.options) as memory:
        service = AgentMemorySessionService(memory)
        await service.create_session(**SCOPE)
        await asyncio.to_thread(race, shared_place, append_one)
        session = await got(service)
    assert len({each.id for each in session.events}) == len(session.events) == PROCESSES * ADDITIONS
    assert session.state["count"] == PROCESSES * ADDITIONS
    assert {session.state[f"user:{process}"] for process in range(PROCESSES)} == {ADDITIONS - 1}


class Scripted(BaseLlm):
    """A model that tells how many messages it saw."""

    model: str = "scripted"

    async def generate_content_async(
        self,
        request: LlmRequest,
        stream: bool = False,  # noqa: ARG002 - the framework names it
    ) -> AsyncGenerator[LlmResponse, None]:
        texts = [types.Part(text=f"saw {len(request.contents)}")]
        yield LlmResponse(content=types.Content(role="model", parts=texts))


@pytest.mark.asyncio
async def test_a_runner_goes_on_after_a_restart(place: Root) -> None:
    said = types.Content(role="user", parts=[types.Part(text="hello")])
    for turn in range(3):
        with AgentMemory.open(place.url, storage_options=place.options) as memory:
            agent = LlmAgent(name="agent", model=Scripted(), output_key="answer")
            service = AgentMemorySessionService(memory)
            runner = Runner(agent=agent, app_name="app", session_service=service)
            if not turn:
                await service.create_session(**SCOPE)
            async for _ in runner.run_async(user_id="ann", session_id="s", new_message=said):
                pass
            assert (await got(service)).state["answer"] == f"saw {1 + 2 * turn}"
            assert json.loads(memory.read(FILE).splitlines()[0])["state"] == {}


AGENT = """
from google.adk.agents import LlmAgent
from tests.integrations.test_google_adk_sessions import Scripted
root_agent = LlmAgent(name="helper", model=Scripted(), output_key="answer")
"""


@contextmanager
def served(directory: Path) -> Iterator[str]:
    """The address of ``adk api_server`` with the page's ``services.py``."""
    port, uris = free_port(), [f"--{kind}_service_uri=agentmemory://" for kind in ("session", "artifact", "memory")]
    adk = [sys.executable, "-m", "google.adk.cli", "api_server", f"--port={port}", *uris, str(directory / "agents")]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with (directory / "log").open("ab") as log:
        server = subprocess.Popen(adk, cwd=directory, env=environment, stdout=log, stderr=log)
    try:
        for _ in range(600):
            if "running on" in (directory / "log").read_text().rpartition("Started server")[2]:
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)
        (directory / "log").write_text("")


def post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_the_frameworks_server_keeps_sessions_over_a_restart(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "integrations.md"
    (services,) = (block.code for block in blocks_of(page.read_text()) if "get_service_registry" in block.code)
    (tmp_path / "agents" / "helper").mkdir(parents=True)
    (tmp_path / "agents" / "services.py").write_text(services)
    (tmp_path / "agents" / "helper" / "agent.py").write_text(AGENT)
    said = {"role": "user", "parts": [{"text": "hello"}]}
    for turn in range(2):
        with served(tmp_path) as url:
            if not turn:
                post(f"{url}/apps/helper/users/ann/sessions/s", {"user:name": "Ann"})
            body = {"app_name": "helper", "user_id": "ann", "session_id": "s", "new_message": said}
            (answer,) = post(f"{url}/run", body)
            assert answer["content"]["parts"][0]["text"] == f"saw {1 + 2 * turn}"
    assert len(list(tmp_path.rglob("sessions/s/events.jsonl"))) == 1


def test_the_example_goes_on_in_a_second_process_on_disk(tmp_path: Path) -> None:
    root = str(tmp_path / "memories")
    assert example_output(EXAMPLE, root, {}) == "You said: Message 1\n"
    assert example_output(EXAMPLE, root, {}) == "You said: Message 1; Message 2\n"
    (file,) = tmp_path.rglob("sessions/monday/events.jsonl")
    assert len(file.read_text().splitlines()) == 5


@pytest.mark.long
def test_the_example_goes_on_in_a_second_process_on_s3(ministack: S3Server) -> None:
    root = ministack.new_url()
    assert example_output(EXAMPLE, root, ministack.environment) == "You said: Message 1\n"
    assert example_output(EXAMPLE, root, ministack.environment) == "You said: Message 1; Message 2\n"
