"""`parse_json`: a bound on the nesting, far from the interpreter's recursion limit."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Iterator

import pytest

from agent_memory import AgentMemory, InvalidContentError
from agent_memory._json import MOST_LEVELS, parse_json, require_levels
from agent_memory.conversation import ConversationMemory, CronJob, Message
from agent_memory.integrations.toolkit import from_json, to_json

_DEEP = "[" * 50_000


def nested(levels: int) -> object:
    value: object = "x"
    for _ in range(levels):
        value = [value]
    return value


@pytest.fixture
def eager_collection() -> Iterator[None]:
    old = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    yield
    gc.set_threshold(*old)


class Dropped:
    """An object in a cycle, whose finalizer needs some calls, as that of an open connection."""

    ended = 0

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        self.calls(20)
        Dropped.ended += 1

    def calls(self, more: int) -> None:
        if more:
            self.calls(more - 1)


@pytest.mark.usefixtures("eager_collection")
def test_finalizers_during_the_parse_of_a_deep_text_can_run() -> None:
    Dropped.ended = 0
    for number in range(0, 200, 5):
        Dropped()
        with pytest.raises(ValueError, match="nested deeper than 256 levels"):
            parse_json("[" * number + '{"a":' * 50_000)
    gc.collect()
    assert Dropped.ended == 40


@pytest.mark.parametrize("levels", [MOST_LEVELS, MOST_LEVELS + 1])
def test_the_bound_is_the_same_for_each_kind_of_bracket(levels: int) -> None:
    for text in ("[" * levels + "]" * levels, '{"a":' * levels + "1" + "}" * levels):
        for data in (text, text.encode(), b"\xef\xbb\xbf" + text.encode()):
            if levels > MOST_LEVELS:
                with pytest.raises(ValueError, match="levels"):
                    parse_json(data)
            else:
                assert parse_json(data) == json.loads(text)


@pytest.mark.parametrize(
    "value", [[_DEEP, '"' + _DEEP, "\\" + _DEEP, '\\"' + _DEEP], [[]] * 10_000, {_DEEP: [{"]": "["}] * 999}]
)
def test_brackets_in_texts_and_brackets_side_by_side_are_no_levels(value: object) -> None:
    assert parse_json(json.dumps(value)) == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode()) == value


def test_escapes_cost_no_memory_beside_the_text() -> None:
    text = '{"a":"' + "\\n" * 1_000_000 + '","b":[' + ",".join(["[1]"] * 300) + "]}"
    tracemalloc.start()
    try:
        require_levels(text)
        assert tracemalloc.get_traced_memory()[1] < 6 * len(text)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "text", ["", "[" * 300 + '"', '"' + _DEEP, "]" * 999 + "[" * 999, "{" * 999 + "}" * 999, "1 2"]
)
def test_a_text_that_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"levels|JSON|line 1"):
        parse_json(text)


def test_what_is_stored_can_be_read_again() -> None:
    assert from_json(to_json(nested(MOST_LEVELS))) == nested(MOST_LEVELS)
    with pytest.raises(InvalidContentError):
        to_json(nested(MOST_LEVELS + 1))
    with AgentMemory.open("memory://levels") as memory:
        conversation = ConversationMemory(memory)
        with pytest.raises(InvalidContentError):
            conversation.append_message(Message("user", "x", extra={"deep": nested(MOST_LEVELS)}))
        with pytest.raises(InvalidContentError):
            conversation.save_cron_jobs([CronJob("1", "n", "m", "s", metadata={"deep": nested(MOST_LEVELS)})])
        conversation.append_message(Message("user", "x", extra={"deep": nested(MOST_LEVELS - 1)}))
        assert conversation.load_history()[0].extra == {"deep": nested(MOST_LEVELS - 1)}
