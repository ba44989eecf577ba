"""The store of the Pydantic AI harness's `Memory`, on every storage; its own store keeps the same contract."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pydantic_ai_harness")

from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelRetry, UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.workspaces import WorkspaceError
from pydantic_ai_harness.filesystem import FileSystem
from pydantic_ai_harness.memory import (
    InMemoryStore,
    Memory,
    MemoryConflictError,
    MemoryFile,
    MemoryMutation,
    MemoryOperation,
    MemoryOperationConflictError,
    MemorySearchResult,
    MemoryStore,
    MetadataMemoryStore,
    SearchableMemoryStore,
)

from agent_memory import AgentMemory, AgentMemoryService, OperationDenied, OutcomeUnknownError
from agent_memory.backend import ANY, ETag, NewOrigin, WriteWhen
from agent_memory.integrations.pydantic_ai import DIRECTORY_FILE, AgentMemoryWorkspace
from agent_memory.integrations.pydantic_ai_memory import AgentMemoryMemoryStore
from agent_memory.key import Key
from agent_memory.testing.recording import RecordingPlugin
from agent_memory_memory import MemoryBackend
from tests.integrations.kit import ADDITIONS, HOSTILE, IDS, PROCESSES, at_once, example_output, race, rounds
from tests.integrations.obedient import BAD_NAMES, obeyed
from tests.support.servers import Root, S3Server

Store: TypeAlias = InMemoryStore | AgentMemoryMemoryStore
EXAMPLE = Path(__file__).parents[2] / "examples" / "integrations" / "pydantic_agent.py"
PATH = "acme/main/notes.md"
ONE, OTHER = MemoryOperation("one", "f"), MemoryOperation("one", "g")
SEARCH: dict[str, int] = {"limit": 10, "max_files": 100, "max_chars": 400, "max_file_chars": 1000}


async def version_of(store: Store, path: str = PATH) -> str | None:
    found = await store.read(path, max_chars=1)
    return found.version if found else None


async def text_of(store: Store, path: str = PATH) -> str | None:
    found = await store.read(path, max_chars=10_000)
    return found.content if found else None


async def rewrite(store: Store, path: str, content: str) -> MemoryMutation:
    return await store.write(path, content, expected_version=await version_of(store, path))


class StoreContract:
    """What a tool of the harness relies on; the tests in `DELETING` delete a file."""

    @pytest.fixture
    def store(self) -> Store:
        raise NotImplementedError

    async def test_a_missing_file_is_none(self, store: Store) -> None:
        assert await store.read(PATH, max_chars=9) is None

    async def test_a_written_file_is_read_back_with_its_version(self, store: Store) -> None:
        written = await store.write(PATH, "één\n", expected_version=None)
        assert written.version is not None
        assert written == MemoryMutation(written.version, replayed=False, existed=False)
        assert await store.read(PATH, max_chars=99) == MemoryFile("één\n", written.version, None, truncated=False)

    async def test_an_empty_file_is_a_file(self, store: Store) -> None:
        written = await store.write(PATH, "", expected_version=None)
        assert await store.read(PATH, max_chars=1) == MemoryFile("", str(written.version), None, truncated=False)

    async def test_a_new_version_replaces_the_expected_one(self, store: Store) -> None:
        first = await store.write(PATH, "one", expected_version=None)
        second = await store.write(PATH, "two", expected_version=first.version)
        assert second == MemoryMutation(second.version, replayed=False, existed=True)
        assert second.version != first.version
        assert await text_of(store) == "two"

    async def test_a_stale_version_is_a_conflict_and_nothing_changes(self, store: Store) -> None:
        first = await store.write(PATH, "one", expected_version=None)
        await store.write(PATH, "two", expected_version=first.version)
        for stale in (first.version, None, "0" * 64, ""):
            with pytest.raises(MemoryConflictError, match=f"'{PATH}' changed before it could be written"):
                await store.write(PATH, "three", expected_version=stale)
            with pytest.raises(MemoryConflictError, match=f"'{PATH}' changed before it could be deleted"):
                await store.delete(PATH, expected_version=stale)
        assert await text_of(store) == "two"

    async def test_a_version_of_a_missing_file_is_a_conflict(self, store: Store) -> None:
        for expected in ("1", "0" * 64, hashlib.sha256(b"").hexdigest()):
            with pytest.raises(MemoryConflictError):
                await store.write(PATH, "x", expected_version=expected)
            with pytest.raises(MemoryConflictError):
                await store.delete(PATH, expected_version=expected)
        assert await store.list_paths(limit=9) == []

    async def test_a_deleted_file_is_gone(self, store: Store) -> None:
        written = await store.write(PATH, "one", expected_version=None)
        deleted = await store.delete(PATH, expected_version=written.version)
        assert deleted == MemoryMutation(None, replayed=False, existed=True)
        assert await store.read(PATH, max_chars=9) is None
        again = await store.write(PATH, "one", expected_version=None)
        assert not again.existed

    async def test_the_deletion_of_a_missing_file_changes_nothing(self, store: Store) -> None:
        assert await store.delete(PATH, expected_version=None) == MemoryMutation(None, replayed=False, existed=False)
        assert await store.list_paths(limit=9) == []

    @pytest.mark.parametrize("most", [1, 3, 4, 5])
    async def test_a_read_is_bounded_in_characters_and_has_the_version_of_the_whole_file(
        self, store: Store, most: int
    ) -> None:
        written = await store.write(PATH, "é👩é.", expected_version=None)
        found = await store.read(PATH, max_chars=most)
        assert found == MemoryFile("é👩é."[:most], str(written.version), None, truncated=most < 4)

    @pytest.mark.parametrize("most", [0, -1])
    async def test_bounds_are_positive(self, store: Store, most: int) -> None:
        with pytest.raises(ValueError, match="max_chars must be positive"):
            await store.read(PATH, max_chars=most)
        with pytest.raises(ValueError, match="limit must be positive"):
            await store.list_paths(limit=most)

    @pytest.mark.parametrize(
        "path",
        ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "a..b", "a b", "é", "a\n", "x" * 201, "a\\b"],
    )
    async def test_a_path_outside_the_rules_of_the_harness_is_a_value_error(self, store: Store, path: str) -> None:
        for call in (
            store.read(path, max_chars=9),
            store.write(path, "x", expected_version=None),
            store.delete(path, expected_version=None),
        ):
            with pytest.raises(ValueError, match="invalid memory path"):
                await call
        assert await store.list_paths(limit=9) == []

    @pytest.mark.parametrize("path", ["x" * 200, "-", "_._", ".x", "A.B-C_d/e", "a/b/c/d"])
    async def test_a_path_within_the_rules_is_a_file(self, store: Store, path: str) -> None:
        await store.write(path, "x", expected_version=None)
        assert await store.list_paths(limit=9) == [path]
        assert await text_of(store, path) == "x"

    # Operations.

    async def test_a_repeated_write_gets_the_first_result_and_is_made_once(self, store: Store) -> None:
        first = await store.write(PATH, "one", expected_version=None, operation=ONE)
        repeated = replace(first, replayed=True)
        await rewrite(store, PATH, "by another")
        assert await store.write(PATH, "one", expected_version=None, operation=ONE) == repeated
        assert await store.write(PATH, "other text", expected_version="stale", operation=ONE) == repeated
        assert await store.get_operation(ONE) == repeated
        assert await text_of(store) == "by another"

    async def test_a_repeated_replacement_says_that_the_file_existed(self, store: Store) -> None:
        await store.write(PATH, "", expected_version=None)
        first = await store.write(PATH, "one", expected_version=await version_of(store), operation=ONE)
        assert (first.existed, first.replayed) == (True, False)
        assert await store.write(PATH, "one", expected_version="x", operation=ONE) == replace(first, replayed=True)

    async def test_a_repeated_deletion_gets_the_first_result(self, store: Store) -> None:
        written = await store.write(PATH, "one", expected_version=None)
        first = await store.delete(PATH, expected_version=written.version, operation=ONE)
        assert first == MemoryMutation(None, replayed=False, existed=True)
        await store.write(PATH, "two", expected_version=None)
        repeated = MemoryMutation(None, replayed=True, existed=True)
        assert await store.delete(PATH, expected_version=None, operation=ONE) == repeated
        assert await store.get_operation(ONE) == repeated
        assert await text_of(store) == "two"

    async def test_a_repeated_deletion_of_a_missing_file_gets_the_first_result(self, store: Store) -> None:
        await store.delete(PATH, expected_version=None, operation=ONE)
        await store.write(PATH, "one", expected_version=None)
        repeated = MemoryMutation(None, replayed=True, existed=False)
        assert await store.delete(PATH, expected_version=None, operation=ONE) == repeated
        assert await store.get_operation(ONE) == repeated
        assert await text_of(store) == "one"

    async def test_an_unknown_operation_is_none(self, store: Store) -> None:
        assert await store.get_operation(ONE) is None

    async def test_an_operation_that_was_refused_can_be_repeated(self, store: Store) -> None:
        with pytest.raises(MemoryConflictError):
            await store.write(PATH, "one", expected_version="stale", operation=ONE)
        assert await store.get_operation(ONE) is None
        written = await store.write(PATH, "one", expected_version=None, operation=ONE)
        assert (written.replayed, written.existed) == (False, False)

    async def test_an_id_with_another_fingerprint_is_an_operation_conflict(self, store: Store) -> None:
        await store.write(PATH, "one", expected_version=None, operation=ONE)
        version = await version_of(store)
        for call in (
            store.get_operation(OTHER),
            store.write(PATH, "two", expected_version=version, operation=OTHER),
            store.delete(PATH, expected_version=version, operation=OTHER),
        ):
            with pytest.raises(MemoryOperationConflictError, match="operation id 'one' was reused"):
                await call
        assert await text_of(store) == "one"

    @pytest.mark.parametrize(
        "name",
        ["", "x" * 128, "x" * 129, "x" * 100_000, "\ud800", "\0", "é", "../../x"],
        ids=["empty", "128", "129", "long", "surrogate", "NUL", "é", "path"],
    )
    async def test_an_operation_may_have_any_id_and_fingerprint(self, store: Store, name: str) -> None:
        operation, longer = MemoryOperation(name, name), MemoryOperation(f"{name}y", name)
        await store.write(PATH, "one", expected_version=None, operation=operation)
        assert await store.get_operation(operation) is not None
        assert await store.get_operation(longer) is None
        with pytest.raises(MemoryOperationConflictError):
            await store.get_operation(MemoryOperation(name, f"{name}y"))

    # Listing and search.

    async def test_paths_are_listed_in_order_by_a_prefix_of_their_text(self, store: Store) -> None:
        paths = ["a/b/c.md", "a/b.md", "a/bc.md", "a/c.md", "ab/x.md", "b.md", "B.md", "a-b.md"]
        for path in paths:
            await store.write(path, path, expected_version=None)
        assert await store.list_paths(limit=99) == sorted(paths)
        assert await store.list_paths("a/", limit=99) == ["a/b.md", "a/b/c.md", "a/bc.md", "a/c.md"]
        assert await store.list_paths("a/b", limit=99) == ["a/b.md", "a/b/c.md", "a/bc.md"]
        assert await store.list_paths("a/b/", limit=99) == ["a/b/c.md"]
        assert await store.list_paths("a", limit=2) == sorted(path for path in paths if path[0] == "a")[:2]
        assert await store.list_paths("a/b.md", limit=99) == ["a/b.md"]
        assert await store.list_paths("none", limit=99) == []

    @pytest.mark.parametrize("prefix", ["/", "/a", "a//", "..", "a/../", ".", "é", "x" * 201])
    async def test_a_prefix_outside_the_rules_is_a_value_error(self, store: Store, prefix: str) -> None:
        with pytest.raises(ValueError, match="invalid memory path"):
            await store.list_paths(prefix, limit=9)
        for query in ("x", " "):
            with pytest.raises(ValueError, match="invalid memory path"):
                await store.search(prefix, query, **SEARCH)

    async def test_a_search_scores_names_and_texts_of_the_files_directly_below_a_prefix(self, store: Store) -> None:
        for path, text in (
            ("a/tea.md", "Green TEA and black tea"),
            ("a/plan.md", "buy tea"),
            ("a/none.md", "coffee"),
            ("a/deep/tea.md", "tea"),
            ("b/tea.md", "tea"),
        ):
            await store.write(path, text, expected_version=None)
        found = await store.search("a/", "tea", **SEARCH)
        assert [(match.path, match.score) for match in found.matches] == [("a/tea.md", 4.0), ("a/plan.md", 1.0)]
        assert (found.scanned, found.truncated) == (3, False)
        assert found.matches[1].snippet == "buy tea"

    @pytest.mark.parametrize("changed", [{"limit": 1}, {"max_files": 1}, {"max_chars": 9}, {"max_file_chars": 3}])
    async def test_each_bound_of_a_search_is_told(self, store: Store, changed: dict[str, int]) -> None:
        for path in ("a/one.md", "a/two.md"):
            await store.write(path, "tea " * 9, expected_version=None)
        found = await store.search("a/", "tea", **{**SEARCH, **changed})
        assert found.truncated
        assert sum(len(match.snippet) for match in found.matches) <= changed.get("max_chars", 400)
        assert not (await store.search("a/", "tea", **SEARCH)).truncated

    @pytest.mark.parametrize("name", ["limit", "max_files", "max_chars", "max_file_chars"])
    async def test_a_search_without_words_or_room_finds_nothing(self, store: Store, name: str) -> None:
        await store.write("a/one.md", "tea", expected_version=None)
        nothing = MemorySearchResult(matches=[], scanned=0, truncated=False)
        assert await store.search("a/", " \n", **SEARCH) == nothing
        for bound in (0, -1):
            assert await store.search("a/", "tea", **{**SEARCH, name: bound}) == nothing


DELETING: Final = frozenset({"test_a_deleted_file_is_gone", "test_a_repeated_deletion_gets_the_first_result"})
"""The tests that delete a file, which an engine without conditional deletes refuses."""


def has_no_deletes(request: pytest.FixtureRequest) -> bool:
    place = request.getfixturevalue("place")
    return bool(place.options.get("engine") == "obstore")


@pytest.mark.asyncio
class TestTheStoreOfTheHarness(StoreContract):
    """The reference: what is tested here is true of the harness's own store."""

    @pytest.fixture
    def store(self) -> Store:
        return InMemoryStore()


