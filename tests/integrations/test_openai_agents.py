"""A session of the OpenAI Agents SDK over a memory. The contract's cases run on the SDK's own `SQLiteSession` too."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

agents = pytest.importorskip("agents")

from agents import Agent, RunConfig, Runner, TResponseInputItem, set_tracing_disabled  # noqa: E402
from agents.items import ModelResponse  # noqa: E402
from agents.memory import (  # noqa: E402
    OpenAIResponsesCompactionSession,
    Session,
    SessionSettings,
    SQLiteSession,
)
from agents.models.interface import Model  # noqa: E402
from agents.testing import ScriptedModel, assistant_message  # noqa: E402
from agents.usage import Usage  # noqa: E402
from openai.types.responses import ResponseFunctionToolCall  # noqa: E402

from agent_memory import (  # noqa: E402
    AgentMemory,
    FileTooLargeError,
    InvalidContentError,
    OperationDenied,
)
from agent_memory.integrations.openai_agents import AgentMemorySession, memory_tools  # noqa: E402
from agent_memory.testing import RecordingPlugin  # noqa: E402
from agent_memory_memory import MemoryBackend  # noqa: E402
from tests.integrations.kit import ADDITIONS, HOSTILE, IDS, PROCESSES, at_once, example_output, race, rounds, seen_by  # noqa: E402
from tests.integrations.note_taking import NoteTaker, check  # noqa: E402
from tests.support.servers import Root, S3Server  # noqa: E402

set_tracing_disabled(True)

Make: TypeAlias = Callable[..., Session]
Damage: TypeAlias = Callable[[str], object]
EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "integrations" / "openai_session.py"
ID: Final = "chat-1"
FILE: Final = f"{ID}.jsonl"
ITEMS: Final[list[Any]] = [
    {"role": "user", "content": "first\nline, \u2028 and é 👩‍👩‍👧‍👦"},
    {},
    {"type": "function_call", "call_id": "1", "name": "add", "arguments": '{"a": [1, 2.5, null]}'},
    {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": ""}], "big": 10**30},
    {"role": "assistant", "content": None, "nested": {"a": {"b": [True, False, {"": 0.1}]}}},
]


def item(text: str) -> TResponseInputItem:
    return {"role": "user", "content": text}


def texts(items: list[TResponseInputItem]) -> list[str]:
    return [str(each.get("content")) for each in items]


HAS_HOOK: Final = hasattr(agents.memory.session, "_CompactionSnapshot")
needs_hook = pytest.mark.skipif(not HAS_HOOK, reason="this SDK does not ask a session for a snapshot to compact")
SUMMARY: Final[Any] = {"type": "compaction", "id": "cmp_1", "encrypted_content": "all of it"}


class Compactions:
    """A client of the compaction API: each call first runs ``meanwhile``, then returns `SUMMARY`."""

    def __init__(self, meanwhile: Callable[[], Awaitable[object]] | None = None) -> None:
        self.inputs: list[Any] = []
        self.responses = self
        self._meanwhile = meanwhile

    async def compact(self, **options: Any) -> Any:
        self.inputs.append(options["input"])
        if self._meanwhile is not None:
            await self._meanwhile()
        return SimpleNamespace(output=[SUMMARY], usage=None)

    def over(self, session: Session) -> OpenAIResponsesCompactionSession:
        """A session that is compacted after each turn."""
        client: Any = self
        return OpenAIResponsesCompactionSession(
            ID, session, client=client, compaction_mode="input", should_trigger_compaction=lambda _: True
        )


async def runs(count: int, session: Session) -> None:
    """Run an agent with a scripted model so many times."""
    agent = Agent("assistant", model=ScriptedModel([[assistant_message("answer")]] * count))
    for number in range(count):
        await Runner.run(agent, f"turn {number}", session=session)


@pytest.mark.asyncio
class SessionContract:
    """The contract of a session, as the SDK's own sessions keep it."""

    async def test_a_session_without_items_is_empty(self, make: Make) -> None:
        session = make()
        assert await session.get_items() == []
        assert await session.get_items(3) == []
        assert await session.pop_item() is None
        await session.clear_session()
        assert await session.get_items() == []

    async def test_it_is_a_session_of_the_sdk(self, make: Make) -> None:
        assert isinstance(make(), Session)
        assert make().session_id == ID
        assert make().session_settings == SessionSettings()

    async def test_items_of_any_json_are_returned_as_they_were_added(self, make: Make) -> None:
        session = make()
        await session.add_items(ITEMS[:2])
        await session.add_items(ITEMS[2:])
        assert await session.get_items() == ITEMS
        assert await make().get_items() == ITEMS, "another object of the same session"

    async def test_no_items_are_added_without_a_trace(self, make: Make) -> None:
        session = make()
        await session.add_items([])
        assert await session.get_items() == []
        await session.add_items([item("one")])
        await session.add_items([])
        assert texts(await session.get_items()) == ["one"]

    async def test_a_limit_gives_the_latest_items_oldest_first(self, make: Make) -> None:
        session = make()
        await session.add_items([item(str(number)) for number in range(10)])
        assert texts(await session.get_items(3)) == ["7", "8", "9"]
        assert texts(await session.get_items(1)) == ["9"]
        assert len(await session.get_items(10)) == len(await session.get_items(1_000)) == 10
        assert await session.get_items(0) == []

    async def test_without_a_limit_that_of_the_settings_counts(self, make: Make) -> None:
        session = make(session_settings=SessionSettings(limit=2))
        await session.add_items([item(str(number)) for number in range(4)])
        assert texts(await session.get_items()) == ["2", "3"]
        assert texts(await session.get_items(3)) == ["1", "2", "3"]
        assert await session.get_items(0) == []
        session.session_settings = SessionSettings(limit=0)
        assert await session.get_items() == []
        session.session_settings = None
        assert len(await session.get_items()) == 4

    async def test_the_last_item_is_removed_and_returned(self, make: Make) -> None:
        session = make()
        await session.add_items(ITEMS)
        for count in reversed(range(len(ITEMS))):
            assert await session.pop_item() == ITEMS[count]
            assert await session.get_items() == ITEMS[:count]
        assert await session.pop_item() is None
        await session.add_items([item("again")])
        assert texts(await session.get_items()) == ["again"]

    async def test_a_cleared_session_is_empty_and_can_be_used_again(self, make: Make) -> None:
        session = make()
        await session.add_items(ITEMS)
        await session.clear_session()
        assert await session.get_items() == []
        assert await session.pop_item() is None
        await session.add_items([item("new")])
        assert texts(await session.get_items()) == ["new"]

    async def test_sessions_with_different_ids_are_separate(self, make: Make) -> None:
        one, two = make("one"), make("two")
        await one.add_items([item("1")])
        await two.add_items([item("2")])
        await one.clear_session()
        assert await one.get_items() == []
        assert texts(await two.get_items()) == ["2"]
        assert await one.pop_item() is None

    async def test_a_caller_that_changes_an_item_changes_no_stored_item(self, make: Make) -> None:
        session = make()
        given_item: Any = {"role": "user", "content": "one"}
        await session.add_items([given_item])
        given_item["content"] = "changed"
        got: Any = await session.get_items()
        got[0]["content"] = "changed"
        assert texts(await session.get_items()) == ["one"]

    async def test_damaged_lines_are_skipped_and_the_limit_counts_items(self, make: Make, damage: Damage) -> None:
        session = make()
        await session.add_items([item("1"), item("2")])
        damage('{"role": "us')
        await session.add_items([item("3")])
        damage("no json")
        damage("")
        assert texts(await session.get_items()) == ["1", "2", "3"]
        assert texts(await session.get_items(2)) == ["2", "3"]
        assert await session.pop_item() == item("3")
        assert await session.pop_item() == item("2")
        assert texts(await session.get_items(5)) == ["1"]

    async def test_a_session_of_damaged_lines_has_no_item(self, make: Make, damage: Damage) -> None:
        session = make()
        damage("[")
        assert await session.get_items() == await session.get_items(1) == []
        assert await session.pop_item() is None
        await session.clear_session()
        await session.add_items([item("1")])
        assert texts(await session.get_items()) == ["1"]

    async def test_concurrent_additions_are_all_kept_each_in_one_piece(self, make: Make) -> None:
        session = make()
        await asyncio.gather(*(session.add_items([item(f"{n} {part}") for part in range(3)]) for n in range(20)))
        kept = [text.split() for text in texts(await session.get_items())]
        assert [part for _, part in kept] == ["0", "1", "2"] * 20
        assert all(kept[at][0] == kept[at + 1][0] == kept[at + 2][0] for at in range(0, 60, 3))
        assert len({n for n, _ in kept}) == 20

    async def test_concurrent_removals_give_each_item_to_one_caller(self, make: Make) -> None:
        session = make()
        await session.add_items([item(str(number)) for number in range(15)])
        popped = await asyncio.gather(*(session.pop_item() for _ in range(20)))
        assert sorted(int(str(each.get("content"))) for each in popped if each) == list(range(15))
        assert popped.count(None) == 5
        assert await session.get_items() == []

    async def test_a_second_run_remembers_the_first(self, make: Make) -> None:
        model = ScriptedModel([[assistant_message("Hello Ann.")], [assistant_message("You are Ann.")]])
        agent = Agent("assistant", model=model)
        await Runner.run(agent, "I am Ann.", session=make())
        result = await Runner.run(agent, "Who am I?", session=make())
        assert result.final_output == "You are Ann."
        assert model.last_call is not None
        roles = [(each["role"], said(each)) for each in model.last_call.input]
        assert roles == [("user", "I am Ann."), ("assistant", "Hello Ann."), ("user", "Who am I?")]
        assert len(await make().get_items()) == 4

    async def test_a_streamed_run_is_remembered_too(self, make: Make) -> None:
        model = ScriptedModel([[assistant_message("one")], [assistant_message("two")]])
        agent = Agent("assistant", model=model)
        for text in ("first", "second"):
            result = Runner.run_streamed(agent, text, session=make())
            async for _ in result.stream_events():
                pass
        assert [said(each) for each in await make().get_items()] == ["first", "one", "second", "two"]

    async def test_a_run_reads_as_many_items_as_its_settings_allow(self, make: Make) -> None:
        session = make()
        await session.add_items([item(str(number)) for number in range(6)])
        model = ScriptedModel([[assistant_message("ok")]])
        config = RunConfig(session_settings=SessionSettings(limit=2))
        await Runner.run(Agent("assistant", model=model), "now", session=session, run_config=config)
        assert model.last_call is not None
        assert texts(model.last_call.input) == ["4", "5", "now"]
        assert len(await session.get_items()) == 8

    async def test_a_compaction_replaces_what_the_model_saw(self, make: Make) -> None:
        compactions = Compactions()
        await runs(2, compactions.over(make()))
        assert len(compactions.inputs) == 2
        assert await make().get_items() == [SUMMARY]

    @needs_hook
    async def test_what_others_add_during_a_compaction_stays(self, make: Make) -> None:
        compactions = Compactions(lambda: make().add_items([item("meanwhile")]))
        await runs(1, compactions.over(make()))
        assert [said(each) for each in await make().get_items()] == ["turn 0", "answer", "meanwhile"]

    @needs_hook
    async def test_a_compaction_that_sees_a_part_keeps_the_items_before(self, make: Make) -> None:
        await make().add_items([item(f"old {number}") for number in range(5)])
        compactions = Compactions()
        await runs(1, compactions.over(make(session_settings=SessionSettings(limit=2))))
        assert len(compactions.inputs) == 1
        assert texts((await make().get_items(100))[:-1]) == ["old 0", "old 1", "old 2"]
        assert (await make().get_items(1)) == [SUMMARY]

    async def test_a_compaction_on_request_replaces_all_items(self, make: Make) -> None:
        await make().add_items([item(f"old {number}") for number in range(5)])
        await Compactions().over(make()).run_compaction({"force": True, "compaction_mode": "input"})
        assert await make().get_items() == [SUMMARY]


