"""The Claude Agent SDK's sessions over a memory: the SDK's own suite, and what it leaves open."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import pytest
from hypothesis import given, settings

sdk = pytest.importorskip("claude_agent_sdk")

from claude_agent_sdk import (  # noqa: E402
    ClaudeAgentOptions,
    SessionKey,
    SessionStoreEntry,
    Transport,
    delete_session_via_store,
    fork_session_via_store,
    get_session_messages_from_store,
    import_session_to_store,
    list_sessions_from_store,
    project_key_for_directory,
    query,
    rename_session_via_store,
    tag_session_via_store,
)
from claude_agent_sdk.testing import run_session_store_conformance  # noqa: E402
from claude_agent_sdk.types import MirrorErrorMessage  # noqa: E402

from agent_memory import (  # noqa: E402
    AgentMemory,
    AsyncAgentMemory,
    FileTooLargeError,
    InvalidContentError,
    Operation,
    OperationDenied,
    hookimpl,
)
from agent_memory.integrations.claude_agent_sdk import AgentMemorySessionStore  # noqa: E402
from agent_memory.testing import RecordingPlugin  # noqa: E402
from tests.integrations.kit import ADDITIONS, HOSTILE, IDS, PROCESSES, at_once, example_output, race, rounds, seen_by  # noqa: E402
from tests.support.servers import Root, S3Server  # noqa: E402

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "integrations" / "claude_session.py"
SESSION: Final = "11111111-2222-4333-8444-555555555555"


def key(session: str = "s", project: str = "p", subpath: str | None = None) -> SessionKey:
    if subpath is None:
        return {"project_key": project, "session_id": session}
    return {"project_key": project, "session_id": session, "subpath": subpath}


def entry(uuid: str | None = None, **fields: object) -> SessionStoreEntry:
    named = {} if uuid is None else {"uuid": uuid}
    return cast(SessionStoreEntry, {"type": "x", **named, **fields})


def entries(*uuids: str) -> list[SessionStoreEntry]:
    return [entry(uuid) for uuid in uuids]


@pytest.mark.asyncio
async def test_the_suite_of_the_sdk_passes(memory: AgentMemory) -> None:
    numbers = itertools.count()
    await run_session_store_conformance(lambda: AgentMemorySessionStore(memory.subtree(f"store{next(numbers)}")))
    assert next(numbers) == 15, "a store for each of the 14 contracts, and one to look at"


@pytest.mark.asyncio
async def test_the_suite_of_the_sdk_passes_with_an_async_memory(place: Root) -> None:
    numbers = itertools.count()
    async with AsyncAgentMemory.open(place.url, storage_options=place.options) as memory:
        await run_session_store_conformance(lambda: AgentMemorySessionStore(memory.subtree(f"store{next(numbers)}")))


@pytest.mark.asyncio
async def test_a_repeated_append_adds_nothing(memory: AgentMemory) -> None:
    store = AgentMemorySessionStore(memory)
    await store.append(key(), entries("a", "b"))
    await store.append(key(), entries("a", "b"))
    await store.append(key(), entries("b", "c", "c"))
    await store.append(key(), entries("a", "d"))
    assert await store.load(key()) == entries("a", "b", "c", "d")


@pytest.mark.asyncio
async def test_the_first_entry_of_a_uuid_is_kept() -> None:
    with AgentMemory.open("memory://") as memory:
        store = AgentMemorySessionStore(memory)
        await store.append(key(), [entry("a", n=1), entry("a", n=2)])
        await store.append(key(), [entry("a", n=3)])
        assert await store.load(key()) == [entry("a", n=1)]


@pytest.mark.asyncio
async def test_entries_without_a_uuid_are_added_each_time(memory: AgentMemory) -> None:
    store = AgentMemorySessionStore(memory)
    odd = [entry(title="t"), entry(cast(str, 7)), entry(cast(str, ["list"]))]
    await store.append(key(), odd)
    await store.append(key(), odd)
    assert await store.load(key()) == [*odd, *odd]


def _append_two(memory: AgentMemory) -> None:
    asyncio.run(AgentMemorySessionStore(memory).append(key(), [entry("a", text="é" * 1000), entry("b")]))


@rounds(5, 1)
def test_an_append_repeated_by_two_processes_at_once_adds_nothing(shared_place: Root) -> None:
    at_once(shared_place, _append_two)
    with AgentMemory.open(shared_place.url, storage_options=shared_place.options) as memory:
        loaded = asyncio.run(AgentMemorySessionStore(memory).load(key()))
        assert [each["uuid"] for each in loaded or []] == ["a", "b"]


def _append_one(memory: AgentMemory, process: int, number: int) -> None:
    asyncio.run(AgentMemorySessionStore(memory).append(key(), entries(f"{process}-{number}", f"last-{number}")))


@rounds(5, 1)
def test_in_a_race_four_processes_keep_all_entries(shared_place: Root) -> None:
    race(shared_place, _append_one)
    with AgentMemory.open(shared_place.url, storage_options=shared_place.options) as memory:
        found = [each["uuid"] for each in asyncio.run(AgentMemorySessionStore(memory).load(key())) or []]
    of_each = [[uuid for uuid in found if uuid.startswith(f"{process}-")] for process in range(PROCESSES)]
    assert of_each == [[f"{process}-{n}" for n in range(ADDITIONS)] for process in range(PROCESSES)]
    assert len(found) == PROCESSES * ADDITIONS + ADDITIONS


@pytest.mark.asyncio
async def test_damaged_lines_are_skipped_and_the_next_append_begins_a_line() -> None:
    with AgentMemory.open("memory://") as memory:
        store = AgentMemorySessionStore(memory)
        await store.append(key(), entries("a"))
        memory.append("p/s.jsonl", b'\xff\xfe\n[1]\n"text"\nnull\n7\n\n{"type": NaN}\n{"type":"x","uuid":"to')
        await store.append(key(), entries("b"))
        assert await store.load(key()) == entries("a", "b")


@pytest.mark.asyncio
async def test_an_append_sends_only_the_new_lines_and_reads_nothing() -> None:
    observer = RecordingPlugin()
    with AgentMemory.open("memory://", plugins=[observer]) as memory:
        store = AgentMemorySessionStore(memory)
        await store.append(key(), [entry("a", text="x" * 1_000_000)])
        await store.append(key(subpath="agents/1"), entries("a"))
        assert seen_by(observer) == [
            ("append", "p/s.jsonl"),
            ("append", "p/s.subpaths/agents=2F1.jsonl"),
        ]


@pytest.mark.asyncio
async def test_nothing_is_written_without_entries(memory: AgentMemory) -> None:
    store = AgentMemorySessionStore(memory)
    await store.append(key(), [])
    await store.append(key("x" * 500), [])
    assert memory.list() == ()
    assert await store.load(key()) is None


@pytest.mark.asyncio
async def test_half_a_character_is_kept(memory: AgentMemory) -> None:
    store = AgentMemorySessionStore(memory)
    cut = [entry("a", text="é cut \ud83d"), entry("b", **{"\udc00": ["\ud800\n"]}, customTitle="\ud800")]
    await store.append(key(), cut)
    assert await store.load(key()) == cut
    [summary] = await store.list_session_summaries("p")
    assert summary["data"]["custom_title"] == "\ud800"


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (float("nan"), InvalidContentError),
        (b"bytes", InvalidContentError),
        ({1, 2}, InvalidContentError),
        ("x" * 16 * 1024 * 1024, FileTooLargeError),
    ],
    ids=["nan", "bytes", "set", "large"],
)
@pytest.mark.asyncio
async def test_an_entry_that_cannot_be_loaded_again_is_refused_before_anything_is_written(
    wrong: object, error: type[Exception]
) -> None:
    with AgentMemory.open("memory://") as memory:
        with pytest.raises(error):
            await AgentMemorySessionStore(memory).append(key(), [entry("a"), entry("b", value=wrong)])
        with pytest.raises(TypeError):
            await AgentMemorySessionStore(memory).append(key(), [entry("a"), cast(SessionStoreEntry, ["a", "list"])])
        assert memory.list() == ()


@pytest.mark.asyncio
async def test_an_entry_of_almost_the_limit_is_loaded_again() -> None:
    with AgentMemory.open("memory://") as memory:
        store = AgentMemorySessionStore(memory)
        large = [entry("a"), entry("b", text="x" * (16 * 1024 * 1024 - 100)), entry("c")]
        await store.append(key(), large)
        assert await store.load(key()) == large


@pytest.mark.asyncio
async def test_ids_of_a_wrong_type_and_an_empty_subpath_are_refused() -> None:
    with AgentMemory.open("memory://") as memory:
        store = AgentMemorySessionStore(memory)
        for wrong in (key(cast(str, 7)), key(project=cast(str, None)), key(subpath=cast(str, b"x"))):
            with pytest.raises(TypeError):
                await store.append(wrong, entries("a"))
            with pytest.raises(TypeError):
                await store.load(wrong)
        with pytest.raises(ValueError, match="subpath"):
            await store.append(key(subpath=""), entries("a"))
        assert memory.list() == ()
    with pytest.raises(TypeError):
        AgentMemorySessionStore(cast(AgentMemory, "memory://"))


@pytest.mark.asyncio
async def test_hostile_ids_are_found_again(memory: AgentMemory) -> None:
    store = AgentMemorySessionStore(memory.subtree("sessions"))
    for number, text in enumerate(HOSTILE):
        await store.append(key(text), entries(f"session-{number}"))
        await store.append(key(project=f"of {text}"), entries(f"project-{number}"))
        await store.append(key("s", "subpaths", text or "none"), entries(f"subpath-{number}"))
    for number, text in enumerate(HOSTILE):
        assert await store.load(key(text)) == entries(f"session-{number}")
        assert await store.load(key(project=f"of {text}")) == entries(f"project-{number}")
        assert await store.load(key("s", "subpaths", text or "none")) == entries(f"subpath-{number}")
    listed = [each["session_id"] for each in await store.list_sessions("p")]
    assert sorted(listed) == sorted(HOSTILE)
    subpaths = await store.list_subkeys({"project_key": "subpaths", "session_id": "s"})
    assert sorted(subpaths) == sorted(text or "none" for text in HOSTILE)
    assert {found.path.partition("/")[0] for found in memory.list()} == {"sessions"}


@pytest.mark.asyncio
async def test_sessions_that_are_named_like_each_others_files_are_apart(memory: AgentMemory) -> None:
    store = AgentMemorySessionStore(memory)
    names = ("a", "a.jsonl", "a.subpaths", "a.summary.json", "a.subpaths.jsonl")
    for name in names:
        await store.append(key(name), entries(name))
        await store.append(key(name, subpath=name), entries("of " + name))
    assert {each["session_id"] for each in await store.list_session_summaries("p")} == set(names)
    await store.delete(key("a"))
    for name in names[1:]:
        assert await store.load(key(name)) == entries(name)
        assert await store.load(key(name, subpath=name)) == entries("of " + name)
    assert {each["session_id"] for each in await store.list_sessions("p")} == set(names[1:])


@given(IDS, IDS)
@settings(max_examples=50)
def test_two_ids_never_share_a_file(one: str, two: str) -> None:
    async def loaded(make: Callable[[str], SessionKey]) -> bool:
        with AgentMemory.open("memory://") as memory:
            store = AgentMemorySessionStore(memory)
            await store.append(make(one), entries("a"))
            return await store.load(make(two)) is not None

    for make in (key, lambda text: key(project=text), lambda text: key(subpath=text or "none")):
        assert asyncio.run(loaded(make)) == (make(one) == make(two))


@pytest.mark.asyncio
async def test_files_of_other_programs_are_no_sessions(memory: AgentMemory) -> None:
    store = AgentMemorySessionStore(memory)
    await store.append(key(), entries("a"))
    for name in ("notes.md", "=zz.jsonl", "x.jsonl/inside.md", f"x=={'0' * 64}.jsonl"):
        memory.write(f"p/{name}", "{}\n")
    assert [each["session_id"] for each in await store.list_sessions("p")] == ["s"]
    assert [each["session_id"] for each in await store.list_session_summaries("p")] == ["s"]


@pytest.mark.asyncio
async def test_a_deleted_session_leaves_no_file(memory: AgentMemory) -> None:
    store = AgentMemorySessionStore(memory)
    for session in ("s", "other"):
        await store.append(key(session), entries("a"))
        await store.append(key(session, subpath="agents/1"), entries("a"))
    await store.list_session_summaries("p")
    await store.delete(key())
    await store.delete(key())
    assert {found.path for found in memory.list()} == {
        "p/other.jsonl", "p/other.subpaths/agents=2F1.jsonl", "p/other.summary.json",
    }  # fmt: skip
    await store.append(key(), entries("b"))
    assert await store.load(key()) == entries("b")


def _titles(found: list[Any]) -> dict[str, str | None]:
    return {each["session_id"]: each["data"].get("custom_title") for each in found}


@pytest.mark.asyncio
async def test_a_summary_is_made_again_only_after_an_append(place: Root) -> None:
    observer = RecordingPlugin()
    with AgentMemory.open(place.url, storage_options=place.options, plugins=[observer]) as memory:
        store = AgentMemorySessionStore(memory)
        await store.append(key("one"), [entry(customTitle="first")])
        await store.append(key("two"), [entry(customTitle="second")])
        assert _titles(await store.list_session_summaries("p")) == {"one": "first", "two": "second"}
        observer.after.clear()
        assert _titles(await store.list_session_summaries("p")) == {"one": "first", "two": "second"}
        assert {kind for kind, _ in seen_by(observer)} == {"list", "read"}
        assert {path for kind, path in seen_by(observer) if kind == "read"} == {
            "p/one.summary.json",
            "p/two.summary.json",
        }
        await store.append(key("two"), [entry(customTitle="third")])
        assert _titles(await store.list_session_summaries("p")) == {"one": "first", "two": "third"}


@pytest.mark.asyncio
async def test_a_repeated_append_does_not_change_a_summary(memory: AgentMemory) -> None:
    store = AgentMemorySessionStore(memory)
    await store.append(key(), [entry("a", gitBranch="old")])
    await store.append(key(), [entry("b", gitBranch="new")])
    [before] = await store.list_session_summaries("p")
    await store.append(key(), [entry("a", gitBranch="old")])
    [after] = await store.list_session_summaries("p")
    assert before["data"] == after["data"]
    assert after["data"]["git_branch"] == "new"


@pytest.mark.parametrize("kept", [b"", b"\xff", b"[]", b"{}", b'{"of":null,"data":{}}', b'{"of":[],"data":7}'])
@pytest.mark.asyncio
async def test_a_damaged_summary_is_made_again(kept: bytes) -> None:
    with AgentMemory.open("memory://") as memory:
        store = AgentMemorySessionStore(memory)
        await store.append(key(), [entry(customTitle="title")])
        memory.write("p/s.summary.json", kept)
        assert _titles(await store.list_session_summaries("p")) == {"s": "title"}


@pytest.mark.asyncio
async def test_a_summary_is_of_the_same_moment_as_the_listing(memory: AgentMemory) -> None:
    store = AgentMemorySessionStore(memory)
    await store.append(key(), entries("a"))
    [summary] = await store.list_session_summaries("p")
    assert await store.list_sessions("p") == [{"session_id": "s", "mtime": summary["mtime"]}]


@pytest.mark.asyncio
async def test_a_deletion_while_a_summary_is_made_leaves_no_summary() -> None:
    class Deleter:
        """Deletes the transcript before its summary is written, as another process could."""

        memory: AgentMemory

        @hookimpl
        def agent_memory_before_operation(self, operation: Operation) -> None:
            if operation.kind == "write":
                self.memory.delete("p/s.jsonl")

    deleter = Deleter()
    with AgentMemory.open("memory://", plugins=[deleter]) as memory:
        deleter.memory = memory
        store = AgentMemorySessionStore(memory)
        await store.append(key(), [entry(customTitle="private")])
        await store.list_session_summaries("p")
        assert memory.list() == ()


@pytest.mark.asyncio
async def test_a_read_only_memory_is_read_and_never_changed(memory: AgentMemory) -> None:
    await AgentMemorySessionStore(memory).append(key(), [entry("a", customTitle="title")])
    store = AgentMemorySessionStore(memory.read_only())
    assert await store.load(key()) == [entry("a", customTitle="title")]
    assert _titles(await store.list_session_summaries("p")) == {"s": "title"}
    with pytest.raises(OperationDenied):
        await store.append(key(), entries("b"))
    with pytest.raises(OperationDenied):
        await store.delete(key())
    assert [found.path for found in memory.list()] == ["p/s.jsonl"]


@pytest.mark.asyncio
async def test_hooks_see_each_call() -> None:
    observer = RecordingPlugin()
    with AgentMemory.open("memory://", plugins=[observer]) as memory:
        store = AgentMemorySessionStore(memory)
        await store.append(key("x" * 500), entries("a"))
        await store.load(key("x" * 500))
        await store.delete(key("x" * 500))
    kinds = [kind for kind, _ in seen_by(observer)]
    assert kinds == ["create", "append", "read", "delete_tree", "delete", "delete"], seen_by(observer)


@pytest.mark.asyncio
async def test_the_functions_of_the_sdk_work_with_the_store(memory: AgentMemory) -> None:
    store = AgentMemorySessionStore(memory)
    here = key(SESSION, project_key_for_directory())
    user = {"role": "user", "content": "I like tea."}
    uuid = "22222222-2222-4333-8444-555555555555"
    await store.append(here, [entry(uuid, type="user", sessionId=SESSION, message=user)])
    await rename_session_via_store(store, SESSION, "Tea")
    await tag_session_via_store(store, SESSION, "drinks")
    [session] = await list_sessions_from_store(store)
    assert (session.session_id, session.custom_title, session.tag) == (SESSION, "Tea", "drinks")
    forked = await fork_session_via_store(store, SESSION)
    assert {each.session_id for each in await list_sessions_from_store(store)} == {SESSION, forked.session_id}
    [message] = await get_session_messages_from_store(store, forked.session_id)
    assert message.message == user
    await delete_session_via_store(store, SESSION)
    assert [each.session_id for each in await list_sessions_from_store(store)] == [forked.session_id]


@pytest.mark.asyncio
async def test_an_import_can_be_repeated(memory: AgentMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    transcript = tmp_path / "claude" / "projects" / "a-project" / f"{SESSION}.jsonl"
    agent = transcript.with_suffix("") / "subagents" / "agent-1.jsonl"
    agent.parent.mkdir(parents=True)
    for file in (transcript, agent):
        file.write_text("".join(json.dumps(entry(f"{file.name}-{number}")) + "\n" for number in range(7)))
    store = AgentMemorySessionStore(memory)
    for _ in range(2):
        await import_session_to_store(SESSION, store, batch_size=3)
    for file, subpath in ((transcript, None), (agent, "subagents/agent-1")):
        uuids = [each["uuid"] for each in await store.load(key(SESSION, "a-project", subpath)) or []]
        assert uuids == [f"{file.name}-{number}" for number in range(7)]


class Scripted(Transport):
    """Answers the first message with entries for the transcript and a result."""

    def __init__(self, sent: list[SessionStoreEntry]) -> None:
        self._sent = sent
        self._frames: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def write(self, data: str) -> None:
        frame = json.loads(data)
        if frame["type"] == "control_request":
            self._send("control_response", response={"subtype": "success", "request_id": frame["request_id"]})
        else:
            self._send("transcript_mirror", filePath=f"/c/projects/p/{SESSION}.jsonl", entries=self._sent)
            self._send("result", subtype="success", session_id=SESSION, is_error=False, num_turns=1,
                       duration_ms=0, duration_api_ms=0)  # fmt: skip

    def _send(self, kind: str, **facts: object) -> None:
        self._frames.put_nowait({"type": kind, **facts})

    async def read_messages(self) -> Any:
        while (frame := await self._frames.get())["type"] != "end":
            yield frame

    async def end_input(self) -> None:
        self._send("end")

    async def connect(self) -> None: ...
    async def close(self) -> None: ...
    def is_ready(self) -> bool:
        return True


async def _asked(memory: AgentMemory, sent: list[SessionStoreEntry]) -> list[Any]:
    options = ClaudeAgentOptions(session_store=AgentMemorySessionStore(memory), env={"CLAUDE_CONFIG_DIR": "/c"})
    return [message async for message in query(prompt="Hello", options=options, transport=Scripted(sent))]


@pytest.mark.asyncio
async def test_a_failed_attempt_of_the_sdk_is_repeated_and_nothing_is_there_twice() -> None:
    class Appends:
        """Counts the appends."""

        count = 0

        @hookimpl
        def agent_memory_after_operation(self, operation: Operation) -> None:
            self.count += operation.kind == "append"

    class Store(AgentMemorySessionStore):
        async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
            await super().append(key, entries)
            if appends.count == 1:
                raise ConnectionError("the answer was lost")

    appends = Appends()
    with AgentMemory.open("memory://", plugins=[appends]) as memory:
        options = ClaudeAgentOptions(session_store=Store(memory), env={"CLAUDE_CONFIG_DIR": "/c"})
        messages = [m async for m in query(prompt="Hello", options=options, transport=Scripted(entries("a", "b")))]
        assert not [message for message in messages if isinstance(message, MirrorErrorMessage)]
        assert appends.count == 2
        assert await AgentMemorySessionStore(memory).load(key(SESSION)) == entries("a", "b")


@pytest.mark.asyncio
async def test_the_sdk_reports_a_refused_append_and_the_session_goes_on(memory: AgentMemory) -> None:
    messages = await _asked(memory.read_only(), entries("a"))
    [error] = [message for message in messages if isinstance(message, MirrorErrorMessage)]
    assert "read-only" in error.error
    assert memory.list() == ()


def run_example(root: str, **environment: str) -> list[str]:
    return example_output(EXAMPLE, root, environment, silent=True).splitlines()


def test_the_example_remembers_on_disk(tmp_path: Path) -> None:
    root = tmp_path / "memories"
    for number in (1, 2):
        said, *kept = run_example(str(root))
        assert said == "Claude: Noted."
        assert len(kept) == number
        assert all(line.endswith(" of 2 messages: I like tea.") for line in kept)
    assert len(list(root.glob("agent_memory/ann/sessions/*/*.jsonl"))) == 2


@pytest.mark.long
def test_the_example_remembers_on_s3(ministack: S3Server) -> None:
    said, kept = run_example(ministack.new_url(), **ministack.environment)
    assert said == "Claude: Noted."
    assert kept.endswith(" of 2 messages: I like tea.")


def test_another_version_of_the_sdk_is_an_error_that_says_so() -> None:
    program = """
import sys, types
sys.modules["claude_agent_sdk"] = types.ModuleType("claude_agent_sdk")
import agent_memory.integrations.claude_agent_sdk
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert f"claude-agent-sdk {sdk.__version__} does not fit this adapter" in last
    assert "pip install 'agent-memory-files[claude-agent-sdk]'" in last


@pytest.mark.asyncio
async def test_damaged_lines_of_a_transcript_are_counted_and_a_mark_hides_no_entry(
    caplog: pytest.LogCaptureFixture,
) -> None:
    memory = AgentMemory.open("memory://")
    store = AgentMemorySessionStore(memory)
    await store.append(key(), entries("a", "b"))
    (path,) = (each.path for each in memory.list() if each.path.endswith(".jsonl"))
    memory.write(path, b"\xef\xbb\xbf" + memory.read_bytes(path) + b'{"uuid": "c\n5\n' + memory.read_bytes(path))
    assert await store.load(key()) == entries("a", "b")
    assert len(await store.list_session_summaries(key()["project_key"])) == 1
    told = [record.getMessage() for record in caplog.records if "hold no entry" in record.getMessage()]
    assert told == [f"{path}: 2 lines hold no entry of a session"] * 2