@pytest.mark.asyncio
class TestContract(StoreContract):
    @pytest.fixture
    def store(self, memory: AgentMemory) -> Store:
        return AgentMemoryMemoryStore(memory)

    @pytest.fixture(autouse=True)
    def _deletions_are_refused_by_obstore(self, request: pytest.FixtureRequest) -> None:
        if request.node.originalname in DELETING and has_no_deletes(request):
            reason = "obstore has no conditional delete"
            request.applymarker(pytest.mark.xfail(raises=WorkspaceError, strict=True, reason=reason))


@pytest.mark.asyncio
async def test_without_conditional_deletes_a_deletion_is_a_workspace_error_and_can_be_repeated(
    memory: AgentMemory, request: pytest.FixtureRequest
) -> None:
    if not has_no_deletes(request):
        pytest.skip("this storage deletes")
    store = AgentMemoryMemoryStore(memory)
    version = (await store.write(PATH, "one", expected_version=None)).version
    for _ in range(2):
        with pytest.raises(WorkspaceError):
            await store.delete(PATH, expected_version=version, operation=ONE)
        assert await store.get_operation(ONE) is None
    assert await text_of(store) == "one"
    assert await store.delete("acme/main/none.md", expected_version=None) == MemoryMutation(None, False, False)


# The same calls on the store of the harness and on ours.

