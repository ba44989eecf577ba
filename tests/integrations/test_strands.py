"""A storage of Strands Agents over a memory. The contract's cases run on the SDK's own storages too."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

strands = pytest.importorskip("strands")

from strands import Agent  # noqa: E402
from strands.memory import MemoryManager  # noqa: E402
from strands.models import Model  # noqa: E402
from strands.session import SnapshotSessionManager  # noqa: E402
from strands.storage import InMemoryStorage, LocalFileStorage, Storage  # noqa: E402
from strands.storage.search import keyword  # noqa: E402
from strands.types.exceptions import StorageError  # noqa: E402
from strands.types.streaming import StreamEvent  # noqa: E402
from strands.vended_memory_stores.file_memory_store import FileMemoryStore  # noqa: E402

from agent_memory import AgentMemory, OperationDenied  # noqa: E402
from agent_memory.integrations.strands import AgentMemoryStorage, memory_tools  # noqa: E402
from agent_memory.testing import RecordingPlugin  # noqa: E402
from agent_memory_memory import MemoryBackend  # noqa: E402
from tests.integrations.kit import ADDITIONS, HOSTILE, IDS, PROCESSES, at_once, example_output, race, rounds, seen_by  # noqa: E402
from tests.integrations.note_taking import NoteTaker, check  # noqa: E402
from tests.support.servers import Root, S3Server  # noqa: E402

AnyStorage: TypeAlias = Any
"""A storage with the method `namespace`, which is no part of the SDK's protocol."""
EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "integrations" / "strands_agent.py"
needs_stop_words = pytest.mark.skipif(
    not hasattr(keyword, "STOP_WORDS"), reason="the search of this SDK counts each word of a query"
)
KEYS: Final = ["a.md", "a/b.md", "a/bc.md", "a/b/c.md", "ab/c.md", "b.md", "é/fi.md", "with space/x y.md"]
PLAIN_PREFIXES: Final = (
    "a", "a/", "a/b", "a/b/", "a//b", "/a/b.md", "a/b.md/", "b", "with sp", "é/", "x", "a:", "./a", "a/./b", "%2e",
)  # fmt: skip