def said(each: Any) -> str:
    content = each["content"]
    return content if isinstance(content, str) else content[0]["text"]


class TestAgentMemorySession(SessionContract):
    @pytest.fixture
    def make(self, memory: AgentMemory) -> Make:
        return lambda session_id=ID, **options: AgentMemorySession(memory, session_id, **options)

    @pytest.fixture
    def damage(self, memory: AgentMemory) -> Damage:
        return lambda line: memory.append(FILE, f"{line}\n")


class TestSQLiteSession(SessionContract):
    """The reference: a case that fails here is no contract of the SDK."""

    @pytest.fixture
    def make(self, tmp_path: Path) -> Iterator[Make]:
        made: list[SQLiteSession] = []

        def session(session_id: str = ID, **options: Any) -> Session:
            made.append(SQLiteSession(session_id, tmp_path / "sessions.db", **options))
            return made[-1]

        yield session
        for each in made:
            each.close()

    @pytest.fixture
    def damage(self, tmp_path: Path) -> Damage:
        return lambda row: damaged(tmp_path / "sessions.db", row)


def damaged(database: Path, row: str) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("INSERT INTO agent_messages (session_id, message_data) VALUES (?, ?)", (ID, row))


JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
STEPS: Final = st.one_of(
    st.tuples(st.just("add"), st.lists(st.dictionaries(st.text(max_size=5), JSON, max_size=3), max_size=3)),
    st.tuples(st.just("get"), st.none() | st.integers(0, 5)),
    st.tuples(st.just("damage"), st.sampled_from(["{", "no json", "", '{"role": '])),
    st.tuples(st.sampled_from(["pop", "pop", "clear"]), st.none()),
)