PATHS = ["a/x.md", "a/y.md", "a/deep/tea.md", "ab/x.md", "tea.md"]
WORDS = ["tea", "Tea coffee", "x", "green tea and\nblack tea", "", "é tea " * 9]
PREFIXES = ["", "a/", "a", "a/deep", "b", "ab/x.md", "tea"]
CALLS = st.one_of(
    st.tuples(
        st.sampled_from(["write", "delete"]),
        st.sampled_from(PATHS),
        st.sampled_from(WORDS),
        st.sampled_from(["current", "current", "stale", "none"]),
        st.none() | st.tuples(st.sampled_from("ij"), st.sampled_from("fg")),
    ),
    st.tuples(st.just("read"), st.sampled_from(PATHS), st.integers(1, 40)),
    st.tuples(st.just("get_operation"), st.sampled_from("ij"), st.sampled_from("fg")),
    st.tuples(st.just("list_paths"), st.sampled_from(PREFIXES), st.integers(0, 4)),
    st.tuples(
        st.just("search"),
        st.sampled_from(PREFIXES),
        st.sampled_from(["tea", "TEA x", "md", " ", "nothing"]),
        st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 60), st.integers(0, 30)),
    ),
)


class Session:
    """Calls of one store; answers without versions, which differ from store to store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.number = 0

    async def answer(self, call: Sequence[Any]) -> object:
        try:
            return await getattr(self, call[0])(*call[1:])
        except (ValueError, MemoryConflictError, MemoryOperationConflictError) as error:
            return type(error), str(error)

    async def write(self, path: str, words: str, expected: str, given: tuple[str, str] | None) -> object:
        self.number += 1  # so that no content comes twice: there the two kinds of versions differ
        content = f"{words} {self.number}"
        return await self._changed("write", path, expected, given, (path, content))

    async def delete(self, path: str, _: str, expected: str, given: tuple[str, str] | None) -> object:
        return await self._changed("delete", path, expected, given, (path,))

    async def _changed(
        self, kind: str, path: str, expected: str, given: tuple[str, str] | None, arguments: tuple[str, ...]
    ) -> object:
        version = {"current": await version_of(self.store, path), "stale": "stale", "none": None}[expected]
        operation = MemoryOperation(given[0], f"{kind} {path} {given[1]}") if given else None
        change: Callable[..., Any] = getattr(self.store, kind)
        made: MemoryMutation = await change(*arguments, expected_version=version, operation=operation)
        if not made.replayed:
            assert made.version == await version_of(self.store, path)
        return made.version is None, made.replayed, made.existed

    async def read(self, path: str, most: int) -> object:
        found = await self.store.read(path, max_chars=most)
        return found and (found.content, found.truncated)

    async def get_operation(self, name: str, fingerprint: str) -> object:
        found = await self.store.get_operation(MemoryOperation(name, f"write a/x.md {fingerprint}"))
        return found and (found.version is None, found.replayed, found.existed)

    async def list_paths(self, prefix: str, limit: int) -> object:
        return await self.store.list_paths(prefix, limit=limit)

    async def search(self, prefix: str, query: str, bounds: tuple[int, ...]) -> object:
        return await self.store.search(prefix, query, **dict(zip(SEARCH, bounds, strict=True)))


@given(calls=st.lists(CALLS, max_size=30))
@settings(max_examples=50)
def test_both_stores_answer_the_same_calls_alike(calls: list[Sequence[Any]]) -> None:
    async def compare() -> None:
        reference = Session(InMemoryStore())
        ours = Session(AgentMemoryMemoryStore(AgentMemory.open("memory://")))
        for call in calls:
            assert await ours.answer(call) == await reference.answer(call), call

    asyncio.run(compare())


# What is special here.


@pytest.mark.asyncio
async def test_a_file_of_the_store_is_the_file_of_the_memory_with_the_same_path(memory: AgentMemory) -> None:
    store = AgentMemoryMemoryStore(memory)
    written = await store.write(PATH, "één", expected_version=None)
    assert memory.read(PATH) == "één"
    assert written.version == hashlib.sha256("één".encode()).hexdigest()
    memory.append(PATH, "\nby another tool")
    with pytest.raises(MemoryConflictError):
        await store.write(PATH, "two", expected_version=written.version)
    assert await text_of(store) == "één\nby another tool"


@pytest.mark.asyncio
async def test_a_version_is_that_of_the_text_so_equal_texts_have_one_version() -> None:
    store = AgentMemoryMemoryStore(AgentMemory.open("memory://"))
    first = await store.write(PATH, "one", expected_version=None)
    again = await store.write(PATH, "one", expected_version=first.version)
    assert again == replace(first, existed=True)


def test_the_store_has_the_optional_protocol_of_search_and_not_that_of_metadata() -> None:
    memory = AgentMemory.open("memory://")
    store = AgentMemoryMemoryStore(memory)
    assert isinstance(store, MemoryStore)
    assert isinstance(store, SearchableMemoryStore)
    assert not isinstance(store, MetadataMemoryStore)
    with pytest.raises(UserError, match="write_metadata"):
        Memory(store=store, write_metadata={"by": "ann"})
    for other in (None, "memory://", store):
        with pytest.raises(TypeError, match="takes an AgentMemory"):
            AgentMemoryMemoryStore(other)  # type: ignore[arg-type]


@pytest.mark.asyncio
async def test_arguments_of_another_type_are_type_errors() -> None:
    store: Any = AgentMemoryMemoryStore(AgentMemory.open("memory://"))
    for call in (
        store.read(7, max_chars=9),
        store.write(None, "x", expected_version=None),
        store.write(PATH, None, expected_version=None),
        store.write(PATH, b"x", expected_version=None),
        store.delete(b"a", expected_version=None),
        store.list_paths(7, limit=9),
    ):
        with pytest.raises(TypeError, match="must be a str"):
            await call
    with pytest.raises(ValueError, match="not valid Unicode"):
        await store.write(PATH, "\ud800", expected_version=None)
    assert await store.list_paths(limit=9) == []


@pytest.mark.parametrize(
    "name", ["con.md", "a/nul", "COM1.txt", "a.", "b/a./c", ".agent-memory/x", "x.agent-memory-tmp"]
)
@pytest.mark.asyncio
async def test_a_path_that_the_memory_refuses_asks_the_model_for_another(name: str, memory: AgentMemory) -> None:
    store = AgentMemoryMemoryStore(memory)
    for call in (
        store.read(name, max_chars=9),
        store.write(name, "x", expected_version=None, operation=ONE),
        store.delete(name, expected_version=None),
    ):
        with pytest.raises(ModelRetry, match=r"use (the name |a different name|'[^']+'$)") as raised:
            await call
        assert isinstance(raised.value, ValueError)
    assert await store.get_operation(ONE) is None
    assert await store.list_paths(name.rpartition("/")[0], limit=9) == []
    assert memory.list() == ()


@pytest.mark.parametrize("name", ["con.md", "nul.txt", "COM1.txt", "a.", "x.agent-memory-tmp"])
@pytest.mark.asyncio
async def test_a_model_that_follows_the_advice_writes_a_file(name: str, memory: AgentMemory) -> None:
    store = AgentMemoryMemoryStore(memory)
    with pytest.raises(ModelRetry) as raised:
        await store.write(f"acme/main/{name}", "kept", expected_version=None)
    assert "acme" not in str(raised.value), "the namespace"
    await store.write(obeyed(f"acme/main/{name}", str(raised.value)), "kept", expected_version=None)
    assert [memory.read(entry.path) for entry in memory.list()] == ["kept"]


@pytest.mark.asyncio
async def test_a_name_below_a_file_or_of_a_directory_asks_the_model_for_another(memory: AgentMemory) -> None:
    store = AgentMemoryMemoryStore(memory)
    await store.write("a/b.md", "x", expected_version=None)
    for name in ("a", "a/b.md/c.md"):
        with pytest.raises(ModelRetry, match=r"use (the name |a different name|'[^']+'$)"):
            await store.write(name, "x", expected_version=None)
        assert await store.read(name, max_chars=9) is None
        assert not (await store.delete(name, expected_version=None)).existed
    assert await store.list_paths(limit=9) == ["a/b.md"]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.asyncio
async def test_a_hostile_path_is_a_file_or_is_refused(name: str, memory: AgentMemory) -> None:
    memory.write("outside.md", "x")
    store = AgentMemoryMemoryStore(memory.subtree("in"))
    try:
        await store.write(name, "content", expected_version=None)
    except ValueError:
        with pytest.raises(ValueError, match=r"invalid memory path|use "):
            await store.read(name, max_chars=99)
        assert [entry.path for entry in memory.list()] == ["outside.md"]
    else:
        assert await text_of(store, name) == "content"
        assert await store.list_paths(limit=9) == [name]
        assert [entry.path for entry in memory.list()] == [f"in/{name}", "outside.md"]


@given(one=IDS, two=IDS)
@settings(max_examples=50)
def test_two_paths_never_share_a_file_and_two_ids_never_an_operation(one: str, two: str) -> None:
    async def share() -> None:
        store = AgentMemoryMemoryStore(AgentMemory.open("memory://"))
        written = {}
        for number, name in enumerate(dict.fromkeys((one, two))):
            operation = MemoryOperation(name, name)
            assert await store.get_operation(operation) is None
            await store.write(f"op/{number}.md", "x", expected_version=None, operation=operation)
            try:
                await store.write(name, f"{number}", expected_version=None)
            except ValueError:
                continue
            written[name] = f"{number}"
        assert {name: await text_of(store, name) for name in written} == written

    asyncio.run(share())


@pytest.mark.asyncio
async def test_files_of_other_programs_are_left_out_of_listings_and_searches(memory: AgentMemory) -> None:
    store = AgentMemoryMemoryStore(memory)
    await store.write("a/tea.md", "tea", expected_version=None)
    await AgentMemoryWorkspace(memory).make_dir("/a/memory")
    await AgentMemoryWorkspace(memory).make_dir("/a")
    memory.write("a/été tea.md", "tea")
    memory.write("a/tea..md", "tea")
    assert await store.list_paths("a/", limit=9) == ["a/tea.md"]
    for query in ("tea", "memory"):
        found = await store.search("a/", query, **SEARCH)
        assert [match.path for match in found.matches] == (["a/tea.md"] if query == "tea" else [])
        assert (found.scanned, found.truncated) == (1, False)
    with pytest.raises(ValueError, match="invalid memory path"):
        await store.write(f"a/{DIRECTORY_FILE}", "x", expected_version=None)


@pytest.mark.asyncio
async def test_a_file_that_is_no_text_is_an_error_of_a_read_and_does_not_stop_a_search(memory: AgentMemory) -> None:
    store = AgentMemoryMemoryStore(memory)
    await store.write("a/tea.md", "tea", expected_version=None)
    memory.write("a/photo.jpg", b"\xff\xd8 tea")
    with pytest.raises(OSError, match="not UTF-8"):
        await store.read("a/photo.jpg", max_chars=9)
    with pytest.raises(OSError, match="not UTF-8"):
        await store.write("a/photo.jpg", "x", expected_version=None)
    found = await store.search("a/", "tea", **SEARCH)
    assert [match.path for match in found.matches] == ["a/tea.md", "a/photo.jpg"]


@pytest.mark.asyncio
async def test_all_stores_of_an_agent_share_the_ids_of_operations_and_other_agents_do_not() -> None:
    service = AgentMemoryService("memory://")
    one = AgentMemoryMemoryStore(service.agent("ann").subtree("one"))
    two = AgentMemoryMemoryStore(service.agent("ann").subtree("two"))
    bob = AgentMemoryMemoryStore(service.agent("bob").subtree("one"))
    await one.write(PATH, "x", expected_version=None, operation=ONE)
    for call in (two.get_operation(ONE), two.write(PATH, "x", expected_version=None, operation=ONE)):
        with pytest.raises(MemoryOperationConflictError):
            await call
    assert await bob.get_operation(ONE) is None
    assert service.agent("ann").subtree("two").list() == ()


@pytest.mark.asyncio
async def test_an_operation_for_another_path_is_an_operation_conflict() -> None:
    store = AgentMemoryMemoryStore(AgentMemory.open("memory://"))
    await store.write(PATH, "x", expected_version=None, operation=ONE)
    with pytest.raises(MemoryOperationConflictError):
        await store.write("other.md", "x", expected_version=None, operation=ONE)
    assert await store.list_paths(limit=9) == [PATH]


class Unanswered(MemoryBackend):
    """A backend that loses the answer to the first write of a file."""

    is_lost = True

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        etag = super().write(key, data, when, origin)
        if self.is_lost and not key.base.startswith(".agent-memory"):
            self.is_lost = False
            raise OutcomeUnknownError("no answer")
        return etag


@pytest.mark.asyncio
async def test_an_operation_that_did_not_tell_its_end_is_never_made_again() -> None:
    memory = AgentMemory.open(Unanswered()).with_timeout(0.2)
    store = AgentMemoryMemoryStore(memory)
    with pytest.raises(OutcomeUnknownError, match="no answer"):
        await store.write(PATH, "one", expected_version=None, operation=ONE)
    assert await store.get_operation(ONE) is None
    memory.write(PATH, "by another")
    with pytest.raises(OutcomeUnknownError, match="may or may not"):
        await store.write(PATH, "two", expected_version=await version_of(store), operation=ONE)
    assert await text_of(store) == "by another"


# Hooks and permissions.


@pytest.mark.asyncio
async def test_a_read_only_memory_refuses_changes_and_nothing_changes(memory: AgentMemory) -> None:
    version = (await AgentMemoryMemoryStore(memory).write(PATH, "one", expected_version=None)).version
    store = AgentMemoryMemoryStore(memory.read_only())
    for change in (
        store.write(PATH, "two", expected_version=version, operation=ONE),
        store.delete(PATH, expected_version=version),
    ):
        with pytest.raises(OperationDenied, match="read-only"):
            await change
    assert await store.get_operation(ONE) is None
    assert await text_of(store) == "one"


@pytest.mark.asyncio
async def test_plugins_see_each_call_as_one_operation_and_a_repeated_one_as_replayed() -> None:
    recorder = RecordingPlugin()
    store = AgentMemoryMemoryStore(AgentMemory.open("memory://", plugins=[recorder]).acting_as("ann"))
    for _ in range(2):
        await store.write(PATH, "one", expected_version=None, operation=ONE)
    await store.read(PATH, max_chars=9)
    seen = [(each.kind, each.actor, outcome.status, outcome.replayed) for each, outcome in recorder.after]
    assert seen == [
        ("edit", "ann", "ok", False),
        ("edit", "ann", "ok", True),
        ("stat", "ann", "ok", False),  # the result of the first call
        ("read", "ann", "ok", False),
    ]


# Several writers.


async def append_line(store: AgentMemoryMemoryStore, path: str, line: str, operation: MemoryOperation) -> None:
    """Append a line as the harness's tool does, but with any number of attempts."""
    while True:
        found = await store.read(path, max_chars=1_000_000)
        text = f"{found.content if found else ''}{line}\n"
        try:
            await store.write(path, text, expected_version=found.version if found else None, operation=operation)
        except MemoryConflictError:
            continue
        return