@pytest.mark.asyncio
class StorageContract:
    """The contract of a storage, as the SDK's own storages for paths keep it."""

    async def test_it_is_a_storage_of_the_sdk(self, storage: AnyStorage) -> None:
        assert isinstance(storage, Storage)

    async def test_bytes_are_returned_as_they_were_written(self, storage: AnyStorage) -> None:
        for number, data in enumerate((b"", b"text", bytes(range(256)), "é\r\n\0".encode() * 10_000)):
            await storage.write(f"file-{number}.bin", data)
            assert await storage.read(f"file-{number}.bin") == data
        await storage.write("file-1.bin", bytearray(b"other"))
        assert await storage.read("file-1.bin") == b"other"

    async def test_a_key_that_does_not_exist_reads_as_none_and_is_deleted_without_an_error(
        self, storage: AnyStorage
    ) -> None:
        await storage.write("a/b.md", b"kept")
        for key in ("gone.md", "a/gone.md", "a/b.md/below-a-file", "A/b.md"):
            assert await storage.read(key) is None
            await storage.delete(key)
        assert await storage.list() == ["a/b.md"]

    async def test_a_deleted_key_is_gone_and_the_others_stay(self, storage: AnyStorage) -> None:
        for key in ("a/b.md", "a/c.md"):
            await storage.write(key, b"x")
        await storage.delete("a/b.md")
        await storage.delete("a/b.md")
        assert await storage.read("a/b.md") is None
        assert await storage.list() == ["a/c.md"]
        await storage.write("a/b.md", b"again")
        assert await storage.read("a/b.md") == b"again"

    @pytest.mark.parametrize("key", ["/a/b.md", "a//b.md", "a/b.md/", "//a///b.md//"])
    async def test_slashes_at_the_ends_and_repeated_slashes_do_not_count(self, storage: AnyStorage, key: str) -> None:
        await storage.write(key, b"x")
        assert await storage.list() == ["a/b.md"]
        assert await storage.read("a/b.md") == await storage.read(key) == b"x"
        await storage.delete(key)
        assert await storage.list() == []

    @pytest.mark.parametrize("key", ["", "/", "///", "..", "../x", "a/../b", "a/..", "a\\b", "\\"])
    async def test_an_impossible_key_is_refused_by_every_call(self, storage: AnyStorage, key: str) -> None:
        await storage.write("kept.md", b"x")
        for call in (storage.write(key, b"y"), storage.read(key), storage.delete(key)):
            with pytest.raises(StorageError):
                await call
        assert await storage.list() == ["kept.md"]

    @pytest.mark.parametrize("prefix", ["..", "../", "a/..", "a/../b", "\\", "a\\b"])
    async def test_an_impossible_prefix_is_refused(self, storage: AnyStorage, prefix: str) -> None:
        with pytest.raises(StorageError):
            await storage.list(prefix)

    async def test_a_prefix_is_a_text_and_the_keys_are_sorted(self, storage: AnyStorage) -> None:
        for key in reversed(KEYS):
            await storage.write(key, b"x")
        assert await storage.list() == await storage.list("") == await storage.list("/") == sorted(KEYS)
        for prefix in PLAIN_PREFIXES:
            normal = prefix.replace("//", "/").removeprefix("/")
            assert await storage.list(prefix) == sorted(key for key in KEYS if key.startswith(normal)), prefix

    async def test_a_search_finds_words_in_keys_and_contents_the_best_first(self, storage: AnyStorage) -> None:
        await storage.write("tea.md", b"Ann likes green tea in the morning")
        await storage.write("walks.md", b"a walk by the river, with tea")
        await storage.write("photo.bin", b"\xff\xfe")
        found = await storage.search("the green tea, please?")
        assert [each.key for each in found] == ["tea.md", "walks.md"]
        assert found[0].data == b"Ann likes green tea in the morning"
        assert [each.key for each in await storage.search("walks")] == ["walks.md"]
        assert await storage.search("") == []

    @needs_stop_words
    async def test_a_search_leaves_out_common_words_and_extensions(self, storage: AnyStorage) -> None:
        await storage.write("tea.md", b"Ann likes green tea in the morning")
        await storage.write("walks.md", b"a walk by the river, with tea")
        found = await storage.search("the green tea, please?")
        assert [(each.key, each.score) for each in found] == [("tea.md", 2), ("walks.md", 1)]
        assert await storage.search("the and of") == await storage.search("md") == []

    async def test_a_namespace_has_its_own_keys(self, storage: AnyStorage) -> None:
        inner = storage.namespace("/team//a/")
        await inner.write("x.md", b"hello")
        await storage.write("y.md", b"hello")
        assert await storage.list() == ["team/a/x.md", "y.md"]
        assert await inner.list() == ["x.md"]
        assert [each.key for each in await inner.search("hello team")] == ["x.md"]
        assert await inner.namespace("b").read("x.md") is None
        assert await storage.namespace("team").namespace("a").read("x.md") == b"hello"
        assert await storage.namespace("").list() == ["team/a/x.md", "y.md"]
        await inner.delete("x.md")
        assert await storage.list() == ["y.md"]
        for prefix in ("..", "a/../b", "a\\b"):
            with pytest.raises(StorageError):
                storage.namespace(prefix)

    async def test_concurrent_writes_of_one_key_leave_one_of_them_whole(self, storage: AnyStorage) -> None:
        values = [bytes([number]) * 50_000 for number in range(20)]
        await asyncio.gather(*(storage.write("one.bin", value) for value in values))
        assert await storage.read("one.bin") in values

    async def test_concurrent_writes_of_different_keys_are_all_kept(self, storage: AnyStorage) -> None:
        await asyncio.gather(*(storage.write(f"d/{number:02}.md", str(number).encode()) for number in range(30)))
        assert await storage.list("d/") == [f"d/{number:02}.md" for number in range(30)]
        assert [await storage.read(f"d/{number:02}.md") for number in range(30)] == [b"%d" % n for n in range(30)]


