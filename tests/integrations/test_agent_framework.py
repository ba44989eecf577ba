"""The file store for Microsoft's Agent Framework over a memory, beside the framework's own stores."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import warnings
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

agent_framework = pytest.importorskip("agent_framework")

from agent_framework import (  # noqa: E402
    Agent,
    AgentFileStore,
    BaseChatClient,
    ChatResponse,
    Content,
    FileAccessProvider,
    FileMemoryProvider,
    FileStoreEntry,
    FileSystemAgentFileStore,
    FunctionInvocationLayer,
    InMemoryAgentFileStore,
    Message,
)
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from agent_memory import AgentMemory, AsyncAgentMemory  # noqa: E402
from agent_memory.errors import OperationDenied  # noqa: E402
from agent_memory.testing import RecordingPlugin  # noqa: E402
from tests.integrations.kit import ADDITIONS, HOSTILE, IDS, PROCESSES, at_once, example_output, race, rounds, seen_by  # noqa: E402
from tests.integrations.obedient import BAD_NAMES, obeyed  # noqa: E402
from tests.support.servers import Root, S3Server  # noqa: E402

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", r"\[HARNESS\] AgentFileStore is experimental", FutureWarning)
    from agent_memory.integrations.agent_framework import AgentMemoryFileStore

EXAMPLE = Path(__file__).parents[2] / "examples" / "integrations" / "agent_framework_agent.py"


def names_in(directory: Path) -> set[str]:
    return {each.name for each in directory.iterdir()}


def file(name: str) -> FileStoreEntry:
    return FileStoreEntry(name, FileStoreEntry.FILE)


def folder(name: str) -> FileStoreEntry:
    return FileStoreEntry(name, FileStoreEntry.DIRECTORY)


async def outcome(call: Awaitable[Any]) -> Any:
    """What a call returns, or the kind of its error."""
    try:
        answer = await call
    except ValueError:
        return ValueError
    except OSError as error:
        return type(error)
    return sorted(map(str, answer)) if isinstance(answer, list) else answer


@pytest.mark.asyncio
async def test_a_file_is_written_read_replaced_and_deleted(memory: AgentMemory) -> None:
    store = AgentMemoryFileStore(memory)
    assert await store.read("notes/plan.md") is None
    assert not await store.file_exists("notes/plan.md")
    await store.write("notes/plan.md", "one\r\ntwo")
    assert await store.read("notes/plan.md") == "one\ntwo"
    await store.write("notes/plan.md", "")
    assert await store.read("notes/plan.md") == ""
    assert await store.file_exists("notes/plan.md")
    assert await store.delete("notes/plan.md") is True
    assert await store.delete("notes/plan.md") is False
    assert await store.read("notes/plan.md") is None
    assert await store.list_children() == []


@pytest.mark.asyncio
async def test_an_async_memory_gives_the_same_store(place: Root) -> None:
    async with AsyncAgentMemory.open(place.url, storage_options=place.options) as memory:
        store = AgentMemoryFileStore(memory)
        await store.write("a.md", "one", overwrite=False)
        assert await store.read("a.md") == "one"
        assert await memory.read("a.md") == "one"


@pytest.mark.asyncio
async def test_without_overwriting_an_existing_file_stays(memory: AgentMemory) -> None:
    store = AgentMemoryFileStore(memory)
    await store.write("a.md", "first", overwrite=False)
    with pytest.raises(FileExistsError, match=r"'a\.md'"):
        await store.write("a.md", "second", overwrite=False)
    assert await store.read("a.md") == "first"


@pytest.mark.asyncio
async def test_directories_come_first_and_exist_while_a_file_is_below_them(memory: AgentMemory) -> None:
    store = AgentMemoryFileStore(memory)
    await store.create_directory("empty/below")
    for name in ("b.md", "a.md", "notes/deep/x.md", "~scope-x/x.md"):
        await store.write(name, "x")
    assert await store.list_children() == [folder("notes"), folder("~scope-x"), file("a.md"), file("b.md")]
    assert await store.list_children("notes") == [folder("deep")]
    assert await store.list_children("notes/deep/") == [file("x.md")]
    assert await store.list_children("a.md") == await store.list_children("empty") == []
    await store.delete("notes/deep/x.md")
    assert folder("notes") not in await store.list_children()


@pytest.mark.asyncio
async def test_a_name_between_file_and_directory_is_the_error_of_the_store_on_disk(
    memory: AgentMemory, tmp_path: Path
) -> None:
    for store in (AgentMemoryFileStore(memory), FileSystemAgentFileStore(tmp_path / "own")):
        await store.write("d/a.md", "x")
        for overwrite in (True, False):
            with pytest.raises(IsADirectoryError):
                await store.write("d", "x", overwrite=overwrite)
            with pytest.raises(NotADirectoryError):
                await store.write("d/a.md/b.md", "x", overwrite=overwrite)
        assert await store.read("d") is None
        assert await store.delete("d") is False
        assert await store.file_exists("d") is False
        assert await store.read("d/a.md") == "x"


REFUSED = ["", " ", "/x", "\\x", "../x", "a/../b", "..", ".", "./x", "a/./b", "x/", "x\\", "C:\\x", "c:x", "//", "a/.."]


@pytest.mark.asyncio
@pytest.mark.parametrize("path", REFUSED, ids=ascii)
async def test_a_path_that_the_framework_refuses_is_refused(path: str, tmp_path: Path) -> None:
    with AgentMemory.open(str(tmp_path / "ours")) as memory:
        ours = AgentMemoryFileStore(memory)
        for store in (ours, InMemoryAgentFileStore(), FileSystemAgentFileStore(tmp_path / "own")):
            for call in (store.write(path, "x"), store.read(path), store.delete(path), store.file_exists(path)):
                assert await outcome(call) is ValueError
        assert names_in(tmp_path) == set()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "path", ["", " ", "/", "\\", "..", ".", "d", " d ", "d/", "d\\", "d//e", "/d", "C:", "d/../d", "no"]
)
async def test_a_directory_is_named_as_in_the_frameworks_stores(path: str, tmp_path: Path) -> None:
    with AgentMemory.open("memory://") as memory:
        answers = []
        for store in (
            AgentMemoryFileStore(memory), InMemoryAgentFileStore(), FileSystemAgentFileStore(tmp_path)
        ):  # fmt: skip
            await store.write("d/a.md", "x")
            await store.write("d/e/b.md", "x")
            answers.append((await outcome(store.list_children(path)), await outcome(store.search(path, "X"))))
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.asyncio
@pytest.mark.parametrize("path", [" a.md ", "d\\a.md", "d//a.md", "d\\\\a.md", "~a.md", "~/a.md", "~scope-x/a.md"])
async def test_a_path_is_normalised_as_in_the_frameworks_stores(path: str, tmp_path: Path) -> None:
    with AgentMemory.open("memory://") as memory:
        answers = []
        for store in (AgentMemoryFileStore(memory), FileSystemAgentFileStore(tmp_path)):
            await store.write(path, "x")
            found = await store.search("", "x", recursive=True)
            answers.append([await store.read(path), *map(str, found), *map(str, await store.list_children())])
    assert answers[0] == answers[1]


@pytest.mark.asyncio
async def test_a_path_is_the_path_of_a_plain_file(tmp_path: Path) -> None:
    with AgentMemory.open(str(tmp_path)) as memory:
        store = AgentMemoryFileStore(memory)
        await store.write("session-1/plan.md", "# Plan\n")
        await store.write("~scope-x/plan.md", "# Plan\n")
        assert [str(entry) for entry in memory.list()] == ["=7Escope-x/plan.md", "session-1/plan.md"]
        assert memory.read("session-1/plan.md") == "# Plan\n"
        with pytest.raises(ValueError, match="=7E"):  # the stored form of another name
            await store.write("=7Escope-x/plan.md", "lost")
        with pytest.raises(ValueError, match=r"plan\.md"):  # a name for the model to try
            await store.write("session-1/plan?.md", "x")


NAMES = st.sampled_from(["a.md", "b.txt", "d/a.md", "d/e/a.md", "~s/a.md", "d\\a.md", " a.md", "x/../a", ""])
FOLDERS = st.sampled_from(["", "d", "d/e", "~s", "d/", "none", ".."])
CONTENTS = st.sampled_from(["", "one", "one\nTwo\n", "x\rtwo\n\n"])
CALLS = st.one_of(
    st.tuples(st.just("write"), NAMES, CONTENTS, st.booleans()),
    st.tuples(st.sampled_from(["read", "delete", "file_exists"]), NAMES),
    st.tuples(st.just("list_children"), FOLDERS),
    st.tuples(
        st.just("search"), FOLDERS, st.sampled_from(["two$", "o.e|x"]), st.sampled_from([None, "*.MD", "e/*"]),
        st.booleans(),
    ),
)  # fmt: skip


async def called(store: AgentFileStore, method: str, *arguments: Any) -> Any:
    positional, options = list(arguments), {}
    if method in ("write", "search"):
        options["overwrite" if method == "write" else "recursive"] = positional.pop()
    return await outcome(getattr(store, method)(*positional, **options))


@settings(max_examples=50, deadline=None)
@given(st.lists(CALLS, min_size=3, max_size=20))
def test_any_calls_answer_as_the_store_in_memory(calls: list[tuple[Any, ...]]) -> None:
    async def run() -> None:
        with AgentMemory.open("memory://") as memory:
            ours, model = AgentMemoryFileStore(memory), InMemoryAgentFileStore()
            for call in calls:
                assert await called(ours, *call) == await called(model, *call), call

    asyncio.run(run())


@pytest.mark.asyncio
async def test_a_search_reports_lines_that_can_be_edited(memory: AgentMemory) -> None:
    store = AgentMemoryFileStore(memory)
    await store.write("a.md", "one\r\nTwo\r\n\rthree")
    await store.write("d/b.md", "two")
    await store.write("d/c.txt", "two")
    memory.write("d/binary.md", b"two \xff")
    found = await store.search("", "^two$|three", "*.md", recursive=True)
    assert [(each.file_name, [(line.line_number, line.line) for line in each.matching_lines]) for each in found] == [
        ("a.md", [(2, "Two\n"), (3, "\rthree")]),
        ("d/b.md", [(1, "two")]),
    ]
    content = await store.read("a.md")
    assert content is not None
    assert store.split_lines(content)[1] == "Two\n"
    assert [each.file_name for each in await store.search("d", "TWO")] == ["b.md", "c.txt"]
    assert await store.search("", "one", "*.txt") == []


@pytest.mark.asyncio
async def test_a_search_lists_once_and_reads_only_the_files_of_the_pattern() -> None:
    observer = RecordingPlugin()
    with AgentMemory.open("memory://", plugins=[observer]) as memory:
        store = AgentMemoryFileStore(memory)
        for name in ("a.md", "d/b.md", "d/e/c.txt"):
            await store.write(name, "x")
        observer.after.clear()
        await store.search("", "x", "*.txt", recursive=True)
    assert seen_by(observer) == [("list", ""), ("read", "d/e/c.txt")]


@pytest.mark.asyncio
async def test_a_file_that_is_not_utf_8_is_a_value_error_without_its_content() -> None:
    with AgentMemory.open("memory://") as memory:
        memory.write("a.md", b"secret \xff")
        with pytest.raises(ValueError, match=r"^'a\.md' is not UTF-8 text and cannot be read$") as raised:
            await AgentMemoryFileStore(memory).read("a.md")
        assert raised.value.__suppress_context__


@pytest.mark.asyncio
@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
async def test_a_hostile_name_is_stored_and_found_again_or_refused(
    name: str, memory: AgentMemory, tmp_path: Path
) -> None:
    store = AgentMemoryFileStore(memory)
    try:
        await store.write(name, "content", overwrite=False)
    except ValueError:
        assert memory.list() == ()
    else:
        assert await store.read(name) == "content"
        assert await store.file_exists(name)
        (found,) = await store.search("", "content", recursive=True)
        assert await store.read(found.file_name) == "content"
        assert await store.delete(name)
    assert names_in(tmp_path) <= {"root"}


@settings(max_examples=50, deadline=None)
@given(IDS, IDS)
def test_two_names_never_share_a_file_unless_the_framework_means_one(one: str, two: str) -> None:
    async def last(store: AgentFileStore) -> str | None:
        await store.write(one, "one")
        await store.write(two, "two")
        return await store.read(one)

    async def run() -> None:
        with AgentMemory.open("memory://") as memory:
            try:
                shared = await last(AgentMemoryFileStore(memory)) == "two"
            except (ValueError, OSError):
                return
            assert not shared or await last(InMemoryAgentFileStore()) == "two"

    asyncio.run(run())


@pytest.mark.asyncio
@pytest.mark.parametrize("path", [7, None, b"a.md"])
async def test_a_path_of_another_type_is_a_type_error(path: Any) -> None:
    with AgentMemory.open("memory://") as memory:
        with pytest.raises(TypeError, match="path"):
            await AgentMemoryFileStore(memory).write(path, "x")


@pytest.mark.asyncio
async def test_plugins_see_each_call_and_the_read_before_a_write() -> None:
    observer = RecordingPlugin()
    with AgentMemory.open("memory://", plugins=[observer]) as memory:
        store = AgentMemoryFileStore(memory)
        await store.create_directory("d")
        await store.write("d/a.md", "x", overwrite=False)
        await store.write("d/a.md", "y")
        await store.read("d/a.md")
        await store.file_exists("d/a.md")
        await store.list_children("d")
        await store.delete("d/a.md")
    kinds = ("create", "read", "write", "read", "exists", "list", "delete")
    assert seen_by(observer) == [(kind, "d" if kind == "list" else "d/a.md") for kind in kinds]


@pytest.mark.asyncio
async def test_a_refused_write_is_an_error_and_changes_nothing(memory: AgentMemory) -> None:
    memory.write("a.md", "kept")
    store = AgentMemoryFileStore(memory.read_only())
    for call in (store.write("a.md", "lost"), store.write("b.md", "lost", overwrite=False), store.delete("a.md")):
        with pytest.raises(OperationDenied):
            await call
    assert await store.read("a.md") == "kept"
    assert await store.list_children() == [file("a.md")]


def add(memory: AgentMemory, process: int, number: int) -> None:
    store = AgentMemoryFileStore(memory)
    asyncio.run(store.write(f"notes/{process}-{number}.md", f"{process} {number}", overwrite=False))


@rounds(5, 1)
def test_race_of_new_files_keeps_all(shared_place: Root) -> None:
    race(shared_place, add)

    async def kept() -> list[str | None]:
        async with AsyncAgentMemory.open(shared_place.url, storage_options=shared_place.options) as memory:
            store = AgentMemoryFileStore(memory)
            return [await store.read(f"notes/{each.name}") for each in await store.list_children("notes")]

    expected = [f"{process} {number}" for process in range(PROCESSES) for number in range(ADDITIONS)]
    assert sorted(map(str, asyncio.run(kept()))) == sorted(expected)


def create_all(memory: AgentMemory) -> list[int]:
    """Create twenty files that other processes create too; returns the numbers of those that it created."""

    async def run() -> list[int]:
        store, won = AgentMemoryFileStore(memory), []
        for number in range(20):
            try:
                await store.write(f"{number}.md", str(os.getpid()), overwrite=False)
            except FileExistsError:
                continue
            won.append(number)
        return won

    return asyncio.run(run())


@rounds(5, 1)
def test_at_once_created_by_four_processes_a_file_has_one_winner(shared_place: Root) -> None:
    won = at_once(shared_place, create_all, PROCESSES)
    assert sorted(number for each in won for number in each) == list(range(20))


# The framework's providers


class ScriptedClient(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    """Answers with the next content of a script, and notes what it was asked."""

    def __init__(self, *script: Content) -> None:
        super().__init__()
        self._script = list(script)
        self.asked: list[Sequence[Message]] = []

    async def _inner_get_response(  # it never streams
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **kwargs: Any
    ) -> ChatResponse[Any]:
        del stream, options, kwargs
        self.asked.append(messages)
        return ChatResponse(messages=Message("assistant", [self._script.pop(0)]))

    def answers(self) -> list[Any]:
        """The answers of the tools."""
        contents = [content for message in self.asked[-1] for content in message.contents]
        return [content.result for content in contents if content.type == "function_result"]


_CALL_NUMBERS = itertools.count()


def tool(name: str, **arguments: Any) -> Content:
    return Content.from_function_call(f"call-{next(_CALL_NUMBERS)}", name, arguments=arguments)


async def talk(provider: FileMemoryProvider | FileAccessProvider, *script: Content) -> ScriptedClient:
    client = ScriptedClient(*script, Content.from_text("Done."))
    await Agent(client, context_providers=[provider]).run("Go on.")
    return client


@pytest.mark.asyncio
async def test_a_scope_that_is_too_long_for_a_name_is_refused(memory: AgentMemory) -> None:
    provider = FileMemoryProvider(AgentMemoryFileStore(memory), scope="x" * 500)
    with pytest.raises(ValueError, match="at most 240 bytes"):
        await talk(provider, tool("file_memory_write", file_name="travel.md", content="rail"))
    assert memory.list() == ()


@pytest.mark.asyncio
@pytest.mark.parametrize("scope", ["ann", "Ann", "../ann", "a/b", "メモ", "x" * 240], ids=ascii)
async def test_an_agent_finds_the_files_of_an_earlier_one(scope: str, memory: AgentMemory) -> None:
    first = await talk(
        FileMemoryProvider(AgentMemoryFileStore(memory), scope=scope),
        tool("file_memory_write", file_name="travel.md", content="rail\nair\n", description="how Ann travels"),
        tool("file_memory_write", file_name="draft.md", content="x"),
        tool("file_memory_delete", file_name="draft.md"),
        tool("file_memory_write", file_name="a/b.md", content="x"),
    )
    assert first.answers()[:3] == [
        "File 'travel.md' written with description.", "File 'draft.md' written.", "File 'draft.md' deleted.",
    ]  # fmt: skip
    assert "must not be written into a subdirectory" in first.answers()[3]
    second = await talk(
        FileMemoryProvider(AgentMemoryFileStore(memory), scope=scope),
        tool("file_memory_read", file_name="travel.md"),
        tool("file_memory_grep", regex_pattern="RAIL"),
        tool("file_memory_replace", file_name="travel.md", old_string="air", new_string="sea"),
        tool("file_memory_ls"),
    )
    assert any("**travel.md**: how Ann travels" in message.text for message in second.asked[0])
    read, grep, replaced, listed = map(str, second.answers())
    assert read == "rail\nair\n"
    assert '"line_number": 1' in grep
    assert replaced == "Replaced 1 occurrence(s) in 'travel.md'."
    assert "how Ann travels" in listed
    (path,) = [entry.path for entry in memory.list() if entry.path.endswith("/travel.md")]
    assert memory.read(path) == "rail\nsea\n"
    other = await talk(
        FileMemoryProvider(AgentMemoryFileStore(memory), scope="bob"), tool("file_memory_read", file_name="travel.md")
    )
    assert other.answers() == ["File 'travel.md' not found."]


@pytest.mark.asyncio
@pytest.mark.parametrize("scope", ["ann", "Ann Example"])
@pytest.mark.parametrize("name", [name for name in BAD_NAMES if "/" not in name and len(name) < 100])
async def test_a_model_that_follows_the_advice_writes_into_its_scope(
    memory: AgentMemory, scope: str, name: str
) -> None:
    def written(name: str) -> Content:
        return tool("file_memory_write", file_name=name, content="kept")

    provider = FileMemoryProvider(AgentMemoryFileStore(memory), scope=scope)
    first = (await talk(provider, written(name))).answers()[0]
    if "written" not in first:  # else the framework has mended the name
        assert "ann" not in first.lower().replace("cannot", ""), "the scope"
        assert "written" in (await talk(provider, written(obeyed(name, first)))).answers()[0]
    assert [memory.read(entry.path) for entry in memory.list() if "memories.md" not in entry.path] == ["kept"]


@pytest.mark.asyncio
async def test_the_access_tools_answer_as_with_the_store_on_disk(memory: AgentMemory, tmp_path: Path) -> None:
    script = [
        tool("file_access_write", file_name="d/a.md", content="one\ntwo\nthree\n"),
        tool("file_access_write", file_name="d/a.md", content="again"),
        tool("file_access_write", file_name="d", content="a directory"),
        tool("file_access_write", file_name="d/a.md/b", content="below a file"),
        tool("file_access_write", file_name="../x", content="outside"),
        tool("file_access_ls"),
        tool("file_access_ls", directory="d"),
        tool("file_access_grep", regex_pattern="t[wh]"),
        tool("file_access_replace_lines", file_name="d/a.md", edits=[{"line_number": 2, "new_line": "zwei\n"}]),
        tool("file_access_read_lines", file_name="d/a.md", start_line=2),
        tool("file_access_read", file_name="none.md"),
        tool("file_access_delete", file_name="d/a.md"),
        tool("file_access_delete", file_name="d/a.md"),
    ]
    answers = []
    for store in (AgentMemoryFileStore(memory), FileSystemAgentFileStore(tmp_path / "own")):
        provider = FileAccessProvider(store, disable_readonly_tool_approval=True, disable_write_tool_approval=True)
        answers.append((await talk(provider, *script)).answers())
    assert answers[0] == answers[1]
    assert len(answers[0]) == len(script)
    assert answers[0][9] == "2\tzwei\n3\tthree\n4\t"


@pytest.mark.asyncio
async def test_a_denied_write_is_a_text_for_the_model(memory: AgentMemory) -> None:
    client = await talk(
        FileMemoryProvider(AgentMemoryFileStore(memory.read_only()), scope="ann"),
        tool("file_memory_write", file_name="a.md", content="x"),
    )
    assert client.answers()[0].startswith("Could not write file 'a.md': ")
    assert memory.list() == ()


def test_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['agent_framework'] = None\n"
        "try:\n    import agent_memory.integrations.agent_framework\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'agent-memory-files[agent-framework]'" in done.stdout


EXPECTED = (
    "File 'travel.md' not found.\n"
    "File 'travel.md' written with description.\n"
    "Ann prefers rail to air.\n"
    "files:\n  ann/memories.md\n  ann/travel.md\n  ann/travel_description.md\n"
)


def run_example(root: str, **environment: str) -> str:
    return example_output(EXAMPLE, root, environment)


def test_the_example_remembers_on_disk(tmp_path: Path) -> None:
    assert run_example(str(tmp_path / "memories")) == EXPECTED
    plan = tmp_path / "memories" / "agent_memory" / "ann" / "agent-framework" / "ann" / "travel.md"
    assert plan.read_text() == "Ann prefers rail to air."
    assert run_example(str(tmp_path / "memories")).splitlines()[0] == "Ann prefers rail to air."


@pytest.mark.long
def test_the_example_remembers_on_s3(ministack: S3Server) -> None:
    output = run_example(ministack.new_url(), **ministack.environment)
    assert output == EXPECTED


@pytest.mark.asyncio
async def test_a_file_is_read_with_unix_ends_and_keeps_its_own_ends_and_its_mark(memory: AgentMemory) -> None:
    store = AgentMemoryFileStore(memory)
    memory.write("a.md", b"\xef\xbb\xbfone\r\ntwo\n")
    assert await store.read("a.md") == "one\ntwo\n"
    await store.write("a.md", "1\nnew\ntwo\n")
    assert memory.read_bytes("a.md") == b"\xef\xbb\xbf1\r\nnew\r\ntwo\n"


@pytest.mark.asyncio
async def test_a_search_passes_over_a_file_that_is_too_large_for_one_read(tmp_path: Path) -> None:
    memory = AgentMemory.open(tmp_path)
    memory.write("a.md", "one")
    with (tmp_path / "b.md").open("wb") as file:
        file.truncate(60_000_000)
    assert [each.file_name for each in await AgentMemoryFileStore(memory).search("", "one")] == ["a.md"]
