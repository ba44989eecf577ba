"""Search skips most lines unparsed, and gives the same result as parsing every line."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_memory import AgentMemory
from agent_memory.conversation import ConversationMemory, Matches, SearchHistoryTool, search
from agent_memory.conversation.search import HistorySearch
from agent_memory.reading import lines
from agent_memory.tools import ToolResult
from agent_memory_memory import MemoryBackend
from tests.conversation import naive
from tests.conversation.histories import HISTORY, line
from tests.conversation.strategies import BETWEEN, cases
from tests.support.sizes import examples

blocks = st.sampled_from([1, 7, 64, 200, 1024 * 1024])
sinces = st.sampled_from([None, None, BETWEEN])


def found(data: bytes, history_search: HistorySearch, block: int = lines.BLOCK) -> Matches:
    with AgentMemory.open(MemoryBackend()) as memory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "forwards", partial(lines.forwards, block=block))
        memory.write(HISTORY, data)
        return memory.scan(HISTORY, history_search.run)


def answered(data: bytes, arguments: dict[str, object]) -> ToolResult:
    with AgentMemory.open(MemoryBackend()) as memory:
        memory.write(HISTORY, data)
        return SearchHistoryTool(ConversationMemory(memory)).call(arguments)


@examples(250)
@given(cases(), sinces, st.integers(1, 3), blocks)
@example((line("\u212a"), "k"), None, 1, 1)
@example((line("\u0130"), "\u0307"), None, 1, 1)
@example((line("a\u03a3"), "\u03c2"), None, 1, 1)
@example((line("Formula:\n\u03a3 x"), "\u03a3 x"), None, 1, 1)
@example((line("\u03a3\n"), "\u03c3"), None, 1, 1)
@example((line("k").replace(b"k", b"\\u004B"), "K"), None, 1, 1)
@example((line("a/b").replace(b"/", b"\\/"), "A/B"), None, 1, 1)
@example((line("\ud83d\ude00"), "\U0001f600"), None, 1, 1)
@example((line("\ud83d"), "\ud83d"), None, 1, 1)
@example((line("k") * 3, "k"), None, 2, 1)
@example((line("k", channel=5) + line("k"), "k"), None, 1, 1)
@example((line("old", timestamp="2000-01-01") + line("k"), "k"), BETWEEN, 1, 1)
def test_search_gives_the_same_as_parsing_every_line(
    case: tuple[bytes, str], since: float | None, most: int, block: int
) -> None:
    data, query = case
    matches = found(data, HistorySearch(query, since=since, max_results=most), block)
    assert matches == naive.search(data, query, since, most)
    if len(matches) < most:  # else the search did not read the whole history
        assert matches.skipped == naive.bad_lines(data)


@examples(120)
@given(cases(), st.sampled_from([0, 5]), st.integers(1, 3))
def test_the_tools_output_is_the_same_as_after_parsing_every_line(
    case: tuple[bytes, str], days: int, most: int
) -> None:
    data, query = case
    given = {"query": query, "days": days, "max_results": most}
    if stripped := query.strip():
        matches = naive.search(data, stripped, BETWEEN if days else None, most)
        bad = naive.bad_lines(data)
        told = {"damaged_lines": bad} if bad else None
        assert answered(data, given) == ToolResult(naive.answer(stripped, matches, bad), data=told)
    else:
        assert answered(data, given) == ToolResult("Error: query is required", is_error=True)


@examples(120)
@given(cases(), st.data(), blocks)
def test_every_part_of_a_message_is_found_in_any_case(case: tuple[bytes, str], draw: st.DataObject, block: int) -> None:
    data, query = case
    whole = draw.draw(st.sampled_from([query, *(m.content for m in naive.messages(data) if naive.is_shown(m))]))
    begin = draw.draw(st.integers(0, len(whole) - 1))
    part = whole[begin : draw.draw(st.integers(begin + 1, len(whole)))]
    for spelled in {part, part.upper(), part.lower(), part.swapcase()}:
        assert found(data, HistorySearch(spelled, max_results=100), block) == naive.search(data, spelled, None, 100)


def test_running_one_search_twice_finds_the_same() -> None:
    data, twice = line("before") + line("k") + line("after"), HistorySearch("k")
    assert found(data, twice) == found(data, twice) == naive.search(data, "k")