class TestAgentMemoryStorage(StorageContract):
    @pytest.fixture
    def storage(self, memory: AgentMemory) -> AnyStorage:
        return AgentMemoryStorage(memory)


class TestReferences(StorageContract):
    """The SDK's own storages: a case that fails here is no contract of the SDK."""

    @pytest.fixture(params=["InMemoryStorage", "LocalFileStorage"])
    def storage(self, request: pytest.FixtureRequest, tmp_path: Path) -> AnyStorage:
        return InMemoryStorage() if request.param == "InMemoryStorage" else LocalFileStorage(str(tmp_path / "storage"))


SEGMENTS: Final = st.sampled_from(["a", "b", "ab", "a.md", "b.md", "é", "x y", ".a", "a..b", "...b"])
PATHS: Final = st.lists(SEGMENTS, min_size=1, max_size=3).map("/".join)
ENDS: Final = st.sampled_from(["", "/", "//", "/.", "/..", "\\", ":", " "])
PREFIXES: Final = st.one_of(
    st.tuples(st.sampled_from(["", "/", "//"]), PATHS, ENDS).map("".join),
    PATHS.flatmap(lambda path: st.integers(0, len(path)).map(lambda end: path[:end])),
    st.text(max_size=8),
)


@settings(max_examples=50)
@given(st.sets(PATHS, max_size=8), st.lists(PREFIXES, max_size=8))
def test_any_prefix_is_answered_as_the_sdks_storage_in_memory_does(keys: set[str], prefixes: list[str]) -> None:
    async def answers(storage: AnyStorage) -> list[object]:
        for key in keys:
            if not any(other.startswith(f"{key}/") for other in keys):  # a file cannot be a directory too
                await storage.write(key, b"x")
        return [await answer(storage, prefix) for prefix in prefixes]

    async def answer(storage: AnyStorage, prefix: str) -> list[str] | None:
        try:
            return [str(key) for key in await storage.list(prefix)]
        except StorageError:
            return None

    with AgentMemory.open("memory://") as memory:
        assert asyncio.run(answers(AgentMemoryStorage(memory))) == asyncio.run(answers(InMemoryStorage()))


async def is_stored(storage: AgentMemoryStorage, key: str) -> bool:
    """Whether a key is stored and found again in an empty storage; else it is refused, and nothing is written."""
    try:
        await storage.write(key, b"x")
    except StorageError:
        assert await storage.list() == []
        return False
    assert await storage.read(key) == b"x"
    assert await storage.list() == ["/".join(filter(None, key.split("/")))]
    await storage.delete(key)
    assert await storage.list() == []
    return True


@pytest.mark.asyncio
async def test_a_hostile_key_is_stored_and_found_again_or_refused(memory: AgentMemory) -> None:
    storages = [AgentMemoryStorage(memory.subtree(f"tree-{number}")) for number, _ in enumerate(HOSTILE)]
    kept = {key for storage, key in zip(storages, HOSTILE, strict=True) if await is_stored(storage, key)}
    assert set(HOSTILE) - kept == {"", "..", "../x", "a\\b", "C:\\x"}, "the SDK's own storages refuse these too"


def test_hostile_keys_stay_inside_the_root_on_disk(tmp_path: Path) -> None:
    with AgentMemory.open(tmp_path / "root") as memory:
        storage = AgentMemoryStorage(memory)
        for key in (*HOSTILE, "/../../x", "a/../../../x", "./../x", "//etc/passwd"):
            asyncio.run(is_stored(storage, key))
    assert {path.name for path in tmp_path.iterdir()} <= {"root"}
    assert {path.name for path in (tmp_path / "root").iterdir()} <= {".agent-memory", ".texts"}