def add(memory: AgentMemory, process: int, number: int) -> None:
    async def write() -> None:
        store = AgentMemoryMemoryStore(memory)
        operation = MemoryOperation(f"{process}-{number}", "f")
        await store.write(f"log/{process}-{number}.md", f"{number}", expected_version=None, operation=operation)
        for _ in range(2):  # the second call is a repeated one
            await append_line(store, "all.md", f"{process}-{number}", MemoryOperation(f"all {process}-{number}", "f"))

    asyncio.run(write())


@rounds(5, 1)
def test_race_of_processes_loses_no_file_and_no_line_and_adds_none_twice(shared_place: Root) -> None:
    race(shared_place, add)
    expected = {f"{process}-{number}" for process in range(PROCESSES) for number in range(ADDITIONS)}
    with AgentMemory.open(shared_place.url, storage_options=shared_place.options) as memory:
        assert {entry.key.name for entry in memory.list("log")} == {f"{each}.md" for each in expected}
        lines = memory.read("all.md").splitlines()
        assert len(lines) == len(expected)
        assert set(lines) == expected


def write_once(memory: AgentMemory) -> MemoryMutation:
    store = AgentMemoryMemoryStore(memory)
    return asyncio.run(store.write(PATH, "once", expected_version=None, operation=ONE))


