"""LangGraph's store contract; there is no published suite, so the framework's own `InMemoryStore` is the reference."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch
from uuid import UUID

import pytest

pytest.importorskip("langgraph.store.base")

from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.store import base
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchItem,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from agent_memory import AgentMemory, AsyncAgentMemory, InvalidContentError, OperationDenied, ReadError
from agent_memory.integrations.langgraph import AgentMemoryStore
from agent_memory.testing import RecordingPlugin
from tests.integrations.kit import ADDITIONS, HOSTILE, IDS, PROCESSES, age, example_output, race, rounds
from tests.support.servers import Root, S3Server

EXAMPLE = Path(__file__).parents[2] / "examples" / "integrations" / "langgraph_store.py"
USERS = ("users",)
T = TypeVar("T")
MANY = 1000
"""A limit above the number of items."""


class Calls:
    """The calls of a store, by its sync or by its async methods."""

    def __init__(self, store: BaseStore, kind: str) -> None:
        self.store = store
        self._is_async = kind == "async"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.store, f"a{name}" if self._is_async else name)
        return (lambda *args, **options: asyncio.run(method(*args, **options))) if self._is_async else method

    def shown(self, *prefix: str, limit: int = MANY, **options: Any) -> list[tuple[tuple[str, ...], str, object]]:
        """What a search finds, sorted, without times."""
        return sorted((item.namespace, item.key, item.value) for item in self.search(prefix, limit=limit, **options))


@pytest.fixture(params=["sync", "async"])
def store(request: pytest.FixtureRequest, memory: AgentMemory) -> Calls:
    return Calls(AgentMemoryStore(memory), request.param)


@pytest.fixture
def opened() -> Iterator[AgentMemory]:
    with AgentMemory.open("memory://") as memory:
        yield memory


def raised(call: Callable[..., object], *args: object, **options: object) -> tuple[type[BaseException], str]:
    try:
        call(*args, **options)
    except Exception as error:  # noqa: BLE001 - compared with the framework's
        return type(error), str(error)
    pytest.fail("nothing was raised")


# The same calls to this store and to the framework's own

Scenario = Callable[[Calls], object]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def shown(item: Item | None) -> tuple[object, ...] | None:
    return (type(item), item.namespace, item.key, item.value, item.created_at.tzinfo) if item else None


@scenario
def a_put_item_is_got(store: Calls) -> object:
    value = {"text": "ünïcode 🧠\n", "n": [1, 2.5, None, True, {"a": []}], "": {}, "$x": 1}
    store.put(("users", "ann"), "likes", value)
    store.put(("users", "ann"), "empty", {})
    return [shown(store.get(("users", "ann"), key)) for key in ("likes", "empty", "gone")]


@scenario
def a_second_put_replaces_the_value(store: Calls) -> object:
    store.put(USERS, "k", {"a": 1, "b": 2})
    store.put(USERS, "k", {"a": 3})
    return shown(store.get(USERS, "k")), store.shown()


@scenario
def a_delete_removes_one_item(store: Calls) -> object:
    for key in ("a", "b"):
        store.put(USERS, key, {})
    store.delete(USERS, "a")
    store.delete(USERS, "a")
    store.delete(("nobody",), "a")
    return store.get(USERS, "a"), store.shown()


@scenario
def a_key_that_is_no_str_is_made_one(store: Calls) -> object:
    store.put(USERS, 7, {"n": 7})
    return shown(store.get(USERS, "7")), shown(store.get(USERS, 7)), store.delete(USERS, 7), store.shown()


@scenario
def a_namespace_and_an_item_may_have_one_name(store: Calls) -> object:
    store.put(("a",), "b", {"is": "item"})
    store.put(("a", "b"), "b", {"is": "below"})
    store.put(("a", "b", "b"), "json", {"is": "deep"})
    return store.shown("a"), store.shown("a", "b"), store.list_namespaces()


@scenario
def a_prefix_is_compared_by_labels(store: Calls) -> object:
    for namespace in (("a",), ("ab",), ("a", "b"), ("A",), ("a", "bc")):
        store.put(namespace, "k", {"in": list(namespace)})
    prefixes: tuple[tuple[str, ...], ...] = ((), ("a",), ("ab",), ("a", "b"), ("b",), ("a", "b", "c"))
    return [store.shown(*prefix) for prefix in prefixes]


@scenario
def a_limit_is_ten_by_default(store: Calls) -> object:
    for number in range(12):
        store.put(USERS, str(number), {})
    pages: list[dict[str, int]] = [{}, {"offset": 5}, {"offset": 12}, {"limit": 0}, {"limit": 12}]
    return [len(store.search(USERS, **page)) for page in pages]


@scenario
def a_negative_limit_or_offset_is_that_of_a_slice(store: Calls) -> object:
    for number in range(5):
        store.put(USERS, str(number), {})
    bounds = [(-1, 0), (3, -2), (-2, 1), (2, -2), (0, -1)]
    return [len(store.search(USERS, limit=limit, offset=offset)) for limit, offset in bounds]


FILTERS: list[dict[str, Any]] = [
    {},
    {"kind": "tea"},
    {"kind": "tea", "score": 3},
    {"kind": {"$eq": "tea"}},
    {"kind": {"$ne": "tea"}},
    {"score": {"$gt": 3}},
    {"score": {"$gte": 3}},
    {"score": {"$lt": 4.5}},
    {"score": {"$lte": 3, "$gt": 1}},
    {"score": {"$gt": "2"}},
    {"missing": None},
    {"missing": {"$ne": 1}},
    {"missing": {"$eq": None}},
    {"hot": 1},
    {"tags": ["a", "b"]},
    {"tags": ("a", "b")},
    {"tags": ["a"]},
    {"tags": ["a", {"$ne": "c"}]},
    {"origin": {"country": "CN"}},
    {"origin": {"country": {"$ne": "CN"}}},
    {"origin": {"country": "CN", "farm": {"id": {"$gte": 2}}}},
    {"origin": {}},
    {"origin": {"farm": None}},
    {"kind": {"deep": 1}},
    {"score": {"$in": [1, 2]}},
    {"kind": {"$gt": 1}},
    {"missing": {"$lt": 1}},
    {"score": {"$gt": 1, "plain": 2}},
]


@scenario
def a_filter_selects_items(store: Calls) -> object:
    store.put(USERS, "a", {"kind": "tea", "score": 3, "hot": True, "tags": ["a", "b"], "origin": {"country": "CN"}})
    store.put(("users", "x"), "c", {"kind": "cup", "score": 1, "origin": {"country": "CN", "farm": {"id": 2}}})
    indian = {"country": "IN", "farm": {"id": 2}}
    store.put(USERS, "b", {"kind": "tea", "score": 4.5, "hot": False, "tags": [], "origin": indian})

    def answer(filter_: dict[str, Any]) -> object:
        try:
            return store.shown("users", filter=filter_)
        except Exception as error:  # noqa: BLE001 - compared with the framework's
            return type(error), str(error)

    return [answer(each) for each in FILTERS]


@scenario
def a_filter_applies_before_limit_and_offset(store: Calls) -> object:
    for number in range(90):
        store.put(USERS, f"{number:02}", {"odd": number % 2})
    pages = [{"limit": 20, "offset": 30}, {"limit": 3}, {"limit": 100, "offset": 44}, {"limit": 1, "offset": 45}]
    found = [store.search(USERS, filter={"odd": 1}, **page) for page in pages]
    return [(len(page), {item.value["odd"] for item in page}) for page in found]


@scenario
def a_query_without_an_index_changes_nothing(store: Calls) -> object:
    store.put(USERS, "a", {"text": "tea"}, index=["text"])
    store.put(USERS, "b", {"text": "coffee"}, index=False)
    return store.shown("users", query="tea"), [item.score for item in store.search(USERS, query="tea")]


NAMESPACES = [
    ("a", "b", "c"),
    ("a", "b", "d", "e"),
    ("a", "b", "d", "i"),
    ("a", "b", "f"),
    ("a", "c", "f"),
    ("b", "a", "f"),
    ("users", "*", "v1"),
    ("users", "ann", "v1"),
    ("users", "ann", "v2"),
    ("é", "日本"),
    ("z",),
]
QUESTIONS: list[dict[str, Any]] = [
    {},
    {"prefix": ("a",)},
    {"prefix": ("a", "b"), "max_depth": 3},
    {"prefix": ("*", "b")},
    {"prefix": ("users", "*", "v1")},
    {"prefix": ("a", "*", "f")},
    {"prefix": ("q",)},
    {"suffix": ("f",)},
    {"suffix": ("c", "f")},
    {"suffix": ("*", "v1")},
    {"suffix": ("a", "b", "d", "e", "x")},
    {"prefix": ("a",), "suffix": ("f",)},
    {"prefix": ("a", "b"), "suffix": ("b", "d", "i")},
    {"max_depth": 1},
    {"max_depth": 0},
    {"max_depth": 9},
    {"limit": 3},
    {"limit": 3, "offset": 2},
    {"limit": 0},
    {"offset": 99},
    {"limit": -1},
    {"max_depth": 2, "limit": 2, "offset": 1},
]


@scenario
def namespaces_are_listed(store: Calls) -> object:
    for namespace in NAMESPACES:
        for key in ("1", "2"):
            store.put(namespace, key, {})
    listed = [store.list_namespaces(**question) for question in QUESTIONS]
    pairs: list[tuple[Any, tuple[str, ...]]] = [("prefix", ("*", "b")), ("suffix", ("*", "i")), ("prefix", ("a",))]
    several = tuple(MatchCondition(*pair) for pair in pairs)
    strange: Any = (MatchCondition("infix", ("a",)),)  # type: ignore[arg-type]  # refused
    return listed, store.batch([ListNamespacesOp(several)]), raised(store.batch, [ListNamespacesOp(strange)])


@scenario
def a_batch_answers_in_order_from_the_state_before_its_puts(store: Calls) -> object:
    store.put(USERS, "old", {"n": 0})
    ops = [
        PutOp(USERS, "new", {"n": 1}),
        GetOp(USERS, "new"),
        GetOp(USERS, "old"),
        PutOp(USERS, "old", None),
        SearchOp(USERS),
        PutOp(("other",), "x", {"n": 2}),
        ListNamespacesOp(),
        GetOp(USERS, "old"),
        GetOp(USERS, "old"),
    ]
    put, new, old, deleted, searched, other, listed, again, twice = store.batch(iter(ops))
    assert all(isinstance(item, SearchItem) for item in searched)
    return put, new, shown(old), deleted, len(searched), other, listed, shown(again), shown(twice), store.shown()


@scenario
def the_last_put_of_an_item_in_a_batch_wins(store: Calls) -> object:
    store.put(USERS, "gone", {})
    puts: list[tuple[str, dict[str, int] | None]] = [
        ("a", {"n": 1}), ("a", {"n": 2}), ("b", {}), ("b", None), ("c", None), ("c", {"n": 3}), ("gone", {}),
        ("gone", None),
    ]  # fmt: skip
    return store.batch([PutOp(USERS, key, value) for key, value in puts]), store.shown(), store.batch([])


@scenario
def an_unknown_operation_is_refused_before_the_puts(store: Calls) -> object:
    return raised(store.batch, [PutOp(USERS, "a", {}), object()]), store.shown()


WRONG: list[Any] = [("a.b",), ("",), ("a", ""), ("a\0",), (7,), ("a", None), (b"a",), ("users", ".")]


@scenario
def a_wrong_label_is_refused(store: Calls) -> object:
    calls: list[Any] = [
        *((store.put, wrong, "k", {}) for wrong in WRONG),
        *((call, wrong, "k") for wrong in WRONG for call in (store.get, store.delete)),
        *((store.search, wrong) for wrong in WRONG),
        (store.put, (), "k", {}),
        (store.put, ("langgraph",), "k", {}),
        (store.put, ("langgraph", "x"), "k", {}),
    ]
    options = [{kind: wrong} for wrong in WRONG for kind in ("prefix", "suffix")]
    return [raised(*call) for call in calls], [raised(store.list_namespaces, **each) for each in options], store.shown()


@scenario
def a_hostile_label_is_stored_or_refused(store: Calls) -> object:
    refused = []
    for label in HOSTILE:
        try:
            store.put((label, "x"), "k", {"label": label})
        except InvalidNamespaceError as error:
            refused.append(str(error))
    below = [store.shown(label) for label in ("a/b", "é", "e\u0301", "x" * 500)]
    return refused, store.shown(), below, store.list_namespaces()


@scenario
def a_value_that_is_no_mapping_is_refused(store: Calls) -> object:
    return [raised(store.put, USERS, "k", value)[0] for value in (7, [1], "text")], store.shown()


REFUSALS = {name for name in SCENARIOS if name.endswith("refused")}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_store_answers_as_the_frameworks_own(name: str, store: Calls) -> None:
    if name in REFUSALS and not hasattr(base, "validate_op_namespace"):
        pytest.skip("the framework's own store of this release refuses less")
    assert SCENARIOS[name](store) == SCENARIOS[name](Calls(InMemoryStore(), "sync"))


KEYS = st.sampled_from(["a", "b", "é", ""])
LABELS = st.sampled_from(["a", "b", "é", "*", "x" * 300])
SPACES = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
FIELDS, NUMBERS = st.sampled_from(["n", "t"]), st.integers(0, 3)
VALUES = st.dictionaries(FIELDS, NUMBERS | st.lists(st.integers(0, 1), max_size=2), max_size=2)
WANTED = st.none() | st.dictionaries(
    FIELDS, NUMBERS | st.builds(lambda name, number: {name: number}, st.sampled_from(["$eq", "$ne"]), NUMBERS)
)
CONDITIONS = st.lists(st.builds(MatchCondition, st.sampled_from(["prefix", "suffix"]), SPACES), max_size=2).map(tuple)
OPS = (
    st.builds(PutOp, SPACES, KEYS, VALUES, index=st.none(), ttl=st.none())
    | st.builds(PutOp, SPACES, KEYS, st.none(), index=st.none(), ttl=st.none())
    | st.builds(GetOp, SPACES, KEYS)
    | st.builds(SearchOp, SPACES | st.just(()), WANTED, st.just(MANY))
)


def plain(result: Any) -> object:
    """A result without times and without an order."""
    items = result if isinstance(result, list) else [result]
    return sorted((item.namespace, item.key, repr(item.value)) for item in items if item is not None)


@settings(max_examples=50)
@given(st.lists(st.lists(OPS, max_size=5), max_size=6), CONDITIONS, st.none() | st.integers(0, 3))
def test_any_batches_have_the_answers_of_the_frameworks_own_store(
    batches: list[list[Any]], conditions: tuple[MatchCondition, ...], depth: int | None
) -> None:
    reference = InMemoryStore()
    with AgentMemory.open("memory://") as memory:
        store = AgentMemoryStore(memory)
        for batch in [*batches, [SearchOp((), None, MANY)]]:
            assert list(map(plain, store.batch(batch))) == list(map(plain, reference.batch(batch)))
        occupied = InMemoryStore()
        occupied.batch([PutOp(item.namespace, item.key, {}) for item in reference.search((), limit=MANY)])
        question = [ListNamespacesOp(conditions, depth)]  # the reference itself lists also namespaces without items
        assert store.batch(question) == occupied.batch(question)


# What the framework leaves to a store


def test_an_item_is_one_readable_file_in_the_directory_of_its_namespace(store: Calls, memory: AgentMemory) -> None:
    store.put(("users", "slack:C0123"), "likes", {"drink": "Tee ☕"})
    (entry,) = memory.list()
    assert str(entry) == "users/slack=3AC0123/likes.json"
    record = json.loads(memory.read(entry.path))
    assert record.pop("value") == {"drink": "Tee ☕"}
    assert [datetime.fromisoformat(record[name]).tzinfo for name in ("created_at", "updated_at")] == [UTC, UTC]
    assert len(record) == 2
    assert "☕" in memory.read(entry.path)


def test_a_second_put_keeps_when_the_item_was_created(store: Calls) -> None:
    store.put(USERS, "k", {"n": 1})
    first = store.get(USERS, "k")
    store.put(USERS, "k", {"n": 1})
    second = store.get(USERS, "k")
    assert first.created_at == first.updated_at == second.created_at < second.updated_at
    (found,) = store.search(USERS)
    assert (found.created_at, found.updated_at) == (second.created_at, second.updated_at)
    store.delete(USERS, "k")
    store.put(USERS, "k", {"n": 1})
    assert store.get(USERS, "k").created_at > second.updated_at


def test_an_update_is_never_older_than_the_creation_by_another_clock(opened: AgentMemory) -> None:
    later = "2999-01-01T00:00:00+00:00"
    opened.write("users/k.json", json.dumps({"value": {}, "created_at": later, "updated_at": later}))
    store = AgentMemoryStore(opened)
    store.put(USERS, "k", {"n": 1})
    item = store.get(USERS, "k")
    assert item is not None
    assert item.created_at == item.updated_at == datetime.fromisoformat(later)


def test_another_store_on_the_same_root_has_the_items(place: Root) -> None:
    with AgentMemory.open(place.url, storage_options=place.options) as memory:
        AgentMemoryStore(memory).put(("users", "x" * 500), "y" * 500, {"n": 1})
        with AgentMemory.open(place.url, storage_options=place.options) as other:
            (item,) = AgentMemoryStore(other).search(USERS)
    assert (item.namespace, item.key, item.value) == (("users", "x" * 500), "y" * 500, {"n": 1})


def test_pages_of_a_search_have_each_item_once_and_the_newest_first(store: Calls) -> None:
    keys = [hashlib.sha256(bytes([number])).hexdigest() for number in range(60)]
    for number, key in enumerate(keys):
        store.put(("a", "xy"[number % 2]), key, {"n": number})
    store.put(("a", "x"), keys[0], {"n": 60})
    pages = [store.search(("a",), limit=7, offset=offset) for offset in range(0, 63, 7)]
    assert [item.value["n"] for page in pages for item in page] == [60, *range(59, 0, -1)]
    even = store.search(("a",), filter={"n": {"$lt": 30}}, limit=2)
    assert [item.value["n"] for item in even] == [29, 28]
    page = store.search(("a",), filter={"n": {"$lt": 30}}, limit=20, offset=5)
    assert [item.value["n"] for item in page] == list(range(24, 4, -1))


def test_items_of_one_second_are_in_the_order_of_their_updates(opened: AgentMemory) -> None:
    store, start = AgentMemoryStore(opened), datetime(2026, 1, 1, tzinfo=UTC)
    numbers = [3, 0, 4, 1, 2]
    for number in numbers:
        time = (start + timedelta(milliseconds=number)).isoformat()
        opened.write(f"a/{number}.json", json.dumps({"value": {}, "created_at": time, "updated_at": time}))
    entries = tuple(replace(entry, modified=1.0) for entry in opened.list("a"))
    with patch.object(AsyncAgentMemory, "list", lambda *_: _returned(entries)):
        assert [item.key for item in asyncio.run(store.asearch(("a",), limit=3))] == ["4", "3", "2"]


async def _returned(value: T) -> T:
    return value


def test_a_search_with_a_query_ranks_by_its_words_and_says_so_once(
    store: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    texts = ["Ann likes\nGREEN tea", 'the "tea" was cold', "a bicycle", "green paint", "nothing"]
    for number, text in enumerate(texts):
        store.put(USERS, str(number), {"text": text, "more": [{"n": number}]})
    for _ in range(2):
        found = store.search(USERS, query="green tea?", limit=4)
        assert [item.value["text"] for item in found] == [texts[0], texts[3], texts[1], texts[4]]
    assert [record.message.count("no search by meaning") for record in caplog.records] == [1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_agent_of_langmem_finds_the_newest_of_its_memories(memory: AgentMemory, place: Root) -> None:
    """Sixteen memories under random keys; the newest three are found in each of twenty runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        langmem = pytest.importorskip("langmem")
    store = AgentMemoryStore(memory)
    runs = 2 if place.url.startswith("s3:") else 20
    for run in range(runs):
        namespace = ("memories", f"{run}")
        remember = langmem.create_manage_memory_tool(namespace, store=store)
        recall = langmem.create_search_memory_tool(namespace, store=store)
        for number in range(16):
            remember.invoke({"action": "create", "content": f"Ann said number {number}"})
        found = json.loads(recall.invoke({"query": "what is new?", "limit": 3}))
        assert [each["value"]["content"] for each in found] == [f"Ann said number {n}" for n in (15, 14, 13)]