@settings(max_examples=50)
@given(IDS, IDS)
def test_two_keys_never_share_a_file(one: str, two: str) -> None:
    async def read() -> bytes | None:
        with AgentMemory.open("memory://") as memory:
            storage = AgentMemoryStorage(memory)
            try:
                await storage.write(one, b"x")
                return await storage.read(two)
            except StorageError:
                return None

    def normal(key: str) -> list[str]:
        return [segment for segment in key.split("/") if segment]

    assert asyncio.run(read()) is None or normal(one) == normal(two)


OLD: Final = ("Q&A.md", "a=b.md", "Q=26A.md", "user=12/id=3Ab", "YWI==", "notes/~x.md", "日記 (1).md", "Drinks.md")
"""Names that the memory allows: their files are as they were before other names were encoded."""


@pytest.mark.parametrize("key", OLD)
@pytest.mark.asyncio
async def test_a_valid_name_is_stored_as_it_is(memory: AgentMemory, key: str) -> None:
    memory.write(key, "old")
    storage = AgentMemoryStorage(memory)
    assert (await storage.list(), await storage.read(key)) == ([key], b"old")
    await storage.write(key, b"new")
    assert [entry.path for entry in memory.list()] == [key]


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("a:b", "a=3Ab.encoded"),
        ("a=3Ab:", "a=3D3Ab=3A.encoded"),
        ("a.encoded", "a.encoded.encoded"),
        ("a=3Ab.encoded", "a=3D3Ab.encoded.encoded"),
        ("con.md", "=63on.md.encoded"),
        ("~x/~y", "=7Ex.encoded/~y"),
        ("d/./e", "d/=2E.encoded/e"),
        (".texts/x", "=2Etexts.encoded/x"),
    ],
)
@pytest.mark.asyncio
async def test_other_names_are_encoded(memory: AgentMemory, key: str, path: str) -> None:
    storage = AgentMemoryStorage(memory)
    await storage.write(key, b"x")
    assert [entry.path for entry in memory.list()] == [path]
    assert (await storage.list(), await storage.read(key)) == ([key], b"x")
    assert await storage.list(key[:-1]) == await storage.list(key.rpartition("/")[0]) == [key]


@pytest.mark.asyncio
async def test_a_long_name_is_found_in_its_namespace_and_above(memory: AgentMemory) -> None:
    storage, name = AgentMemoryStorage(memory), "thread:" + "x" * 400
    await storage.namespace("a:b").write(f"{name}/one.md", b"x")
    assert await storage.list() == [f"a:b/{name}/one.md"]
    assert await AgentMemoryStorage(memory).namespace("/a:b/").list(f"{name}/") == [f"{name}/one.md"]
    assert await storage.namespace(f"a:b/{name}").read("one.md") == b"x"


@pytest.mark.asyncio
async def test_a_key_without_room_is_refused_in_words_that_show_no_path(memory: AgentMemory) -> None:
    storage = AgentMemoryStorage(memory.subtree("users/ann"))
    for key in ("/".join(["x"] * 40), "/".join(["é" * 100] * 5)):
        with pytest.raises(StorageError) as raised:
            await storage.write(key, b"x")
        assert "ann" not in str(raised.value)
    assert memory.list() == ()


@pytest.mark.asyncio
async def test_a_key_below_another_key_is_refused(memory: AgentMemory) -> None:
    storage = AgentMemoryStorage(memory)
    await storage.write("a/b", b"x")
    for key in ("a", "a/b/c"):
        with pytest.raises(StorageError):
            await storage.write(key, b"y")
        assert await storage.read(key) is None
        await storage.delete(key)
    assert [(key, await storage.read(key)) for key in await storage.list()] == [("a/b", b"x")]