async def answers(session: Session, damage: Damage, steps: list[tuple[str, Any]]) -> list[object]:
    found: list[object] = []
    for call, argument in [*steps, ("get", None)]:
        if call == "damage":
            damage(argument)
        elif call == "add":
            await session.add_items(argument)
        elif call == "get":
            found.append(await session.get_items(argument))
        else:
            found.append(await (session.pop_item() if call == "pop" else session.clear_session()))
    return found


@settings(max_examples=50)
@given(st.lists(STEPS, max_size=12))
def test_any_calls_are_answered_as_the_sdks_own_session_does(steps: list[tuple[str, Any]]) -> None:
    with AgentMemory.open("memory://") as memory, tempfile.TemporaryDirectory() as directory:
        database = Path(directory) / "sessions.db"
        with closing(SQLiteSession(ID, database)) as reference:
            expected = asyncio.run(answers(reference, lambda row: damaged(database, row), steps))
        session = AgentMemorySession(memory, ID)
        assert asyncio.run(answers(session, lambda row: memory.append(FILE, f"{row}\n"), steps)) == expected


@pytest.mark.parametrize("wrong", [None, "./memories", object()])
def test_it_takes_only_a_memory_and_a_text(wrong: Any) -> None:
    with pytest.raises(TypeError):
        AgentMemorySession(wrong, ID)
    with AgentMemory.open("memory://") as memory, pytest.raises(TypeError, match="session_id"):
        AgentMemorySession(memory, 7)  # type: ignore[arg-type]  # a mistake of a caller