def test_an_item_that_is_deleted_takes_its_namespace_along(store: Calls) -> None:
    store.put(("a", "b"), "k", {})
    store.get(("never", "written"), "k")
    assert store.list_namespaces() == [("a", "b")]
    store.delete(("a", "b"), "k")
    assert store.list_namespaces() == []


def test_long_labels_and_keys_are_found_by_every_call(store: Calls, memory: AgentMemory) -> None:
    namespace, key = ("users", "é" * 500), "k" * 1000
    store.put(namespace, key, {"n": 1})
    store.put(namespace, key, {"n": 2})
    assert shown(store.get(namespace, key)) == (Item, namespace, key, {"n": 2}, UTC)
    assert store.shown() == store.shown(*namespace) == [(namespace, key, {"n": 2})]
    assert store.list_namespaces(prefix=namespace) == store.list_namespaces(suffix=namespace) == [namespace]
    store.delete(namespace, key)
    assert store.shown() == []
    assert all(str(entry).startswith(".texts/") for entry in memory.list())


def test_an_item_whose_path_would_be_too_long_is_refused_as_a_namespace(store: Calls, memory: AgentMemory) -> None:
    for namespace in (("x" * 200,) * 4, ("x",) * 32):
        calls: list[Any] = [
            (store.put, namespace, "k", {}),
            (store.get, namespace, "k"),
            (store.delete, namespace, "k"),
        ]
        for call in calls:
            kind, message = raised(*call)
            assert kind is InvalidNamespaceError
            assert "at most" in message
    assert memory.list() == ()
    assert store.shown() == []