@pytest.mark.asyncio
async def test_the_files_are_plain_files_of_the_memory(memory: AgentMemory) -> None:
    storage = AgentMemoryStorage(memory.as_async())
    await storage.write("/notes//today.md", b"one")
    assert memory.read("notes/today.md") == "one"
    memory.write("notes/tomorrow.md", "two")
    assert await storage.read("notes/tomorrow.md") == b"two"
    assert await storage.list("notes/to") == ["notes/today.md", "notes/tomorrow.md"]


@pytest.mark.parametrize("wrong", [None, "./memories", object()])
@pytest.mark.asyncio
async def test_a_wrong_type_is_a_type_error(wrong: Any) -> None:
    with pytest.raises(TypeError):
        AgentMemoryStorage(wrong)
    with AgentMemory.open("memory://") as memory:
        storage: AnyStorage = AgentMemoryStorage(memory)
        for call in (storage.read(7), storage.list(None), storage.write("a.md", "text"), storage.write("a.md", 7)):
            with pytest.raises(TypeError):
                await call
        assert memory.list() == ()


@pytest.mark.asyncio
async def test_a_read_only_memory_refuses_every_change_and_nothing_changes(memory: AgentMemory) -> None:
    await AgentMemoryStorage(memory).write("a.md", b"old")
    storage = AgentMemoryStorage(memory.read_only())
    for call in (storage.write("a.md", b"new"), storage.write("b.md", b"new"), storage.delete("a.md")):
        with pytest.raises(StorageError) as raised:
            await call
        assert isinstance(raised.value.__cause__, OperationDenied)
    assert [(key, await storage.read(key)) for key in await storage.list()] == [("a.md", b"old")]


@pytest.mark.asyncio
async def test_content_over_the_limit_is_an_error_of_the_sdk_and_a_search_skips_it() -> None:
    backend = MemoryBackend()
    with AgentMemory.open(backend) as memory:
        storage = AgentMemoryStorage(memory)
        await storage.write("large.md", b"tea " * 50)
        backend.max_bytes = 100
        with pytest.raises(StorageError):
            await storage.write("big.md", b"x" * 101)
        await storage.write("tea.md", b"tea")
        with pytest.raises(StorageError):
            await storage.read("large.md")
        if hasattr(keyword, "STOP_WORDS"):
            assert [each.key for each in await storage.search("tea")] == ["tea.md"]
        else:  # the search of earlier releases reads all keys or fails
            with pytest.raises(StorageError):
                await storage.search("tea")


@pytest.mark.asyncio
async def test_the_hooks_see_each_call_and_each_refused_key() -> None:
    plugin = RecordingPlugin()
    with AgentMemory.open("memory://", plugins=[plugin]) as memory:
        storage = AgentMemoryStorage(memory.subtree("agent"))
        await storage.write("d/a.md", b"x")
        await storage.read("d/a.md")
        await storage.list("d/a")
        await storage.delete("d/a.md")
        with pytest.raises(StorageError):
            await storage.write("../a.md", b"x")
    paths = ["agent/d/a.md", "agent/d/a.md", "agent/d", "agent/d/a.md"]
    assert seen_by(plugin) == list(zip(["write", "read", "list", "delete"], paths, strict=True))
    assert len(plugin.rejected) == 1


def write_own(memory: AgentMemory, process: int, number: int) -> None:
    asyncio.run(AgentMemoryStorage(memory).write(f"own/{process}/{number}.md", f"{process} {number}".encode()))


@rounds(5, 1)
def test_a_race_of_processes_on_different_keys_loses_none(shared_place: Root) -> None:
    race(shared_place, write_own)
    expected = {f"own/{p}/{n}.md": f"{p} {n}" for p in range(PROCESSES) for n in range(ADDITIONS)}
    with AgentMemory.open(shared_place.url, storage_options=shared_place.options) as memory:
        assert asyncio.run(AgentMemoryStorage(memory).list()) == sorted(expected)
        assert memory.read_many(expected) == expected