@pytest.mark.asyncio
async def test_a_sync_and_an_async_memory_give_the_same_session(memory: AgentMemory) -> None:
    await AgentMemorySession(memory, ID).add_items([item("1")])
    session = AgentMemorySession(memory.as_async(), ID)
    await session.add_items([item("2")])
    assert texts(await session.get_items()) == ["1", "2"]
    assert memory.read(FILE) == '{"role":"user","content":"1"}\n{"role":"user","content":"2"}\n'


@pytest.mark.asyncio
async def test_every_hostile_id_is_a_session_of_its_own(memory: AgentMemory) -> None:
    for number, session_id in enumerate(HOSTILE):
        await AgentMemorySession(memory, session_id).add_items([item(str(number))])
    for number, session_id in enumerate(HOSTILE):
        assert texts(await AgentMemorySession(memory, session_id).get_items()) == [str(number)]
    names = [entry.path for entry in memory.list(recursive=False)]
    assert len(names) == len(HOSTILE)
    assert all(name.endswith(".jsonl") for name in names)


def test_hostile_ids_stay_inside_the_root_on_disk(tmp_path: Path) -> None:
    with AgentMemory.open(tmp_path / "root") as memory:
        for session_id in HOSTILE:
            asyncio.run(AgentMemorySession(memory, session_id).add_items([item("x")]))
    assert [path.name for path in tmp_path.iterdir()] == ["root"]
    assert {path.name for path in (tmp_path / "root").iterdir() if path.is_dir()} <= {".agent-memory"}