def test_a_file_that_holds_no_item_is_skipped_by_a_search_and_an_error_to_get(
    store: Calls, memory: AgentMemory, caplog: pytest.LogCaptureFixture
) -> None:
    times = {"created_at": "2026-01-01T00:00:00+00:00", "updated_at": "2026-01-01T00:00:00+00:00"}
    damaged = [
        b"", b"{", b"[]", b"null", b"7", b"\xff", b'{"value": {}}', json.dumps({**times, "value": [1]}).encode(),
        json.dumps({**times, "value": {}, "created_at": "soon"}).encode(),
        json.dumps({**times, "value": {}, "created_at": "2026-01-01T00:00:00"}).encode(),
        json.dumps({**times, "value": {}, "updated_at": 7}).encode(),
    ]  # fmt: skip
    for number, data in enumerate(damaged):
        memory.write(f"users/{number}.json", data)
    store.put(USERS, "good", {"secret": "s3cr3t"})
    for limit in (1, MANY):
        assert store.shown("users", limit=limit) == [(USERS, "good", {"secret": "s3cr3t"})]
    assert "11 files hold no item" in caplog.text
    assert "s3cr3t" not in caplog.text
    for number in range(len(damaged)):
        kind, message = raised(store.get, USERS, str(number))
        assert (kind, message) == (ReadError, f"'users/{number}.json': the file holds no item")
        store.put(USERS, str(number), {})
        assert store.get(USERS, str(number)).value == {}