def write_same(memory: AgentMemory, process: int, number: int) -> None:
    storage = AgentMemoryStorage(memory)
    asyncio.run(storage.write("same.md", f"{process} {number} ".encode() * 2_000))
    assert is_whole(asyncio.run(storage.read("same.md")))


def is_whole(data: bytes | None) -> bool:
    words = (data or b"").split()
    return len(words) == 4_000 and len(set(zip(words[::2], words[1::2], strict=True))) == 1


@rounds(5, 1)
def test_a_race_of_processes_on_one_key_leaves_one_value_whole(shared_place: Root) -> None:
    race(shared_place, write_same)
    with AgentMemory.open(shared_place.url, storage_options=shared_place.options) as memory:
        assert asyncio.run(AgentMemoryStorage(memory).list()) == ["same.md"]
        assert is_whole(memory.read_bytes("same.md"))


def write_and_delete(memory: AgentMemory) -> bool:
    async def work() -> bool:
        storage = AgentMemoryStorage(memory)
        for _ in range(10):
            await storage.write("d/one.md", b"x" * 1_000)
            assert await storage.read("d/one.md") in (None, b"x" * 1_000)
            await storage.delete("d/one.md")
        return await storage.read("d/one.md") in (None, b"x" * 1_000)

    return asyncio.run(work())


@rounds(5, 1)
def test_a_race_of_writes_and_deletions_raises_nothing_at_once(shared_place: Root) -> None:
    assert at_once(shared_place, write_and_delete, processes=3) == [True] * 3
    with AgentMemory.open(shared_place.url, storage_options=shared_place.options) as memory:
        assert asyncio.run(AgentMemoryStorage(memory).list()) == []


