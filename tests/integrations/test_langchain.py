"""LangChain's store of bytes: its published suite, and what it leaves out."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain_core.stores")
pytest.importorskip("langchain_tests.integration_tests")

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.stores import BaseStore, InMemoryByteStore, InvalidKeyException
from langchain_tests.integration_tests import BaseStoreAsyncTests, BaseStoreSyncTests

from agent_memory import AgentMemory, AsyncAgentMemory, InvalidContentError, OperationDenied
from agent_memory.integrations.langchain import AgentMemoryByteStore, memory_tools
from agent_memory.testing import RecordingPlugin
from tests.integrations.kit import ADDITIONS, HOSTILE, IDS, PROCESSES, example_output, race, rounds
from tests.integrations.note_taking import NoteTaker, check
from tests.support.servers import Root, S3Server

try:
    from langchain.agents import create_agent
except Exception:  # noqa: BLE001 - an older langchain-core does not fit LangGraph, whose import then fails in many ways
    create_agent = None  # type: ignore[assignment]

EXAMPLE = Path(__file__).parents[2] / "examples" / "integrations" / "langchain_bytes.py"
VALUES = (b"", b"\x00\xff\r\n", "ünïcode 🧠".encode())


class TestTheSyncSuiteOfLangChain(BaseStoreSyncTests[bytes]):
    @pytest.fixture
    def kv_store(self, memory: AgentMemory) -> AgentMemoryByteStore:
        return AgentMemoryByteStore(memory)

    @pytest.fixture
    def three_values(self) -> tuple[bytes, bytes, bytes]:
        return VALUES


@pytest.mark.asyncio
@pytest.mark.filterwarnings("ignore:The test .* is marked with '@pytest.mark.asyncio' but it is not an async function")
class TestTheAsyncSuiteOfLangChain(BaseStoreAsyncTests[bytes]):
    @pytest.fixture
    def kv_store(self, memory: AgentMemory) -> AgentMemoryByteStore:
        return AgentMemoryByteStore(memory)

    @pytest.fixture
    def three_values(self) -> tuple[bytes, bytes, bytes]:
        return VALUES


class Calls:
    """The calls of a store, by its sync or by its async methods."""

    def __init__(self, store: BaseStore[str, bytes], kind: str) -> None:
        self.store = store
        self._is_async = kind == "async"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.store, f"a{name}" if self._is_async else name)
        return (lambda *args: asyncio.run(method(*args))) if self._is_async else method

    def keys(self, prefix: str | None = None) -> list[str]:
        async def collected() -> list[str]:
            return [key async for key in self.store.ayield_keys(prefix=prefix)]

        return asyncio.run(collected()) if self._is_async else list(self.store.yield_keys(prefix=prefix))


@pytest.fixture(params=["sync", "async"])
def store(request: pytest.FixtureRequest, memory: AgentMemory) -> Calls:
    return Calls(AgentMemoryByteStore(memory), request.param)


@pytest.fixture
def opened() -> Iterator[AgentMemory]:
    with AgentMemory.open("memory://") as memory:
        yield memory


def test_a_value_is_a_plain_file_under_its_key(store: Calls, memory: AgentMemory) -> None:
    store.mset([("letters-7f.bin", b"\x00\xff"), ("a/b:c", b"x")])
    assert [str(entry) for entry in memory.list()] == ["a=2Fb=3Ac", "letters-7f.bin"]
    assert memory.read_bytes("letters-7f.bin") == b"\x00\xff"
    memory.write("by hand.txt", b"hand")
    assert store.mget(["by hand.txt"]) == [b"hand"]


def test_the_last_value_of_a_key_wins(store: Calls) -> None:
    store.mset([("k", b"1"), ("other", b"o"), ("k", b"2")])
    assert store.mget(["k", "gone", "other", "k"]) == [b"2", None, b"o", b"2"]
    store.mdelete(["k", "k", "gone"])
    assert store.keys() == ["other"]


def test_empty_batches_do_nothing(store: Calls, memory: AgentMemory) -> None:
    assert (store.mget([]), store.mset([]), store.mdelete([]), store.keys()) == ([], None, None, [])
    assert memory.list() == ()


def test_another_store_on_the_same_root_has_the_values(place: Root) -> None:
    with AgentMemory.open(place.url, storage_options=place.options) as memory:
        AgentMemoryByteStore(memory).mset([("k", b"1"), ("x" * 500, b"2")])
        with AgentMemory.open(place.url, storage_options=place.options) as other:
            store = AgentMemoryByteStore(other)
            assert sorted(store.yield_keys()) == ["k", "x" * 500]
            assert store.mget(["k", "x" * 500]) == [b"1", b"2"]


def test_hostile_keys_are_stored_and_found_again(store: Calls, memory: AgentMemory) -> None:
    store.mset([(key, key.encode()) for key in HOSTILE])
    assert store.mget(HOSTILE) == [key.encode() for key in HOSTILE]
    assert sorted(store.keys()) == sorted(HOSTILE)
    assert all("/" not in entry.path.removeprefix(".texts/") for entry in memory.list())
    for prefix in ("a", "..", "%2e", "é", "e\u0301", "x" * 400, "", "=", "zzz"):
        assert sorted(store.keys(prefix)) == sorted(key for key in HOSTILE if key.startswith(prefix))
    store.mdelete(HOSTILE)
    assert store.keys() == []
    assert store.mget(HOSTILE) == [None] * len(HOSTILE)


@settings(max_examples=50)
@given(IDS, IDS)
def test_two_different_keys_are_never_one_file(one: str, other: str) -> None:
    with AgentMemory.open("memory://") as memory:
        store = AgentMemoryByteStore(memory)
        store.mset([(one, b"1"), (other, b"2")])
        assert store.mget([one, other]) == [b"1" if one != other else b"2", b"2"]
        assert sorted(store.yield_keys()) == sorted({one, other})
        assert len([entry for entry in memory.list(recursive=False) if not entry.is_directory]) == len({one, other})


KEYS = st.sampled_from(["a", "ab", "é", "", "x" * 300])
CALLS = st.lists(
    st.tuples(st.just("mset"), st.lists(st.tuples(KEYS, st.binary(max_size=2)), max_size=3))
    | st.tuples(st.sampled_from(["mget", "mdelete"]), st.lists(KEYS, max_size=3)),
    max_size=8,
)


@settings(max_examples=50)
@given(CALLS, st.none() | st.sampled_from(["", "a", "x", "é"]))
def test_any_calls_have_the_answers_of_the_frameworks_own_store(
    calls: list[tuple[str, Any]], prefix: str | None
) -> None:
    reference = InMemoryByteStore()
    with AgentMemory.open("memory://") as memory:
        store = AgentMemoryByteStore(memory)
        for name, argument in calls:
            assert getattr(store, name)(argument) == getattr(reference, name)(argument)
        assert sorted(store.yield_keys(prefix=prefix)) == sorted(reference.yield_keys(prefix=prefix))


def test_files_in_directories_and_names_of_other_programs_are_no_keys(store: Calls, memory: AgentMemory) -> None:
    store.mset([("k", b"1")])
    for path in ("below/file", "k=2f", f"=={'0' * 64}", "half ==", "ends.="):
        memory.write(path, "x")
    assert store.keys() == ["k"]
    assert store.mget(["below"]) == [None]


@pytest.mark.parametrize("key", [7, None, b"k"])
def test_a_key_that_is_no_str_is_refused_and_nothing_is_set(store: Calls, memory: AgentMemory, key: Any) -> None:
    for call in (store.mget, store.mdelete):
        with pytest.raises(TypeError, match="a key must be a str"):
            call(["a", key])
    with pytest.raises(TypeError, match="a key must be a str"):
        store.mset([("a", b"1"), (key, b"2")])
    assert memory.list() == ()


def test_a_value_that_is_not_bytes_is_refused(store: Calls, memory: AgentMemory) -> None:
    with pytest.raises(InvalidContentError, match="content must be bytes, not str"):
        store.mset([("k", "text")])
    assert memory.list() == ()


def test_a_key_without_room_in_a_deep_subtree_is_an_invalid_key(opened: AgentMemory) -> None:
    store = AgentMemoryByteStore(opened.subtree("/".join(["d" * 240] * 3)))
    store.mset([("k", b"1")])
    with pytest.raises(InvalidKeyException, match="at most"):
        store.mset([("k" * 240, b"1")])
    for call in (store.mget, store.mdelete):
        with pytest.raises(InvalidKeyException, match="at most"):
            call(["k" * 240])
    assert list(store.yield_keys()) == ["k"]


def set_one(memory: AgentMemory, process: int, number: int) -> None:
    store = AgentMemoryByteStore(memory)
    pairs = [(f"{process}/{number}", b"%d" % number), ("last", b"%d" % number)]
    if number % 2:
        store.mset(pairs)
    else:
        asyncio.run(store.amset(pairs))


@rounds(5, 1)
def test_four_processes_race_and_keep_every_key(shared_place: Root) -> None:
    race(shared_place, set_one)
    keys = [f"{process}/{number}" for process in range(PROCESSES) for number in range(ADDITIONS)]
    with AgentMemory.open(shared_place.url, storage_options=shared_place.options) as memory:
        store = AgentMemoryByteStore(memory)
        assert sorted(store.yield_keys()) == sorted([*keys, "last"])
        assert store.mget(keys) == [key.partition("/")[2].encode() for key in keys]
        assert store.mget(["last"]) == [b"%d" % (ADDITIONS - 1)]


@pytest.mark.asyncio
async def test_forty_tasks_set_and_delete_at_the_same_time(place: Root) -> None:
    async with AsyncAgentMemory.open(place.url, storage_options=place.options) as memory:
        store = AgentMemoryByteStore(memory)
        await asyncio.gather(*(store.amset([(f"{n}", b"x"), ("shared", b"y")]) for n in range(40)))
        await asyncio.gather(*(store.amdelete([f"{n}", "0"]) for n in range(20)))
        keys = {key async for key in store.ayield_keys()}
    assert keys == {*(str(n) for n in range(20, 40)), "shared"}


def test_a_read_only_memory_refuses_sets_and_deletes_and_answers_the_rest(store: Calls, memory: AgentMemory) -> None:
    store.mset([("k", b"1")])
    reading = AgentMemoryByteStore(memory.read_only())
    for key in ("k", "x" * 300):
        with pytest.raises(OperationDenied):
            reading.mset([(key, b"2")])
    with pytest.raises(OperationDenied):
        reading.mdelete(["k"])
    assert (reading.mget(["k"]), list(reading.yield_keys())) == ([b"1"], ["k"])
    assert len(memory.list()) == 1


def test_plugins_see_every_operation() -> None:
    recorder = RecordingPlugin()
    with AgentMemory.open("memory://", plugins=[recorder], actor="cache") as memory:
        store = AgentMemoryByteStore(memory)
        store.mset([("k", b"1")])
        store.mget(["k"])
        list(store.yield_keys())
        store.mdelete(["k"])
    assert [(operation.kind, operation.path, operation.actor) for operation in recorder.before] == [
        ("write", "k", "cache"),
        ("read", "k", "cache"),
        ("list", "", "cache"),
        ("delete", "k", "cache"),
    ]


def test_embeddings_are_computed_once_over_two_sessions(place: Root) -> None:
    embeddings = pytest.importorskip("langchain_classic.embeddings")
    from langchain_core.embeddings import Embeddings

    class Counting(Embeddings):
        asked: list[str] = []  # noqa: RUF012 - of all sessions

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            self.asked.extend(texts)
            return [[float(len(text)), 0.5] for text in texts]

        def embed_query(self, text: str) -> list[float]:
            return self.embed_documents([text])[0]

    for texts in (["tea", "coffee"], ["coffee", "water"]):
        with AgentMemory.open(place.url, storage_options=place.options) as memory:
            store = AgentMemoryByteStore(memory)
            cached = embeddings.CacheBackedEmbeddings.from_bytes_store(
                Counting(), store, namespace="model/1:", query_embedding_cache=True, key_encoder="blake2b"
            )
            assert cached.embed_documents(texts) == [[float(len(text)), 0.5] for text in texts]
            assert asyncio.run(cached.aembed_documents(texts)) == [[float(len(text)), 0.5] for text in texts]
            assert cached.embed_query("tea") == [3.0, 0.5]
            assert all(key.startswith("model/1:") for key in store.yield_keys())
    assert Counting.asked == ["tea", "coffee", "water"]


def test_a_store_is_not_copied_and_takes_only_a_memory(opened: AgentMemory) -> None:
    import copy

    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        copy.deepcopy(AgentMemoryByteStore(opened))
    with pytest.raises(TypeError, match="an adapter takes an AgentMemory or an AsyncAgentMemory, not str"):
        AgentMemoryByteStore("./memories")  # type: ignore[arg-type]  # refused


@pytest.mark.parametrize(
    ("stub", "text"),
    [
        ("None", "langchain-core .* does not fit this adapter"),
        ("types.ModuleType('empty')", r"needs langchain-core[<>=].* \(cannot import name"),
    ],
)
def test_the_error_says_which_version_fits(stub: str, text: str) -> None:
    code = (
        f"import sys, types; sys.modules['langchain_core.stores'] = {stub}\n"
        "try:\n    import agent_memory.integrations.langchain\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.search(text, done.stdout)
    assert "pip install 'agent-memory-files[langchain]'" in done.stdout


def run_example(root: str, **environment: str) -> str:
    return example_output(EXAMPLE, root, environment)


SHOWN = (
    "first session: 3 vectors, 3 by the model, 2 remembered\nsecond session: 3 vectors, 0 by the model, 2 remembered\n"
)


def test_the_example_remembers_in_a_second_session(tmp_path: Path) -> None:
    pytest.importorskip("langchain_classic.embeddings")
    assert run_example(str(tmp_path)) == SHOWN
    assert len(list((tmp_path / "agent_memory" / "ann" / "embeddings").glob("letters-*"))) == 2
    assert run_example(str(tmp_path)).startswith("first session: 3 vectors, 0 by the model, 2 remembered\n")


@pytest.mark.long
def test_the_example_remembers_on_s3(ministack: S3Server) -> None:
    pytest.importorskip("langchain_classic.embeddings")
    assert run_example(ministack.new_url(), **ministack.environment) == SHOWN


@pytest.mark.asyncio
async def test_a_tool_is_called_with_the_id_of_its_call_also_in_a_running_event_loop() -> None:
    plugin = RecordingPlugin()
    with AgentMemory.open("memory://", plugins=[plugin]) as memory:
        tools = {tool.name: tool for tool in memory_tools(memory)}
        call = {"type": "tool_call", "name": "memory_append", "args": {"path": "/memories/a.md", "text": "tea"}}
        for number, made in enumerate(
            (
                tools["memory_append"].invoke({**call, "id": "0"}),
                await tools["memory_append"].ainvoke({**call, "id": "1"}),
            )
        ):
            assert (made.tool_call_id, made.status) == (f"{number}", "success")
        refused = tools["memory_view"].invoke(
            {"type": "tool_call", "name": "memory_view", "args": {"path": "x"}, "id": "2"}
        )
        assert (refused.status, "/memories" in refused.content) == ("error", True)
        assert memory.read("a.md") == "tea\ntea"
    appended = [operation.tool_call_id for operation, _ in plugin.after if operation.kind == "append"]
    assert appended == ["0", "1"]


@pytest.mark.parametrize(
    "arguments", [{}, {"self": 1}, {"config": 1}, {"run_manager": 1, "path": 7}, {"arguments": {}}]
)
@pytest.mark.asyncio
async def test_wrong_arguments_are_told_to_the_model(arguments: dict[str, Any]) -> None:
    memory = AgentMemory.open("memory://")
    for tool in memory_tools(memory, versions=True):
        call = {"type": "tool_call", "name": tool.name, "args": arguments, "id": "1"}
        for made in (tool.invoke(call), await tool.ainvoke(call)):
            assert made.status == "error" or tool.name == "memory_versions"
    assert memory.list() == ()


class NoteTakingModel(BaseChatModel):
    """A model that keeps notes by tools."""

    taker: Any

    def bind_tools(self, *_args: Any, **_options: Any) -> Any:
        return self

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *_args: Any, **_options: Any) -> ChatResult:
        answers = [str(message.content) for message in messages if isinstance(message, ToolMessage)]
        call = self.taker.next(answers)
        message = AIMessage("done")
        if call is not None:
            message = AIMessage("", tool_calls=[{"name": call[0], "args": call[1], "id": f"call-{len(answers)}"}])
        return ChatResult(generations=[ChatGeneration(message=message)])


@pytest.mark.skipif(create_agent is None, reason="LangGraph needs a newer langchain-core than the adapter does")
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_agent_keeps_notes_with_the_tools(place: Root, kind: str) -> None:
    plugin = RecordingPlugin()
    with AgentMemory.open(place.url, storage_options=place.options, actor="ann", plugins=[plugin]) as memory:
        agent = create_agent(NoteTakingModel(taker=NoteTaker()), memory_tools(memory))
        given: Any = {"messages": [("user", "go")]}
        found = agent.invoke(given) if kind == "sync" else asyncio.run(agent.ainvoke(given))
        assert found["messages"][-1].content == "done"
        statuses = [message.status for message in found["messages"] if isinstance(message, ToolMessage)]
        assert statuses == ["error", *["success"] * 5, "error", "error"]
        check(memory, plugin, [f"call-{number}" for number in range(8)])