def test_files_of_other_programs_are_no_items(store: Calls, memory: AgentMemory) -> None:
    store.put(("a",), "k", {"n": 1})
    item = memory.read("a/k.json")
    unknown = f"=={'0' * 64}"
    strange = ["a/k.md", "a.b/k.json", "a/=2f.json", "=/k.json", "a=00/k.json"]
    for path in (*strange, f"{unknown}/k.json", f"a/{unknown}.json"):
        memory.write(path, item)
    assert store.shown() == [(("a",), "k", {"n": 1})]
    assert store.list_namespaces() == [("a",)]


@pytest.mark.parametrize(
    "wrong", [float("nan"), float("inf"), object(), b"x", {1, 2}, "\ud800", {1: "one", "1": "two"}]
)
def test_a_value_that_is_not_json_is_refused_and_nothing_is_put(
    store: Calls, memory: AgentMemory, wrong: object
) -> None:
    ops = [PutOp(USERS, "a", {}), PutOp(USERS, "b", {"deep": [{"x": wrong}]}), PutOp(USERS, "c", {})]
    kind, message = raised(store.batch, ops)
    assert kind is InvalidContentError
    assert issubclass(kind, ValueError)
    as_a_whole = isinstance(wrong, float | str)
    assert message.startswith("the record cannot be stored as JSON" if as_a_whole else "the value['deep'][0]['x'] ")
    assert memory.list() == ()


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    when: date