class Scripted(Model):
    """A model that says the answers of a function of the conversation: a text, or the name and the input of a tool."""

    def __init__(self, answer: Callable[[Any], str | tuple[str, dict[str, Any]]]) -> None:
        self._answer = answer

    def update_config(self, **model_config: Any) -> None:
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *args: Any, **kwargs: Any) -> AsyncGenerator[dict[str, Any], None]:
        raise NotImplementedError

    async def stream(self, messages: Any, *_args: Any, **_kwargs: Any) -> AsyncIterable[StreamEvent]:
        answer = self._answer(messages)
        yield {"messageStart": {"role": "assistant"}}
        if isinstance(answer, str):
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": answer}}}
        else:
            name, arguments = answer
            yield {"contentBlockStart": {"start": {"toolUse": {"name": name, "toolUseId": f"call-{len(messages)}"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(arguments)}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if isinstance(answer, str) else "tool_use"}}


def remember(messages: Any) -> str | tuple[str, dict[str, Any]]:
    return "Noted." if len(messages) > 1 else ("add_memory", {"entries": ["# Drinks\nAnn likes green tea"]})


def recall(messages: Any) -> str | tuple[str, dict[str, Any]]:
    return str(messages[-1]["content"]) if len(messages) > 1 else ("search_memory", {"query": "tea"})


def agent_with_notes(memory: AgentMemory, answer: Callable[[Any], Any]) -> Agent:
    store = FileMemoryStore(name="notes", storage=AgentMemoryStorage(memory))
    manager = MemoryManager(stores=[store], add_tool_config=True, injection=False)
    return Agent(model=Scripted(answer), memory_manager=manager, callback_handler=None)


def test_an_agent_finds_what_another_agent_remembered(memory: AgentMemory) -> None:
    assert str(agent_with_notes(memory, remember)("I like green tea.")) == "Noted.\n"
    assert memory.read("memory/notes/drinks.md") == "# Drinks\nAnn likes green tea"
    memory.write("elsewhere.md", "tea, but not a note of this store")
    answer = str(agent_with_notes(memory, recall)("What do I drink?"))
    assert "Ann likes green tea" in answer
    assert "elsewhere" not in answer


def test_a_session_of_an_agent_goes_on_in_another_agent(memory: AgentMemory) -> None:
    def agent() -> Agent:
        session = SnapshotSessionManager("chat-1", storage=AgentMemoryStorage(memory))
        model = Scripted(lambda messages: f"{len(messages)} messages")
        return Agent(model=model, agent_id="ann", session_manager=session, callback_handler=None)

    assert str(agent()("first")) == "1 messages\n"
    assert str(agent()("second")) == "3 messages\n"
    assert memory.exists("session/chat-1/scopes/agent/ann/snapshots/snapshot_latest.json")


@pytest.mark.parametrize("session", ["slack:C01", "con", "~ann", "x" * 300, "a=3Ab", "日記?", "😀 chat", "a."])
def test_any_id_of_a_session_is_accepted(memory: AgentMemory, session: str) -> None:
    def agent(id_: str) -> Agent:
        manager = SnapshotSessionManager(id_, storage=AgentMemoryStorage(memory))
        model = Scripted(lambda messages: f"{len(messages)} messages")
        return Agent(model=model, agent_id=id_, session_manager=manager, callback_handler=None)

    assert str(agent(session)("first")) == "1 messages\n"
    assert str(agent("a:b")("first")) == "1 messages\n"
    assert str(agent(session)("second")) == "3 messages\n"
    manager = SnapshotSessionManager(session, storage=AgentMemoryStorage(memory))
    asyncio.run(manager.delete_session())
    assert str(agent(session)("first")) == "1 messages\n"
    assert str(agent("a:b")("second")) == "3 messages\n"


@pytest.mark.parametrize("module", ["None", "types.ModuleType('strands')"], ids=["no import", "other version"])
def test_the_error_names_the_extra_if_the_sdk_does_not_fit(module: str) -> None:
    code = (
        f"import sys, types; sys.modules['strands'] = {module}\n"
        "try:\n    import agent_memory.integrations.strands\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("strands-agents ")
    assert "does not fit this adapter" in done.stdout
    assert "pip install 'agent-memory-files[strands]'" in done.stdout


def run_example(root: str, **environment: str) -> list[str]:
    return example_output(EXAMPLE, root, environment, silent=True).splitlines()


def test_the_example_remembers_on_disk(tmp_path: Path) -> None:
    lines = run_example(str(tmp_path / "memories"))
    assert lines[-1] == "kept: memory/notes/drinks.md"
    assert "Ann likes green tea" in lines[-2]
    note = tmp_path / "memories" / "agent_memory" / "ann" / "strands" / "memory" / "notes" / "drinks.md"
    assert note.read_text() == "# Drinks\nAnn likes green tea"
    run_example(str(tmp_path / "memories"))
    assert note.read_text() == "# Drinks\nAnn likes green tea\nAnn likes green tea"


@pytest.mark.long
def test_the_example_remembers_on_s3(ministack: S3Server) -> None:
    lines = run_example(ministack.new_url(), **ministack.environment)
    assert lines[-1] == "kept: memory/notes/drinks.md"


def test_an_agent_keeps_notes_with_the_tools(place: Root) -> None:
    taker, plugin = NoteTaker(), RecordingPlugin()

    def answer(messages: Any) -> str | tuple[str, dict[str, Any]]:
        results = [part["toolResult"] for message in messages for part in message["content"] if "toolResult" in part]
        return taker.next([result["content"][0]["text"] for result in results]) or "done"

    with AgentMemory.open(place.url, storage_options=place.options, actor="ann", plugins=[plugin]) as memory:
        agent = Agent(model=Scripted(answer), tools=memory_tools(memory), callback_handler=None)
        assert str(agent("go")) == "done\n"
        check(memory, plugin, [f"call-{number}" for number in range(1, 17, 2)])