def delete_once(memory: AgentMemory) -> MemoryMutation:
    store = AgentMemoryMemoryStore(memory)
    version = hashlib.sha256(b"once").hexdigest()
    return asyncio.run(store.delete(PATH, expected_version=version, operation=MemoryOperation("two", "f")))


def ask(memory: AgentMemory) -> MemoryMutation | None:
    return asyncio.run(AgentMemoryMemoryStore(memory).get_operation(ONE))


@rounds(5, 1)
def test_at_once_two_processes_make_one_operation_and_get_one_answer(shared_place: Root) -> None:
    answers: list[MemoryMutation] = at_once(shared_place, write_once)
    assert sorted(answer.replayed for answer in answers) == [False, True]
    version = hashlib.sha256(b"once").hexdigest()
    assert {replace(answer, replayed=True) for answer in answers} == {MemoryMutation(version, True, False)}
    assert at_once(shared_place, ask) == [MemoryMutation(version, True, False)] * 2
    if shared_place.options.get("engine") == "obstore":
        return
    deletions: list[MemoryMutation] = at_once(shared_place, delete_once)
    assert sorted(answer.replayed for answer in deletions) == [False, True]
    assert {replace(answer, replayed=True) for answer in deletions} == {MemoryMutation(None, True, True)}


@pytest.mark.asyncio
async def test_of_tasks_at_once_with_one_operation_one_is_made(memory: AgentMemory) -> None:
    store = AgentMemoryMemoryStore(memory)
    calls = [store.write(PATH, "once", expected_version=None, operation=ONE) for _ in range(4)]
    answers = await asyncio.gather(*calls)
    assert sorted(answer.replayed for answer in answers) == [False, True, True, True]
    assert await text_of(store) == "once"