SPECIAL: dict[str, Any] = {
    "aware": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    "naive": datetime(2026, 1, 2, 3, 4, 5),  # noqa: DTZ001 - a value
    "date": date(2026, 1, 2),
    "time": time(3, 4),
    "uuid": UUID(int=7),
    "enum": [Colour.RED, (Colour.RED,)],
    "dataclass": Point(1, date(2026, 1, 2)),
    "mapping": {"deep": {"when": date(2026, 1, 2)}},
}


def test_values_are_stored_as_the_frameworks_own_stores_have_them(store: Calls) -> None:
    orjson = pytest.importorskip("orjson")
    store.put(USERS, "k", SPECIAL)
    assert store.get(USERS, "k").value == orjson.loads(orjson.dumps(SPECIAL))


def test_a_value_that_is_nested_too_deeply_or_in_a_circle_is_refused(store: Calls, memory: AgentMemory) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    circle: dict[str, Any] = {}
    circle["self"] = circle
    for value in ({"x": deep}, circle):
        kind, message = raised(store.put, USERS, "k", value)
        assert (kind, "the record cannot be stored as JSON" in message) == (InvalidContentError, True)
    assert memory.list() == ()


def test_a_time_to_live_is_refused(store: Calls, memory: AgentMemory) -> None:
    assert store.store.supports_ttl is False
    kind, message = raised(store.put, USERS, "k", {}, ttl=5)
    assert kind is NotImplementedError
    assert message.startswith("TTL is not supported by AgentMemoryStore")
    assert raised(store.batch, [PutOp(USERS, "k", {}, ttl=5)])[0] is NotImplementedError
    assert memory.list() == ()
    store.put(USERS, "k", {}, ttl=None)
    assert len(memory.list()) == 1


