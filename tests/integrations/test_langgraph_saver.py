"""LangGraph's contract of a checkpointer: the framework's published suite, and graphs that are killed and continued."""

from __future__ import annotations

import asyncio
import json
import operator
import pickle
import random
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph.checkpoint.base")
pytest.importorskip("langgraph.checkpoint.conformance")
pytest.importorskip("langgraph.graph")

from hypothesis import given, settings
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver as Base
from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.conformance.initializer import RegisteredCheckpointer
from langgraph.checkpoint.conformance.validate import validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import INTERRUPT
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from agent_memory import AgentMemory, InvalidContentError, ReadError
from agent_memory.integrations.langgraph_saver import AgentMemorySaver
from agent_memory.testing import RecordingPlugin
from agent_memory_memory import MemoryBackend
from tests.integrations.kit import ADDITIONS, HOSTILE, IDS, PROCESSES, example_output, race, rounds, seen_by
from tests.support.servers import Root, S3Server

LARGE = "x" * 70_000
"""A value that has a file of its own."""
PROGRAM = Path(__file__).with_name("langgraph_turns.py")
EXAMPLE = Path(__file__).parents[2] / "examples" / "integrations" / "langgraph_threads.py"


def config(thread: str = "t", namespace: str = "", **more: Any) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, **more}}