@pytest.mark.asyncio
async def test_of_tasks_at_once_with_one_version_one_wins(memory: AgentMemory) -> None:
    store = AgentMemoryMemoryStore(memory)
    calls = [store.write(PATH, f"{number}", expected_version=None) for number in range(4)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert sorted(isinstance(answer, MemoryConflictError) for answer in answers) == [False, True, True, True]


# Agents with the harness's memory and with its file tools.


def scripted(calls: Sequence[tuple[str, dict[str, Any]]], answers: list[str]) -> FunctionModel:
    """A model that makes one tool call after the other and ends with "done"; the list gets the answers of the tools."""
    todo = iter(calls)

    def respond(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        parts = (part for message in messages for part in message.parts)
        answers[:] = [str(part.content) for part in parts if isinstance(part, ToolReturnPart | RetryPromptPart)]
        call = next(todo, None)
        return ModelResponse(parts=[TextPart("done") if call is None else ToolCallPart(*call)])

    return FunctionModel(respond)


SESSION: Sequence[tuple[str, dict[str, Any]]] = [
    ("write_memory", {"content": "- ann likes tea"}),
    ("write_memory", {"content": "- ann walks at 12:30"}),
    ("write_memory", {"content": "- ann likes coffee", "old_text": "- ann likes tea"}),
    ("write_memory", {"content": "a long plan", "file": "plan.md"}),
    ("search_memory", {"query": "coffee plan"}),
    ("read_memory", {"file": "plan.md"}),
    ("write_memory", {"content": "x", "file": "con.md"}),
    ("read_memory", {"file": "none.md"}),
]


def memory_of(store: MemoryStore) -> Memory[object]:
    return Memory(store=store, namespace="acme")


@pytest.mark.asyncio
async def test_an_agent_with_the_memory_of_the_harness_completes_a_session_and_remembers(memory: AgentMemory) -> None:
    store = AgentMemoryMemoryStore(memory.subtree("notebook"))
    answers: list[str] = []
    agent = Agent(scripted(SESSION, answers), capabilities=[memory_of(store)], retries=9)
    assert (await agent.run("go")).output == "done"
    first, second, third, fourth, found, read, refused, missing = answers
    for answer, status in ((first, "created"), (second, "appended"), (third, "updated"), (fourth, "created")):
        assert f"'status': '{status}'" in answer
    for name in ("MEMORY.md", "plan.md"):
        assert f"'file': '{name}'" in found
    assert read == "a long plan\n"
    assert "use '_con.md'" in refused
    assert "acme" not in refused
    assert "none.md" in missing
    assert memory.read("notebook/acme/main/MEMORY.md") == "- ann likes coffee\n- ann walks at 12:30\n"
    assert memory.read("notebook/acme/main/plan.md") == "a long plan\n"

    shown = ""

    def look(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        nonlocal shown
        prompts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
        shown = "".join(str(part.content) for part in prompts if isinstance(part, UserPromptPart))
        return ModelResponse(parts=[TextPart("done")])

    await Agent(FunctionModel(look), capabilities=[memory_of(store)]).run("what do you know of ann?")
    assert "- ann likes coffee" in shown
    assert "plan.md" in shown


@pytest.mark.asyncio
async def test_an_agent_deletes_a_file_or_is_told_that_the_storage_cannot(
    memory: AgentMemory, request: pytest.FixtureRequest
) -> None:
    store = AgentMemoryMemoryStore(memory)
    await store.write("acme/main/plan.md", "x", expected_version=None)
    answers: list[str] = []
    calls: Sequence[tuple[str, dict[str, Any]]] = [
        ("delete_memory", {"file": "plan.md"}),
        ("delete_memory", {"file": "none.md"}),
    ]
    agent = Agent(scripted(calls, answers), capabilities=[memory_of(store)])
    assert (await agent.run("go")).output == "done"
    deleted, missing = answers
    assert "'status': 'not_found'" in missing
    if has_no_deletes(request):
        assert deleted == "Could not update memory file 'plan.md'."
    else:
        assert "'status': 'deleted'" in deleted
    assert memory.exists("acme/main/plan.md") == has_no_deletes(request)


def test_each_run_may_have_its_own_event_loop() -> None:
    memory = AgentMemory.open("memory://")
    for fact in ("- ann likes tea", "- ann walks at 12:30"):
        model = scripted([("write_memory", {"content": fact})], [])
        agent = Agent(model, capabilities=[memory_of(AgentMemoryMemoryStore(memory))])
        asyncio.run(agent.run("go"))
    assert memory.read("acme/main/MEMORY.md") == "- ann likes tea\n- ann walks at 12:30\n"


@pytest.mark.asyncio
async def test_a_file_is_read_with_unix_ends_and_keeps_its_own_ends_and_its_mark() -> None:
    with AgentMemory.open(MemoryBackend()) as memory:
        store = AgentMemoryMemoryStore(memory)
        memory.write(PATH, b"\xef\xbb\xbfone\r\ntwo\n")
        assert await text_of(store) == "one\ntwo\n"
        await rewrite(store, PATH, "1\nnew\ntwo\n")
        assert memory.read_bytes(PATH) == b"\xef\xbb\xbf1\r\nnew\r\ntwo\n"


FILE_SESSION: Sequence[tuple[str, dict[str, Any]]] = [
    ("create_directory", {"path": "notes"}),
    ("write_file", {"path": "notes/plan.md", "content": "one\ntwo\n"}),
    ("edit_file", {"path": "notes/plan.md", "old_text": "two", "new_text": "zwei"}),
    ("read_file", {"path": "/notes/plan.md"}),
    ("list_directory", {"path": "."}),
    ("find_files", {"pattern": "**/*.md"}),
    ("search_files", {"pattern": "zwei"}),
    ("file_info", {"path": "notes"}),
    ("read_file", {"path": "notes/none.md"}),
    ("write_file", {"path": "notes/a:b.md", "content": "x"}),
    ("write_file", {"path": "../../etc/passwd", "content": "x"}),
]


@pytest.mark.asyncio
async def test_an_agent_with_the_file_tools_completes_a_session(memory: AgentMemory) -> None:
    answers: list[str] = []
    agent = Agent(scripted(FILE_SESSION, answers), capabilities=[FileSystem(max_retries=9)])
    result = await agent.run("go", workspace=AgentMemoryWorkspace(memory.subtree("files")))
    assert result.output == "done"
    assert len(answers) == len(FILE_SESSION)
    assert [entry.path for entry in memory.list()] == [f"files/notes/{DIRECTORY_FILE}", "files/notes/plan.md"]
    assert memory.read("files/notes/plan.md") == "one\nzwei\n"
    created, written, edited, read, listed, found, searched, info, missing, refused, escaped = answers
    assert created == "Created directory: notes"
    assert "Wrote 8 chars" in written
    assert "Edited notes/plan.md" in edited
    assert "zwei" in read
    assert "notes" in listed
    assert "notes/plan.md" in found
    assert DIRECTORY_FILE not in listed + found + searched
    assert "notes/plan.md" in searched
    assert "directory" in info
    assert "none.md" in missing
    assert "must not contain any of" in refused
    assert "'etc' does not exist" in escaped  # ``..`` above the working directory is the working directory


@pytest.mark.parametrize("tool", ["write_file", "create_directory"])
@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.asyncio
async def test_a_model_that_follows_the_advice_writes_with_it(memory: AgentMemory, name: str, tool: str) -> None:
    answers: list[str] = []
    path = f"notes/{name}"

    def respond(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        nonlocal path
        parts = (part for message in messages for part in message.parts)
        answers[:] = [str(part.content) for part in parts if isinstance(part, ToolReturnPart | RetryPromptPart)]
        said = answers[-1] if answers else ""
        if missing := re.search(r"Parent directory '(.*)' does not exist", said):
            return ModelResponse(parts=[ToolCallPart("create_directory", {"path": missing[1]})])
        path = obeyed(path, said)
        if tool == "create_directory":
            call = ToolCallPart(tool, {"path": path})
        else:
            call = ToolCallPart(tool, {"path": path, "content": "kept"})
        is_done = said.startswith("Wrote") or said == f"Created directory: {path}"
        return ModelResponse(parts=[TextPart("done") if is_done else call])

    agent = Agent(FunctionModel(respond), capabilities=[FileSystem(max_retries=3)])
    await agent.run("go", workspace=AgentMemoryWorkspace(memory.subtree("users/ann")))
    assert "users" not in answers[0]
    assert all(each.startswith("users/ann/notes/") for each in [entry.path for entry in memory.list()])
    assert tool == "create_directory" or memory.read(f"users/ann/{path}") == "kept"


@pytest.mark.asyncio
async def test_an_agent_without_a_workspace_is_refused_and_one_with_it_names_it_in_its_history() -> None:
    memory = AgentMemory.open("memory://")
    agent = Agent(TestModel(call_tools=["create_directory"]), capabilities=[FileSystem()])
    with pytest.raises(UserError, match="needs a workspace"):
        await agent.run("go")
    workspace = AgentMemoryWorkspace(memory, name="of ann")
    first = await agent.run("go", workspace=workspace)
    second = await agent.run("again", workspace=workspace, message_history=first.all_messages())
    response = second.all_messages()[-1]
    assert isinstance(response, ModelResponse)
    assert response.workspace_ref == workspace.ref
    assert [path.rpartition("/")[2] for path in [entry.path for entry in memory.list()]] == [DIRECTORY_FILE]


@pytest.mark.asyncio
async def test_a_read_only_memory_is_told_to_the_model_and_the_run_continues() -> None:
    memory = AgentMemory.open("memory://")
    answers: list[str] = []
    calls: Sequence[tuple[str, dict[str, Any]]] = [("write_file", {"path": "a.md", "content": "x"})]
    agent = Agent(scripted(calls, answers), capabilities=[FileSystem(max_retries=3)])
    result = await agent.run("go", workspace=AgentMemoryWorkspace(memory.read_only()))
    assert result.output == "done"
    assert len(answers) == 1
    assert "read-only" in answers[0]
    assert memory.list() == ()


# The example.


def run_example(root: str, **environment: str) -> str:
    return example_output(EXAMPLE, root, environment)


def test_the_example_remembers_on_disk(tmp_path: Path) -> None:
    root = str(tmp_path / "memories")
    assert "I knew nothing yet." in run_example(root)
    assert "I remember that ann likes tea." in run_example(root)
    assert (
        "ann likes tea"
        in (tmp_path / "memories" / "agent_memory" / "ann" / "notebook" / "main" / "MEMORY.md").read_text()
    )


@pytest.mark.long
def test_the_example_remembers_on_s3(ministack: S3Server) -> None:
    root = ministack.new_url()
    assert "I knew nothing yet." in run_example(root, **ministack.environment)
    assert "I remember that ann likes tea." in run_example(root, **ministack.environment)