def test_operations_of_a_batch_are_checked_too(opened: AgentMemory) -> None:
    store = AgentMemoryStore(opened)
    wrong: list[Any] = [
        *(GetOp(label, "k") for label in WRONG),
        *(PutOp(label, "k", {}) for label in WRONG),
        *(PutOp(label, "k", None) for label in WRONG),
        *(SearchOp(label) for label in WRONG),
        *(ListNamespacesOp((MatchCondition("suffix", label),)) for label in WRONG),
        PutOp("users", "k", {}),  # type: ignore[arg-type]  # refused
        SearchOp("users"),  # type: ignore[arg-type]  # refused
    ]
    for op in wrong:
        assert raised(store.batch, [PutOp(USERS, "first", {}), op])[0] is InvalidNamespaceError, op
    assert raised(store.batch, [PutOp(USERS, 7, {})])[0] is TypeError  # type: ignore[arg-type]  # refused
    assert opened.list() == ()


def test_hostile_keys_are_stored_and_found(store: Calls, memory: AgentMemory) -> None:
    store.batch([PutOp(USERS, key, {"key": key}) for key in HOSTILE])
    got = store.batch([GetOp(USERS, key) for key in HOSTILE])
    assert [shown(item) for item in got] == [(Item, USERS, key, {"key": key}, UTC) for key in HOSTILE]
    assert store.shown() == sorted((USERS, key, {"key": key}) for key in HOSTILE)
    assert all(entry.path.startswith(("users/", ".texts/")) for entry in memory.list())
    store.batch([PutOp(USERS, key, None) for key in HOSTILE])
    assert store.shown() == []