class Blocking(AgentMemorySaver):
    """The saver by its sync methods, for a suite that calls the async ones."""

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self.get_tuple(config)

    async def alist(self, config: RunnableConfig | None, **options: Any) -> AsyncIterator[CheckpointTuple]:
        for found in self.list(config, **options):
            yield found

    async def aput(self, *args: Any) -> RunnableConfig:
        return self.put(*args)

    async def aput_writes(self, *args: Any, **options: Any) -> None:
        self.put_writes(*args, **options)

    async def adelete_thread(self, thread_id: str) -> None:
        self.delete_thread(thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        self.delete_for_runs(run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self.copy_thread(source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], **options: Any) -> None:
        self.prune(thread_ids, **options)


@pytest.mark.parametrize("kind", [AgentMemorySaver, Blocking])
def test_the_frameworks_published_suite(memory: AgentMemory, kind: type[AgentMemorySaver]) -> None:
    numbers = iter(range(100))

    async def made() -> AsyncIterator[AgentMemorySaver]:
        yield kind(memory.subtree(f"{next(numbers)}"))

    report = asyncio.run(validate(RegisteredCheckpointer("AgentMemorySaver", made)))  # type: ignore[arg-type]
    assert len(report.results) == 8
    assert {name: result.failures for name, result in report.results.items() if not result.passed} == {}
    assert sum(result.tests_passed for result in report.results.values()) >= 81


# Graphs


class State(TypedDict):
    messages: Annotated[list[str], operator.add]
    fixed: str


def graph(saver: Any, *nodes: Callable[[State], Any]) -> Any:
    """A graph whose nodes run one after the other."""
    builder: Any = StateGraph(State)
    for node in nodes:
        builder.add_node(node.__name__, node)
    names = [START, *(node.__name__ for node in nodes), END]
    for one, two in pairwise(names):
        builder.add_edge(one, two)
    return builder.compile(checkpointer=saver)


def answers(state: State) -> dict[str, list[str]]:
    return {"messages": [f"answer {len(state['messages'])}"]}


def asks(_: State) -> dict[str, list[str]]:
    return {"messages": [f"said {interrupt('which?')}"]}


def said(text: str) -> dict[str, list[str]]:
    return {"messages": [text]}


def test_a_thread_goes_on_in_another_process(memory: AgentMemory) -> None:
    for number in range(3):
        graph(AgentMemorySaver(memory), answers).invoke(said(f"question {number}"), config())
    found = graph(AgentMemorySaver(memory), answers).get_state(config())
    assert found.values["messages"] == [
        "question 0", "answer 1", "question 1", "answer 3", "question 2", "answer 5",
    ]  # fmt: skip


def test_a_graph_is_the_same_with_the_frameworks_own_saver(memory: AgentMemory) -> None:
    told = []
    for saver in (AgentMemorySaver(memory), InMemorySaver()):
        app = graph(saver, answers, asks, answers_again)
        app.invoke(said("one"), config())
        app.invoke(Command(resume="this"), config())
        past = [each for each in app.get_state_history(config()) if each.next == ("asks",)][-1]
        app.update_state(past.config, said("changed"), as_node="answers")
        app.invoke(None, config())
        history = [*app.get_state_history(config()), *app.get_state_history(config(), limit=2)]
        told.append([(each.values, each.next, each.metadata["step"], each.metadata["source"]) for each in history])
    assert told[0] == told[1]


def test_an_interrupt_is_resumed_from_another_process(memory: AgentMemory) -> None:
    first = graph(AgentMemorySaver(memory), asks).invoke(said("hello"), config())
    assert [each.value for each in first["__interrupt__"]] == ["which?"]
    second = graph(AgentMemorySaver(memory), asks).invoke(Command(resume="tea"), config())
    assert second["messages"] == ["hello", "said tea"]


def test_a_turn_writes_a_bounded_number_of_files() -> None:
    recorder = RecordingPlugin()
    with AgentMemory.open("memory://", plugins=[recorder]) as memory:
        app = graph(AgentMemorySaver(memory), answers, answers_again)
        app.invoke({"messages": ["hello"], "fixed": LARGE}, config())
        recorder.after.clear()
        app.invoke(said("again"), config())
        kinds = [kind for kind, _ in seen_by(recorder)]
    assert (kinds.count("write"), kinds.count("append"), kinds.count("create")) == (4, 3, 0)


def answers_again(state: State) -> dict[str, list[str]]:
    return answers(state)


def test_a_large_value_is_stored_once_for_each_version(memory: AgentMemory) -> None:
    app = graph(AgentMemorySaver(memory), answers, answers_again)
    for number in range(3):
        app.invoke({"messages": ["hello"], "fixed": LARGE + str(number // 2)}, config())
    large = [entry for entry in memory.list() if entry.size > 65_536]
    assert all(re.fullmatch(r"t/=/[0-9a-f]{32}\.value", entry.path) for entry in large)
    values = [each.values for each in graph(AgentMemorySaver(memory), answers).get_state_history(config())]
    assert values[0]["fixed"] == LARGE + "1"
    stored = {each.values.get("fixed") for each in app.get_state_history(config())}
    assert stored == {None, LARGE + "0", LARGE + "1"}


def test_a_large_write_of_a_task_is_read_again(memory: AgentMemory) -> None:
    saver = AgentMemorySaver(memory)
    at = saver.put(config(), empty_checkpoint(), {}, {})
    saver.put_writes(at, [("a", LARGE), ("b", "small")], "task")
    saver.put_writes(at, [("a", "another time")], "task")
    found = AgentMemorySaver(memory).get_tuple(at)
    assert found
    assert found.pending_writes == [("task", "a", LARGE), ("task", "b", "small")]


def test_a_value_that_changes_in_place_is_stored_when_it_becomes_large(memory: AgentMemory) -> None:
    saver, checkpoint = AgentMemorySaver(memory), empty_checkpoint()
    checkpoint["channel_values"], checkpoint["channel_versions"] = {"a": ["x"]}, {"a": "1"}
    first = saver.put(config(), checkpoint, {}, {"a": "1"})
    checkpoint["channel_values"]["a"].append(LARGE)
    second = {**checkpoint, "id": checkpoint["id"][:-1] + "z"}
    saver.put(first, second, {}, {})  # type: ignore[arg-type]
    one, two = (AgentMemorySaver(memory).get_tuple(config(checkpoint_id=each["id"])) for each in (checkpoint, second))
    assert one
    assert two
    assert (one.checkpoint["channel_values"], two.checkpoint["channel_values"]) == ({"a": ["x"]}, {"a": ["x", LARGE]})


# Writes, ids, damage


def test_writes_are_in_the_order_of_the_run_and_the_first_of_each_counts(memory: AgentMemory) -> None:
    saver = AgentMemorySaver(memory)
    at = saver.put(config(), empty_checkpoint(), {}, {})
    saver.put_writes(at, [("a", 1), ("b", 2)], "late", "path 2")
    saver.put_writes(at, [("a", 3)], "early", "path 1")
    saver.put_writes(at, [("a", 4), ("b", 5), ("c", 6)], "late", "path 2")
    for number in range(2):
        saver.put_writes(at, [(INTERRUPT, number)], "late", "path 2")
    memory.append("t/=/" + at["configurable"]["checkpoint_id"] + ".jsonl", '{"torn\n[]\n{"task":1}\n')
    found = AgentMemorySaver(memory).get_tuple(config())
    assert found
    assert found.pending_writes == [
        ("early", "a", 3),
        ("late", INTERRUPT, 1),
        ("late", "a", 1),
        ("late", "b", 2),
        ("late", "c", 6),
    ]


@settings(max_examples=30)
@given(thread=IDS, namespace=IDS, identity=IDS.filter(bool))
def test_any_text_is_an_id(thread: str, namespace: str, identity: str) -> None:
    with AgentMemory.open("memory://") as memory:
        check_id(memory, thread, namespace, identity)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_is_an_id(memory: AgentMemory, text: str) -> None:
    check_id(memory, text, text, text or "=")


def check_id(memory: AgentMemory, thread: str, namespace: str, identity: str) -> None:
    saver = AgentMemorySaver(memory)
    at = saver.put(config(thread, namespace), {**empty_checkpoint(), "id": identity}, {"step": 1}, {})
    saver.put_writes(at, [("a", 1)], identity)
    for each in (None, config(thread, namespace), at):
        (found,) = saver.list(each)
        assert found.config["configurable"] == {
            "thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": identity,
        }  # fmt: skip
        assert found.pending_writes == [(identity, "a", 1)]
    assert saver.get_tuple(config(thread, namespace)) is not None
    saver.delete_thread(thread)
    assert list(saver.list(None)) == []


def test_writes_of_many_tasks_may_be_larger_than_a_file_that_is_read_at_once() -> None:
    backend = MemoryBackend()
    backend.max_bytes = 2_000_000
    with AgentMemory.open(backend) as memory:
        saver = AgentMemorySaver(memory)
        at = saver.put(config(), empty_checkpoint(), {}, {})
        for number in range(50):
            saver.put_writes(at, [("a", "x" * 60_000)], f"task {number:02}")
        saver.put_writes(at, [(f"c{number}", "x" * 60_000) for number in range(50)], "z")
        wide = empty_checkpoint()
        wide["channel_values"] = {f"c{number}": "x" * 60_000 for number in range(50)}
        wide["channel_versions"] = dict.fromkeys(wide["channel_values"], "1")
        found, (listed,) = saver.get_tuple(at), list(saver.list(at))
        assert found
        assert len(found.pending_writes or ()) == len(listed.pending_writes or ()) == 100
        saver.put(config("wide"), wide, {}, wide["channel_versions"])
        read = saver.get_tuple(config("wide"))
        assert read
        assert read.checkpoint["channel_values"] == wide["channel_values"]


def test_a_large_value_is_stored_again_if_others_deleted_it(memory: AgentMemory) -> None:
    saver, checkpoint = AgentMemorySaver(memory), empty_checkpoint()
    checkpoint["channel_values"], checkpoint["channel_versions"] = {"a": LARGE}, {"a": "1"}
    first = saver.put(config(), checkpoint, {}, {"a": "1"})
    assert saver.get_tuple(first)
    AgentMemorySaver(memory).delete_thread("t")
    saver.put(first, {**checkpoint, "id": checkpoint["id"][:-1] + "z"}, {}, {})
    found = saver.get_tuple(config())
    assert found
    assert found.checkpoint["channel_values"] == {"a": LARGE}


def test_branches_keep_their_values_whatever_seed_a_program_sets(memory: AgentMemory) -> None:
    def large(state: State) -> dict[str, str]:
        return {"fixed": LARGE + state["messages"][-1]}

    saver = AgentMemorySaver(memory)
    app = graph(saver, large)
    app.invoke(said("first"), config())
    start = app.get_state(config()).config
    ends = []
    for text in ("one", "two"):
        random.seed(42)
        app.invoke(said(text), start)
        ends.append(app.get_state(config()).config)
    assert [app.get_state(end).values["fixed"] for end in ends] == [LARGE + "one", LARGE + "two"]


@pytest.mark.parametrize(("kind", "data"), [("bytes", "!!!"), ("bytes", "A"), ("x", "")])
def test_a_damaged_value_is_an_error_and_stops_no_listing(
    memory: AgentMemory, caplog: pytest.LogCaptureFixture, kind: str, data: str
) -> None:
    saver = AgentMemorySaver(memory)
    ats = [saver.put(config(), {**empty_checkpoint(), "id": f"{number}"}, {}, {}) for number in range(3)]
    record = json.loads(memory.read("t/=/1.json"))
    for changed in ({"values": {"a": {"type": kind, "data": data}}}, {"checkpoint": {"type": "null", "data": ""}}):
        memory.write("t/=/1.json", json.dumps({**record, **changed}))
        with pytest.raises(ReadError):
            saver.get_tuple(ats[1])
        assert [each.config for each in saver.list(config())] == [ats[2], ats[0]]
        assert "t/=/1.json is skipped" in caplog.text


def test_a_hostile_record_deletes_no_other_checkpoint(memory: AgentMemory) -> None:
    saver = AgentMemorySaver(memory)
    for number in range(3):
        saver.put(config(), {**empty_checkpoint(), "id": f"{number}"}, {}, {})
    record = json.loads(memory.read("t/=/1.json"))
    for file in ("2.json", "../../secret"):
        hostile = {**record, "values": {"a": {"type": "null", "data": "", "file": file}}}
        memory.write("t/=/1.json", json.dumps(hostile))
        with pytest.raises(ReadError):
            saver.get_tuple(config(checkpoint_id="1"))
    saver.prune(["t"])
    assert memory.exists("t/=/2.json")


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"checkpoint":{},"values":{},"metadata":{},"parent":null}'])
def test_a_damaged_checkpoint_is_an_error_and_a_listing_skips_it(
    memory: AgentMemory, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    saver = AgentMemorySaver(memory)
    at = saver.put(config(), empty_checkpoint(), {}, {})
    memory.write("t/=/z.json", content)
    with pytest.raises(ReadError, match="holds no checkpoint"):
        saver.get_tuple(config())
    assert [each.config for each in saver.list(None)] == [at]
    assert "holds no checkpoint" in caplog.text
    saver.prune(["t"])
    assert memory.exists("t/=/z.json"), "what cannot be read stays"


def test_a_missing_value_is_an_error(memory: AgentMemory) -> None:
    saver, checkpoint = AgentMemorySaver(memory), empty_checkpoint()
    checkpoint["channel_values"], checkpoint["channel_versions"] = {"a": LARGE}, {"a": "1"}
    saver.put(config(), checkpoint, {}, {"a": "1"})
    (path,) = (entry.path for entry in memory.list() if entry.path.endswith(".value"))
    memory.delete(path)
    with pytest.raises(ReadError, match="the file of a value is missing"):
        saver.get_tuple(config())


def test_files_outside_a_thread_are_no_values(memory: AgentMemory) -> None:
    saver = AgentMemorySaver(memory)
    at = saver.put(config(), empty_checkpoint(), {}, {})
    path = f"t/=/{at['configurable']['checkpoint_id']}.json"
    memory.write("secret", pickle.dumps("secret"))
    record = json.loads(memory.read(path))
    for value in ({"type": "bytes", "file": "../../secret"}, {"type": "bytes", "file": "/etc/passwd"}):
        memory.write(path, json.dumps({**record, "values": {"a": value}}))
        with pytest.raises(ReadError, match="holds no checkpoint"):
            saver.get_tuple(at)
    memory.write(path, json.dumps({**record, "values": {"a": {"type": "pickle", "data": "gASVCgAAAAAAAAA="}}}))
    with pytest.raises(ReadError, match="NotImplementedError"):
        saver.get_tuple(at)


def test_metadata_that_is_not_json_is_refused_and_nothing_is_stored(memory: AgentMemory) -> None:
    with pytest.raises(InvalidContentError, match="cannot be stored as JSON"):
        AgentMemorySaver(memory).put(config(), empty_checkpoint(), {"score": float("nan")}, {})  # type: ignore[typeddict-unknown-key]
    assert memory.list() == ()


# Deleting, copying


def test_a_prune_keeps_what_the_newest_checkpoint_needs(memory: AgentMemory) -> None:
    saver = AgentMemorySaver(memory)
    app = graph(saver, answers, answers_again)
    app.invoke({"messages": [LARGE], "fixed": LARGE}, config())
    app.invoke(said("more"), config())
    before = app.get_state(config())
    saver.prune(["t", "none"])
    assert [each.values for each in saver_states(app)] == [before.values]
    files = [entry.path for entry in memory.list()]
    assert [path.endswith(".json") for path in files].count(True) == 1
    assert [path.endswith(".value") for path in files].count(True) == 2
    with pytest.raises(ValueError, match="'keep_latest' or 'delete', not 'all'"):
        saver.prune(["t"], strategy="all")


def saver_states(app: Any) -> list[Any]:
    return list(app.get_state_history(config()))


def test_a_prune_keeps_the_ancestors_of_a_delta_channel(memory: AgentMemory) -> None:
    delta = pytest.importorskip("langgraph.channels.delta", reason="this release has no delta channels")
    channel = delta.DeltaChannel(lambda old, new: [*old, *(each for part in new for each in part)], list)
    saver = AgentMemorySaver(memory)
    Deltas = TypedDict("Deltas", {"log": Annotated[list[str], channel]})  # noqa: UP013 - of this release's channel
    builder = StateGraph(Deltas)
    builder.add_node("add", lambda state: {"log": [f"{len(state['log'])}"]})
    builder.add_edge(START, "add")
    app = builder.compile(checkpointer=saver)
    for number in range(4):
        app.invoke({"log": [f"turn {number}"]}, config())
    before = app.get_state(config()).values
    assert len(before["log"]) == 8
    for method in ("get_delta_channel_history", "aget_delta_channel_history"):
        calls = [partial(getattr(kind, method), saver) for kind in (AgentMemorySaver, Base)]
        found = [call(config=config(), channels=["log", "x"]) for call in calls]
        ours, base = (asyncio.run(each) if method.startswith("a") else each for each in found)
        assert ours == base
    saver.prune(["t"])
    assert app.get_state(config()).values == before


def test_runs_are_deleted_with_what_only_they_need(memory: AgentMemory) -> None:
    saver = AgentMemorySaver(memory)
    app = graph(saver, answers)
    for number in range(3):
        app.invoke({"messages": [f"{number}"], "fixed": LARGE + str(number)}, config())
    app.invoke(said("x"), {**config(), "metadata": {"run_id": "gone"}})
    count = len(list(saver.list(config())))
    for other in ("gon", ["None"], []):
        saver.delete_for_runs(other)
    saver.delete_for_runs(["gone"])
    assert len(list(saver.list(config()))) == count - 3
    assert app.get_state(config()).values["fixed"] == LARGE + "2"


def test_a_copy_of_a_thread_is_independent_and_can_be_repeated(memory: AgentMemory) -> None:
    saver = AgentMemorySaver(memory)
    app = graph(saver, answers, asks)
    app.invoke({"messages": ["one"], "fixed": LARGE}, config("a"))
    for _ in range(2):
        saver.copy_thread("a", "b")
    assert told(saver, "a") == told(saver, "b")
    app.invoke(Command(resume="here"), config("b"))
    assert told(saver, "a") != told(saver, "b")
    size = sum(entry.size for entry in memory.list())
    for target in ("a", "b", "b"):
        saver.copy_thread("a", target)
    assert sum(entry.size for entry in memory.list()) == size
    assert app.get_state(config("b")).values["messages"] == ["one", "answer 1", "said here"]
    saver.delete_thread("a")
    assert app.get_state(config("b")).values["fixed"] == LARGE
    assert app.get_state(config("a")).values == {}


def test_a_copy_keeps_what_the_target_has(memory: AgentMemory) -> None:
    saver = AgentMemorySaver(memory)
    at = saver.put(config("a"), empty_checkpoint(), {}, {})
    saver.put_writes(at, [(INTERRUPT, "old")], "task")
    saver.copy_thread("a", "b")
    target = config("b", checkpoint_id=at["configurable"]["checkpoint_id"])
    saver.put_writes(target, [(INTERRUPT, "new")], "task")
    saver.put_writes(at, [("c", "added")], "task")
    saver.copy_thread("a", "b")
    found = saver.get_tuple(target)
    assert found
    assert found.pending_writes == [("task", INTERRUPT, "new"), ("task", "c", "added")]


def test_a_prune_leaves_no_file_that_nothing_needs(memory: AgentMemory) -> None:
    saver = AgentMemorySaver(memory)
    first = saver.put(config(), {**empty_checkpoint(), "id": "1"}, {}, {})
    for number in range(3):
        saver.put_writes(first, [(INTERRUPT, LARGE + str(number)), ("a", LARGE)], "task")
    saver.put(first, {**empty_checkpoint(), "id": "2"}, {}, {})
    saver.prune(["t"])
    assert [entry.path for entry in memory.list()] == ["t/=/2.json"]


def test_a_listing_reads_no_more_than_its_limit() -> None:
    recorder = RecordingPlugin()
    with AgentMemory.open("memory://", plugins=[recorder]) as memory:
        saver = AgentMemorySaver(memory)
        for number in range(40):
            saver.put(config(), {**empty_checkpoint(), "id": f"{number:02}"}, {"step": number}, {})
        recorder.after.clear()
        assert [each.checkpoint["id"] for each in saver.list(config(checkpoint_id=""), limit=3)] == ["39", "38", "37"]
        assert len(seen_by(recorder)) == 1 + 2 * 3
        assert [each.metadata["step"] for each in saver.list(config(), filter={"step": 5}, limit=1)] == [5]


def told(saver: AgentMemorySaver, thread: str) -> list[object]:
    return [(each.checkpoint, each.metadata, each.pending_writes) for each in saver.list(config(thread))]


# Processes


def put_one(memory: AgentMemory, process: int, number: int) -> None:
    saver = AgentMemorySaver(memory)
    at = config(checkpoint_id="shared")
    saver.put_writes(at, [("a", f"{process} {number}")], f"task {process} {number}")
    saver.put(config(f"thread {number}"), {**empty_checkpoint(), "id": f"{process}"}, {"step": number}, {})


@rounds(5, 1)
def test_what_processes_put_at_once_is_all_there(shared_place: Root) -> None:
    race(shared_place, put_one)
    with AgentMemory.open(shared_place.url, storage_options=shared_place.options) as memory:
        saver = AgentMemorySaver(memory)
        saver.put(config(), {**empty_checkpoint(), "id": "shared"}, {}, {})
        found = saver.get_tuple(config(checkpoint_id="shared"))
        assert found
        assert len(found.pending_writes or ()) == PROCESSES * ADDITIONS
        assert len(list(saver.list(None))) == PROCESSES * ADDITIONS + 1


def turns(place: Root, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), place.url, json.dumps(place.options), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@rounds(10, 1)
def test_a_process_killed_in_a_tool_is_continued_by_another_one(shared_place: Root) -> None:
    done: list[str] = []
    for number in range(4):
        killed = turns(shared_place, f"{number}", "die in the tool")
        assert killed.returncode == -9, killed.stderr
        done += killed.stdout.split()
    continued = turns(shared_place, "last")
    assert continued.returncode == 0, continued.stderr
    done += continued.stdout.split()
    assert done == [f"beside-{number}" for number in (0, 1, 2, 3, "last")], "a task that was done is not run again"
    with AgentMemory.open(shared_place.url, storage_options=shared_place.options) as memory:
        found = AgentMemorySaver(memory).get_tuple(config())
    assert found
    assert sorted(found.checkpoint["channel_values"]["messages"]) == sorted(
        f"{kind} {number}" for number in (0, 1, 2, 3, "last") for kind in ("turn", "tool", "beside")
    )


def run_example(root: str, **environment: str) -> list[str]:
    return [line.strip() for line in example_output(EXAMPLE, root, environment, silent=True).splitlines()]


ASKED = ["I go to Rome.", "I would book the train."]


def test_the_example_goes_on_in_a_second_process_on_disk(tmp_path: Path) -> None:
    root = str(tmp_path / "memories")
    assert run_example(root) == ["asked:", *ASKED]
    assert run_example(root) == ["answered:", *ASKED, "Yes."]
    assert run_example(root) == ["asked:", *ASKED, "Yes.", *ASKED]
    assert list((tmp_path / "memories" / "agent_memory" / "ann" / "threads" / "trip" / "=").glob("*.json"))


@pytest.mark.long
def test_the_example_goes_on_in_a_second_process_on_s3(ministack: S3Server) -> None:
    root = ministack.new_url()
    assert run_example(root, **ministack.environment) == ["asked:", *ASKED]
    assert run_example(root, **ministack.environment) == ["answered:", *ASKED, "Yes."]