@settings(max_examples=50)
@given(IDS, IDS)
def test_two_ids_never_share_a_file(one: str, two: str) -> None:
    async def added() -> list[TResponseInputItem]:
        with AgentMemory.open("memory://") as memory:
            await AgentMemorySession(memory, one).add_items([item("1")])
            return await AgentMemorySession(memory, two).get_items()

    assert bool(asyncio.run(added())) == (one == two)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ("text", TypeError),
        (["role", "user"], TypeError),
        (None, TypeError),
        ({"content": float("nan")}, InvalidContentError),
        ({"content": b"bytes"}, InvalidContentError),
        ({"content": "\ud800"}, InvalidContentError),
    ],
    ids=str,
)
@pytest.mark.asyncio
async def test_a_wrong_item_is_refused_before_anything_is_written(wrong: Any, error: type[Exception]) -> None:
    with AgentMemory.open("memory://") as memory:
        session = AgentMemorySession(memory, ID)
        for items in ([wrong], [item("1"), wrong]):
            with pytest.raises(error):
                await session.add_items(items)
        with pytest.raises(TypeError):
            await session.add_items({"role": "user"})  # type: ignore[arg-type]  # one item is no list of items
        assert memory.list() == ()


@pytest.mark.asyncio
async def test_an_item_too_long_to_be_found_again_is_refused() -> None:
    with AgentMemory.open("memory://") as memory:
        session = AgentMemorySession(memory, ID)
        for text in ("x" * (16 * 1024 * 1024), "é" * (8 * 1024 * 1024)):
            with pytest.raises(InvalidContentError):
                await session.add_items([item("before"), item(text)])
        assert memory.list() == ()
        longest = item("x" * (16 * 1024 * 1024 - 100))
        await session.add_items([longest])
        assert await session.get_items() == await session.get_items(1) == [longest]
        assert await session.pop_item() == longest


@pytest.mark.asyncio
async def test_damaged_lines_stay_in_the_file_and_are_counted_in_one_warning(
    memory: AgentMemory, caplog: pytest.LogCaptureFixture
) -> None:
    session = AgentMemorySession(memory, ID)
    await session.add_items([item("1")])
    memory.append(FILE, '["secret"]\n\nsecret, cut off by a cra')
    await session.add_items([item("2")])
    with caplog.at_level(logging.WARNING, "agent_memory"):
        assert texts(await session.get_items()) == ["1", "2"]
    assert [record.getMessage() for record in caplog.records] == [f"{FILE}: 2 lines hold no item of a session"]
    assert await session.pop_item() == item("2")
    assert await session.pop_item() == item("1")
    assert await session.pop_item() is None
    assert memory.read(FILE) == '["secret"]\n\nsecret, cut off by a cra\n'