Name = tuple[tuple[str, ...], str]
NAMES = st.tuples(st.lists(IDS, min_size=1, max_size=2).map(tuple), IDS)


@settings(max_examples=50)
@given(NAMES, NAMES)
def test_two_different_items_are_never_one_file(one: Name, other: Name) -> None:
    def put(store: AgentMemoryStore, namespace: tuple[str, ...], key: str) -> bool:
        try:
            store.put(namespace, key, {"key": key})
        except InvalidNamespaceError:
            return False
        return True

    with AgentMemory.open("memory://") as memory:
        store = AgentMemoryStore(memory)
        names = {name for name in (one, other) if put(store, *name)}
        assert len([entry for entry in memory.list() if entry.path.endswith(".json")]) == len(names)
        assert {(item.namespace, item.key) for item in store.search((), limit=MANY)} == names


# Several writers


def put_one(memory: AgentMemory, process: int, number: int) -> None:
    store = AgentMemoryStore(memory)
    if number % 2:
        store.put(("race", f"p{process}"), f"{number}", {"process": process, "number": number})
    else:
        asyncio.run(store.aput(("race", f"p{process}"), f"{number}", {"process": process, "number": number}))


@rounds(5, 1)
def test_four_processes_race_and_keep_every_item(shared_place: Root) -> None:
    race(shared_place, put_one)
    with AgentMemory.open(shared_place.url, storage_options=shared_place.options) as memory:
        store = AgentMemoryStore(memory)
        found = {(item.value["process"], item.value["number"]) for item in store.search(("race",), limit=MANY)}
        assert found == {(process, number) for process in range(PROCESSES) for number in range(ADDITIONS)}
        assert store.list_namespaces() == [("race", f"p{process}") for process in range(PROCESSES)]


def put_same(memory: AgentMemory, process: int, number: int) -> None:
    store, values = AgentMemoryStore(memory), {"process": process, "number": number}
    store.put(("race",), "x" * 300, values)
    item = store.get(("race",), "x" * 300)
    assert item is not None
    assert item.created_at <= item.updated_at


@rounds(5, 1)
def test_processes_race_for_one_item_and_none_is_refused(shared_place: Root) -> None:
    race(shared_place, put_same)
    with AgentMemory.open(shared_place.url, storage_options=shared_place.options) as memory:
        (item,) = AgentMemoryStore(memory).search(())
        assert item.key == "x" * 300
        assert item.value["number"] == ADDITIONS - 1
        assert item.created_at < item.updated_at


@pytest.mark.asyncio
async def test_forty_tasks_put_and_search_at_the_same_time(place: Root) -> None:
    async with AsyncAgentMemory.open(place.url, storage_options=place.options) as memory:
        store = AgentMemoryStore(memory)
        puts = (store.aput(("tasks", str(n % 4)), str(n), {"n": n}) for n in range(40))
        await asyncio.gather(*puts, store.asearch(("tasks",)))
        items = await store.asearch(("tasks",), limit=MANY)
    assert sorted(item.value["n"] for item in items) == list(range(40))
    assert all(item.created_at == item.updated_at for item in items)


# Views, hooks, imports, the example