@pytest.mark.asyncio
async def test_a_removal_leaves_the_other_bytes_as_they_are(memory: AgentMemory) -> None:
    memory.write(FILE, b'{"a":1}\r\n \n{"b": "\xff"}\n{ "c" : 3 }')
    session = AgentMemorySession(memory, ID)
    assert dict(await session.pop_item() or {}) == {"c": 3}
    assert memory.read_bytes(FILE) == b'{"a":1}\r\n \n{"b": "\xff"}\n'
    assert dict(await session.pop_item() or {}) == {"a": 1}
    assert memory.read_bytes(FILE) == b' \n{"b": "\xff"}\n'


@pytest.mark.asyncio
async def test_the_file_of_a_session_without_items_stays(memory: AgentMemory) -> None:
    session = AgentMemorySession(memory, ID)
    assert (await session.get_items(), await session.pop_item(), memory.list()) == ([], None, ())
    await session.add_items([item("1")])
    await session.pop_item()
    assert memory.read(FILE) == ""
    await session.add_items([item("1")])
    await session.clear_session()
    assert memory.read(FILE) == ""


@needs_hook
@pytest.mark.asyncio
async def test_a_compaction_is_one_step_at_any_moment() -> None:
    recorder = RecordingPlugin()
    with AgentMemory.open("memory://", plugins=[recorder]) as memory:
        session = AgentMemorySession(memory, ID)
        await session.add_items([item("old")])
        memory.append(FILE, "damaged\n")
        await runs(1, Compactions().over(session))
        changes = [(kind, path) for kind, path in seen_by(recorder) if kind not in ("read", "scan", "stat")]
        assert changes[-1] == ("edit", FILE), "automatic: the items that the model saw become a summary"
        assert memory.read(FILE).splitlines() == ["damaged", json.dumps(SUMMARY, separators=(",", ":"))]
        await Compactions().over(session).run_compaction({"force": True, "compaction_mode": "input"})
        assert seen_by(recorder)[-1] == ("write", FILE), "on request"


@pytest.mark.skipif(HAS_HOOK, reason="this SDK asks a session for a snapshot to compact")
@pytest.mark.asyncio
async def test_a_compaction_without_the_hook_clears_the_session_then_adds_the_summary() -> None:
    recorder = RecordingPlugin()
    with AgentMemory.open("memory://", plugins=[recorder]) as memory:
        session = AgentMemorySession(memory, ID)
        await runs(1, Compactions(lambda: session.add_items([item("lost")])).over(session))
        changes = [kind for kind, _ in seen_by(recorder) if kind in ("edit", "write", "append")]
        assert changes[-2:] == ["write", "append"], "cleared, then added"
        assert await session.get_items() == [SUMMARY]


@pytest.mark.asyncio
async def test_a_missing_private_class_of_the_sdk_refuses_the_snapshot_only(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(agents.memory.session, "_CompactionSnapshot", raising=False)
    session = AgentMemorySession(memory, ID)
    await session.add_items([item("seen")])
    assert await session._get_compaction_snapshot(5) is None
    await runs(1, Compactions().over(session))
    assert await session.get_items() == [SUMMARY]


@needs_hook
@pytest.mark.asyncio
async def test_an_encrypted_session_prunes_expired_items_and_keeps_the_others(memory: AgentMemory) -> None:
    session = AgentMemorySession(memory, ID)
    await session.add_items([item(text) for text in ("expired", "expired", "kept", "expired", "seen")])
    snapshot = await session._get_compaction_snapshot(1, prune_prefix=lambda each: each == item("expired"))
    assert (snapshot.items, snapshot.complete) == ([item("seen")], False)
    assert not await snapshot.replace_suffix(1, [])
    assert await snapshot.replace_suffix(0, [SUMMARY])
    assert await session.get_items() == [item("kept"), item("expired"), SUMMARY]
    assert not await snapshot.replace_suffix(0, [SUMMARY]), "the end of the history has changed"


@pytest.mark.asyncio
async def test_a_subclass_or_a_large_history_is_not_compacted_in_part(memory: AgentMemory) -> None:
    class Encrypting(AgentMemorySession):
        pass

    assert await Encrypting(memory, ID)._get_compaction_snapshot(5) is None
    backend = MemoryBackend()
    backend.max_bytes = 100
    with AgentMemory.open(backend) as small:
        session = AgentMemorySession(small, ID)
        for number in range(4):
            await session.add_items([item("x" * 40 + str(number))])
        assert await session._get_compaction_snapshot(5) is None


@pytest.mark.asyncio
async def test_a_read_only_memory_refuses_every_change_and_nothing_changes(memory: AgentMemory) -> None:
    await AgentMemorySession(memory, ID).add_items([item("1")])
    session = AgentMemorySession(memory.read_only(), ID)
    for call in (session.add_items([item("2")]), session.pop_item(), session.clear_session()):
        with pytest.raises(OperationDenied):
            await call
    assert texts(await session.get_items()) == ["1"]


@pytest.mark.asyncio
async def test_the_hooks_see_each_call_as_one_operation_on_the_file() -> None:
    plugin = RecordingPlugin()
    with AgentMemory.open("memory://", plugins=[plugin]) as memory:
        session = AgentMemorySession(memory.subtree("sessions"), ID)
        await session.add_items([item("1"), item("2")])
        await session.get_items()
        await session.get_items(1)
        await session.pop_item()
        await session.clear_session()
    assert {(operation.path, outcome.status) for operation, outcome in plugin.after} == {(f"sessions/{FILE}", "ok")}
    assert [operation.kind for operation, _ in plugin.after] == ["append", "read", "read", "edit", "write"]


@pytest.mark.asyncio
async def test_a_reader_of_a_long_history_is_not_refused_while_items_are_removed(memory: AgentMemory) -> None:
    session = AgentMemorySession(memory, ID)
    history = [item(f"{number} {'x' * 1000}") for number in range(2_500)]  # read in several ranges
    await session.add_items(history)

    async def remove() -> None:
        for _ in range(10):
            await session.pop_item()

    removing = asyncio.ensure_future(remove())
    while not removing.done():
        found = await session.get_items()
        assert found == history[: len(found)]
        last = await session.get_items(200)
        assert last in [history[end - 200 : end] for end in range(2_490, 2_501)]
    await removing
    assert len(await session.get_items()) == 2_490


@pytest.mark.asyncio
async def test_a_cancelled_addition_is_stored_whole_or_not_at_all(memory: AgentMemory) -> None:
    session = AgentMemorySession(memory, ID)
    for number in range(12):
        adding = asyncio.ensure_future(session.add_items([item(f"{number} {part}") for part in range(3)]))
        for _ in range(number):
            await asyncio.sleep(0)
        adding.cancel()
        with suppress(asyncio.CancelledError):
            await adding
    parts: defaultdict[str, list[str]] = defaultdict(list)
    for text in texts(await session.get_items()):
        number_text, part = text.split()
        parts[number_text].append(part)
    assert all(found == ["0", "1", "2"] for found in parts.values())


@pytest.mark.asyncio
async def test_a_history_larger_than_one_read_can_still_be_read_and_cleared() -> None:
    backend = MemoryBackend()
    with AgentMemory.open(backend) as memory:
        session = AgentMemorySession(memory, ID)
        for number in range(4):
            await session.add_items([item(f"{number} {'x' * 1_000_000}")])
        backend.max_bytes = 3_000_000
        assert [text[0] for text in texts(await session.get_items())] == ["0", "1", "2", "3"]
        assert [text[0] for text in texts(await session.get_items(2))] == ["2", "3"]
        with pytest.raises(FileTooLargeError):
            await session.pop_item()
        assert len(await session.get_items()) == 4
        await session.clear_session()
        assert await session.get_items() == []


def add(memory: AgentMemory, process: int, number: int) -> None:
    asyncio.run(AgentMemorySession(memory, ID).add_items([item(f"{process} {number} {part}") for part in range(2)]))


@rounds(5, 1)
def test_a_race_of_processes_loses_no_item(shared_place: Root) -> None:
    race(shared_place, add)
    with AgentMemory.open(shared_place.url, storage_options=shared_place.options) as memory:
        kept = texts(asyncio.run(AgentMemorySession(memory, ID).get_items()))
    expected = {f"{process} {number}" for process in range(PROCESSES) for number in range(ADDITIONS)}
    assert {text[:-2] for text in kept[::2]} == expected
    assert kept[1::2] == [f"{text[:-1]}1" for text in kept[::2]], "the two items of an addition are neighbours"
    assert len(kept) == 2 * len(expected)


def pop_some(memory: AgentMemory) -> list[str]:
    session = AgentMemorySession(memory, ID)

    async def popped() -> list[str]:
        return texts([each for _ in range(8) if (each := await session.pop_item()) is not None])

    return asyncio.run(popped())


@rounds(5, 1)
def test_a_race_of_removals_gives_each_item_to_one_process_at_once(shared_place: Root) -> None:
    with AgentMemory.open(shared_place.url, storage_options=shared_place.options) as memory:
        session = AgentMemorySession(memory, ID)
        asyncio.run(session.add_items([item(str(number)) for number in range(20)]))
        popped = at_once(shared_place, pop_some, processes=3)
        assert sorted(int(text) for texts_of_one in popped for text in texts_of_one) == list(range(20))
        assert asyncio.run(session.get_items()) == []


@pytest.mark.parametrize("module", ["None", "types.ModuleType('agents')"], ids=["no import", "other version"])
def test_the_error_names_the_extra_if_the_sdk_does_not_fit(module: str) -> None:
    code = (
        f"import sys, types; sys.modules['agents'] = {module}\n"
        "try:\n    import agent_memory.integrations.openai_agents\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("openai-agents ")
    assert "does not fit this adapter" in done.stdout
    assert "pip install 'agent-memory-files[openai-agents]'" in done.stdout


def run_example(root: str, **environment: str) -> list[str]:
    return example_output(EXAMPLE, root, environment, silent=True).splitlines()


def test_the_example_remembers_on_disk(tmp_path: Path) -> None:
    lines = run_example(str(tmp_path / "memories"))
    assert lines[1] == "agent: I know nothing of you yet."
    assert lines[3] == "agent: You told me: I am Ann, and I like tea."
    assert lines[-1] == "kept: 4 items in sessions/chat-1.jsonl"
    history = (tmp_path / "memories" / "agent_memory" / "ann" / "sessions" / FILE).read_text()
    assert said(json.loads(history.splitlines()[0])) == "I am Ann, and I like tea."
    assert run_example(str(tmp_path / "memories"))[-1] == "kept: 8 items in sessions/chat-1.jsonl"


@pytest.mark.long
def test_the_example_remembers_on_s3(ministack: S3Server) -> None:
    lines = run_example(ministack.new_url(), **ministack.environment)
    assert lines[-1] == "kept: 4 items in sessions/chat-1.jsonl"


class NoteTakingModel(Model):
    """A model that keeps notes by tools."""

    def __init__(self) -> None:
        self._taker = NoteTaker()

    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        given = options.get("input") or args[1]
        outputs = [item for item in given if isinstance(item, dict) and item.get("type") == "function_call_output"]
        call = self._taker.next([str(item["output"]) for item in outputs])
        if call is None:
            return ModelResponse([assistant_message("done")], Usage(), None)
        arguments, id_ = json.dumps(call[1]), f"call-{len(outputs)}"
        made = ResponseFunctionToolCall(type="function_call", call_id=id_, name=call[0], arguments=arguments)
        return ModelResponse([made], Usage(), None)

    def stream_response(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError


def test_an_agent_keeps_notes_with_the_tools(place: Root) -> None:
    plugin = RecordingPlugin()
    with AgentMemory.open(place.url, storage_options=place.options, actor="ann", plugins=[plugin]) as memory:
        agent = Agent("assistant", model=NoteTakingModel(), tools=memory_tools(memory))
        assert asyncio.run(Runner.run(agent, "go", max_turns=20)).final_output == "done"
        check(memory, plugin, [f"call-{number}" for number in range(8)])