def test_a_read_only_memory_refuses_puts_and_deletes_and_answers_the_rest(store: Calls, memory: AgentMemory) -> None:
    store.put(USERS, "k", {"n": 1})
    before = memory.read("users/k.json")
    reading = Calls(AgentMemoryStore(memory.read_only()), "sync")
    refused: list[Any] = [
        (reading.put, USERS, "k", {"n": 2}),
        (reading.put, USERS, "x" * 300, {}),
        (reading.delete, USERS, "k"),
    ]
    assert [raised(*call)[0] for call in refused] == [OperationDenied] * 3
    assert memory.read("users/k.json") == before
    assert len(memory.list()) == 1
    assert reading.get(USERS, "k").value == {"n": 1}
    assert reading.list_namespaces() == [USERS]


def test_plugins_see_every_operation() -> None:
    recorder = RecordingPlugin()
    with AgentMemory.open("memory://", plugins=[recorder], actor="graph") as memory:
        store = AgentMemoryStore(memory)
        store.batch([PutOp(USERS, "k", {}), GetOp(USERS, "k"), SearchOp(USERS)])
        store.delete(USERS, "k")
    assert [(operation.kind, operation.path, operation.actor) for operation in recorder.before] == [
        ("read", "users/k.json", "graph"),
        ("list", "users", "graph"),
        ("edit", "users/k.json", "graph"),
        ("delete", "users/k.json", "graph"),
    ]


def test_a_store_is_not_copied_and_takes_only_a_memory(opened: AgentMemory) -> None:
    import copy

    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        copy.deepcopy(AgentMemoryStore(opened))
    with pytest.raises(TypeError, match="an adapter takes an AgentMemory or an AsyncAgentMemory, not str"):
        AgentMemoryStore("./memories")  # type: ignore[arg-type]  # refused


@pytest.mark.parametrize(
    ("stub", "text"),
    [
        ("None", "langgraph-checkpoint .* does not fit this adapter"),
        ("types.ModuleType('empty')", r"needs langgraph-checkpoint[<>=].* \(cannot import name"),
    ],
)
def test_the_error_says_which_version_fits(stub: str, text: str) -> None:
    code = (
        f"import sys, types; sys.modules['langgraph.store.base'] = {stub}\n"
        "try:\n    import agent_memory.integrations.langgraph\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.search(text, done.stdout)
    assert "pip install 'agent-memory-files[langgraph]'" in done.stdout


def run_example(root: str, **environment: str) -> str:
    return example_output(EXAMPLE, root, environment)


def test_the_example_remembers_in_a_later_session_and_in_a_second_run(tmp_path: Path) -> None:
    pytest.importorskip("langgraph.graph")
    output = run_example(str(tmp_path))
    assert "first session: nothing yet" in output
    assert "third session: likes green tea" in output
    assert "first session: likes green tea" in run_example(str(tmp_path))
    (file,) = (path for path in tmp_path.rglob("*.json") if "green tea" in path.read_text())
    assert file.relative_to(tmp_path).as_posix() == "agent_memory/ann/langgraph/facts/drink.json"


@pytest.mark.long
def test_the_example_remembers_on_s3(ministack: S3Server) -> None:
    pytest.importorskip("langgraph.graph")
    assert "third session: likes green tea" in run_example(ministack.new_url(), **ministack.environment)


def test_a_second_search_reads_what_changed_and_a_caller_may_change_what_it_got(tmp_path: Path) -> None:
    plugin = RecordingPlugin()

    def reads() -> int:
        found = sum(operation.kind == "read" and bool(outcome.size) for operation, outcome in plugin.after)
        plugin.after.clear()
        return found

    with AgentMemory.open(tmp_path, plugins=[plugin]) as memory:
        store = AgentMemoryStore(memory)
        for number in range(30):
            store.put(("a", str(number % 3)), f"{number}", {"n": [number]})
        age(tmp_path, "*.json")
        reads()
        for expected in (30, 0):
            items = store.search(("a",), filter={"n": [4]}, limit=100)
            assert [item.value for item in items] == [{"n": [4]}]
            items[0].value["n"].append("changed by the caller")
            assert reads() == expected
        assert store.list_namespaces(prefix=("a",)) == [("a", "0"), ("a", "1"), ("a", "2")]
        assert reads() == 0
        store.put(("a", "1"), "4", {"n": [4], "new": True})
        reads()
        assert store.search(("a",), filter={"n": [4]})[0].value == {"n": [4], "new": True}
        assert reads() == 1
        store.search(("a", "2"), query="28", limit=1)
        assert reads() == 0
