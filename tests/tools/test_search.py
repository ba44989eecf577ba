"""``memory_search`` gives the same result as a naive search of every line, for any block size."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_memory import AgentMemory, AsyncAgentMemory, BackendNotAvailableError, InvalidPathError
from agent_memory.reading import lines as lines_module
from agent_memory.reading.lines import BLOCK, forwards
from agent_memory.reading.reader import Reader
from agent_memory.tools import AsyncMemorySearch, MemorySearch, _file_search
from agent_memory.tools.search import LineMatch, SearchResult, fitting
from tests.object_store.proxy import Proxy
from tests.support.servers import Root, S3Server
from tests.support.sizes import examples
from tests.tools.calls import fill, refused, succeeded

FAMILIES = ["kK\u212a", "iI\u0130\u0131\u0307", "sS\u017f\u00df\u1e9e", "σςΣa ", "éÉ", "a\\.*", "日本\ufffd", "ab"]
GARBAGE = [b"\xff", b"\xe2\x84", b"\xc3", b"\xed\xa0\x80"]


def naive(data: bytes, query: str, context: int = 0, path: str = "a.md") -> list[LineMatch]:
    """Search line by line: each match with its surrounding lines."""
    rows = [line.decode(errors="replace") for line in data.split(b"\n")]
    if not rows[-1]:
        rows.pop()
    return [
        LineMatch(path, at + 1, row, rows[max(0, at - context) : at], rows[at + 1 : at + 1 + context])
        for at, row in enumerate(rows)
        if query.lower() in row.lower()
    ]


def found(memory: AgentMemory, query: str, **options: Any) -> tuple[LineMatch, ...]:
    return MemorySearch(memory).search(query, **options).matches


@st.composite
def cases(draw: st.DrawFn) -> tuple[bytes, str]:
    """A file, and a query of the same letters."""
    letters = draw(st.sampled_from(FAMILIES))
    pieces = [*(letter.encode() for letter in letters), *GARBAGE, b"\n", b"\n"]
    data = b"".join(draw(st.lists(st.sampled_from(pieces), max_size=40)))
    return data, draw(st.text(letters, min_size=1, max_size=3))


@examples(500)
@given(cases(), st.integers(0, 4), st.integers(1, 30))
@example((b"1\n2\n3\n4 k\n5\n", "k"), 3, 2)
@example((b"a\nb\nk\n", "K"), 4, 1)
@example((b"k\nk\nk\nx\ny\n", "k"), 3, 1)
@example(("\u212a\n".encode(), "k"), 0, 30)
@example((b"\\section\n", "\\S"), 0, 30)
@example((b"caf\xe9\n", "\ufffd"), 0, 3)
def test_memory_search_finds_the_same_as_a_naive_search(case: tuple[bytes, str], context: int, block: int) -> None:
    data, query = case
    memory = fill(AgentMemory.open("memory://"), {"a.md": data})
    expected = naive(data, query, context)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_file_search, "forwards", partial(forwards, block=block))
        assert found(memory, query, context=context, max_results=200) == tuple(expected)
        for most in range(1, len(expected) + 1):
            result = MemorySearch(memory).search(query, context=context, max_results=most)
            assert result == SearchResult(tuple(expected[:most]), most < len(expected))


@pytest.mark.parametrize("context", [0, 1, 10])
def test_context_lines_of_a_match_are_found_across_blocks(context: int) -> None:
    rows = [f"{number} {'x' * 90}" for number in range(4 * BLOCK // 100)]
    for number in range(0, len(rows), 997):
        rows[number] += " Needle"
    data = "\n".join(rows).encode()
    assert len(data) > 3 * BLOCK
    memory = fill(AgentMemory.open("memory://"), {"a.md": data})
    expected = naive(data, "nEEDLE", context)
    assert len(expected) > 40
    assert found(memory, "nEEDLE", context=context, max_results=200) == tuple(expected)


def test_the_first_match_after_a_block_has_all_its_preceding_lines() -> None:
    half = "x" * (BLOCK // 2 - 1)
    data = f"1\n2\n3 {half}\n4 {half}\n5 needle\n6\n".encode()
    (match,) = found(fill(AgentMemory.open("memory://"), {"a.md": data}), "needle", context=5)
    assert [line[:2].strip() for line in match.before] == ["1", "2", "3", "4"]
    assert (match.line, match.after) == (5, ["6"])


@pytest.fixture
def _short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "MAX_LINE", 64)
    monkeypatch.setattr(_file_search, "forwards", partial(forwards, block=16))


@pytest.mark.usefixtures("_short_lines")
def test_a_line_that_is_too_long_is_skipped_and_counted(memory: AgentMemory) -> None:
    memory.write("a.md", f"needle 1\n{'needle ' * 1000}\nneedle 3\n4\n{'x' * 1000} needle")
    matches = found(memory, "needle", context=1)
    assert [(match.line, match.text) for match in matches] == [(1, "needle 1"), (3, "needle 3")]
    assert matches[1].after == ["4"]
    assert matches[0].after == matches[1].before
    assert matches[1].before[0].startswith("needle needle ")


def test_a_long_line_is_cut_around_the_match(memory: AgentMemory) -> None:
    memory.write("a.md", f"{'a' * 1000}NEEDLE{'b' * 1000}\n{'c' * 300}\n{'d' * 301}\n")
    (match,) = found(memory, "needle", context=2)
    assert match.text == f"...{'a' * 100}NEEDLE{'b' * 194}..."
    assert match.after == ["c" * 300, "d" * 300 + "..."]


def test_a_cut_line_shows_the_match_even_if_lower_case_is_longer(memory: AgentMemory) -> None:
    memory.write("a.md", "\u0130" * 1000 + "needle")
    (match,) = found(memory, "needle")
    assert "needle" in match.text


def test_unprintable_characters_are_replaced(memory: AgentMemory) -> None:
    memory.write("a.md", b"\x1b[2Jneedle\x00\t\xff\xe2\x80\xae\r\n")
    (match,) = found(memory, "needle")
    assert match.text == "\ufffd[2Jneedle\ufffd\t\ufffd\ufffd"
    assert MemorySearch(memory).call({"query": "needle"}).output == f"a.md:1: {match.text}"


def test_binary_files_are_searched_too(memory: AgentMemory) -> None:
    memory.write("a.bin", bytes(range(256)) * 1000 + b"\nneedle\n" + bytes(range(255, -1, -1)) * 1000)
    assert [match.text for match in found(memory, "NEEDLE")] == ["needle"]


FILES = {
    "a.md": "needle\n",
    "b.txt": "needle\n",
    "notes/a.md": "needle\n",
    "notes/b.txt": "Needle\n",
    "notes/deep/c.md": "NEEDLE\n",
    "notes2/a.md": "needle\n",
    ".hidden/a.md": "needle\n",
}


@pytest.mark.parametrize(
    ("options", "paths"),
    [
        ({}, sorted(FILES)),
        ({"path": "notes"}, ["notes/a.md", "notes/b.txt", "notes/deep/c.md"]),
        ({"path": "notes/"}, ["notes/a.md", "notes/b.txt", "notes/deep/c.md"]),
        ({"path": "notes/deep"}, ["notes/deep/c.md"]),
        ({"path": "missing"}, []),
        ({"glob": "*.txt"}, ["b.txt", "notes/b.txt"]),
        ({"glob": "a.*"}, [".hidden/a.md", "a.md", "notes/a.md", "notes2/a.md"]),
        ({"glob": "A.md"}, []),
        ({"glob": "[!a].md"}, ["notes/deep/c.md"]),
        ({"glob": "notes/*"}, ["notes/a.md", "notes/b.txt", "notes/deep/c.md"]),
        ({"glob": "notes/?.md"}, ["notes/a.md"]),
        ({"path": "notes", "glob": "*.md"}, ["notes/a.md", "notes/deep/c.md"]),
    ],
)
def test_a_path_and_a_glob_select_the_files(memory: AgentMemory, options: dict[str, Any], paths: list[str]) -> None:
    assert [match.path for match in found(fill(memory, FILES), "needle", **options)] == paths


def test_a_glob_matches_as_in_fnmatch(memory: AgentMemory) -> None:
    fill(memory, FILES)
    for glob in ("*", "**", "[", "[]", "[]a].md", "[a--b].md", "[[a]*", "[a[b]*", "a&&b~~[a||b]*", "?.??"):
        expected = [path for path in sorted(FILES) if fnmatchcase(path.rpartition("/")[2], glob)]
        assert [match.path for match in found(memory, "needle", glob=glob)] == expected


@pytest.fixture
def many(memory: AgentMemory) -> AgentMemory:
    return fill(memory, {f"{number}.md": "needle 1\nneedle 2\n" for number in range(5)})


@pytest.mark.parametrize(("most", "more"), [(1, True), (2, True), (9, True), (10, False), (200, False)])
def test_the_result_says_whether_there_are_more_matches(many: AgentMemory, most: int, more: bool) -> None:
    result = MemorySearch(many).search("needle", max_results=most)
    everywhere = [(f"{number}.md", line) for number in range(5) for line in (1, 2)]
    assert [(match.path, match.line) for match in result.matches] == everywhere[:most]
    assert result.more == more
    path, line = everywhere[most - 1] if more else ("", 0)
    hint = f'there are more: go on with after "{path}:{line}", or narrow the query, path or glob]'
    assert str(result).endswith(hint) == more
    answer = MemorySearch(many).call({"query": "needle", "max_results": most})
    assert succeeded(answer) == str(result)
    assert answer.data == {
        "matches": [
            {"path": path, "line": line, "text": f"needle {line}", "before": [], "after": []}
            for path, line in everywhere[:most]
        ],
        "more": more,
        **({"next": f"{path}:{line}"} if more else {}),
    }


def test_matches_are_shown_as_in_grep(memory: AgentMemory) -> None:
    fill(memory, {"a.md": "1\n2\nneedle\n4\n5\n6\nNeedle", "b.md": "needle"})
    assert succeeded(MemorySearch(memory).call({"query": "needle", "context": 2})) == "\n".join(
        [
            *("a.md-1- 1", "a.md-2- 2", "a.md:3: needle", "a.md-4- 4", "a.md-5- 5", "--"),
            *("a.md-5- 5", "a.md-6- 6", "a.md:7: Needle", "--", "b.md:1: needle"),
        ]
    )
    assert succeeded(MemorySearch(memory).call({"query": "needle", "path": "b.md"})) == "b.md:1: needle"


def test_the_answer_says_that_nothing_was_found(memory: AgentMemory) -> None:
    answer = MemorySearch(fill(memory, FILES)).call({"query": 'no "such"\n'})
    assert succeeded(answer) == 'No matches found for "no \\"such\\"\\n".'
    assert answer.data == {"matches": [], "more": False}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"query": ""}, "query must be a text of one character or more"),
        ({"context": -1}, "context must be 0 to 10"),
        ({"context": 11}, "context must be 0 to 10"),
        ({"max_results": 0}, "max_results must be 1 to 200"),
        ({"max_results": 201}, "max_results must be 1 to 200"),
        ({"glob": "x" * 1001}, "glob can have at most 1,000 characters"),
    ],
)
def test_an_argument_out_of_bounds_is_refused(memory: AgentMemory, options: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"query": "x", **options}
    with pytest.raises(ValueError, match=message):
        MemorySearch(memory).search(**arguments)
    assert refused(MemorySearch(memory).call(arguments)) == f"Error: {message}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"context": True}, "context must be 0 to 10"),
        ({"max_results": True}, "max_results must be 1 to 200"),
        ({"glob": 5}, "glob must be a str, not int"),
        ({"after": 5}, "after must be the position of a match"),
    ],
)
def test_an_argument_of_another_type_is_refused(memory: AgentMemory, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MemorySearch(memory).search("x", **options)


@pytest.mark.parametrize("path", ["../other", "/etc", "notes/../..", "a:b/c"])
def test_a_path_outside_the_memory_is_refused(memory: AgentMemory, path: str) -> None:
    with pytest.raises(InvalidPathError):
        MemorySearch(memory).search("x", path)
    assert "; try " in refused(MemorySearch(memory).call({"query": "x", "path": path}))


@pytest.fixture
def stored(root: Root) -> Iterator[AgentMemory]:
    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        yield memory


def test_sync_and_async_callers_can_search_every_storage(root: Root, stored: AgentMemory) -> None:
    data = b"".join(b"%d %s\n" % (number, b"x" * 100) for number in range(12_000)) + "K\u0130\n".encode()
    assert len(data) > BLOCK
    fill(stored, {"notes/long.md": data, "notes/b.md": "none"})
    result = MemorySearch(stored).search("KI\u0307", context=1)
    assert result.matches == (LineMatch("notes/long.md", 12_001, "K\u0130", [f"11999 {'x' * 100}"], []),)

    async def search() -> SearchResult:
        async with AsyncAgentMemory.open(root.url, storage_options=root.options) as memory:
            search = AsyncMemorySearch(memory)
            answer = await search.call({"query": "KI\u0307", "context": 1})
            assert answer == MemorySearch(stored).call({"query": "KI\u0307", "context": 1})
            return await search.search("KI\u0307", context=1)

    assert asyncio.run(search()) == result


def test_a_search_of_a_subtree_shows_names_relative_to_it(memory: AgentMemory) -> None:
    view = fill(memory, FILES).subtree("notes")
    assert [match.path for match in found(view, "needle", glob="*.md")] == ["a.md", "deep/c.md"]
    assert replace(found(view, "needle")[0], path="notes/a.md") == found(memory, "needle", path="notes")[0]


def test_a_file_rewritten_during_its_read_is_read_once_more(tmp_path: Path) -> None:
    read, left = Reader.read, ["once"]

    async def rewriting(reader: Reader, start: int, end: int) -> bytes:
        if start and left:
            left.clear()
            (tmp_path / "a.md").write_bytes(b"y" * (2 * BLOCK) + b"\nneedle\n")
        return await read(reader, start, end)

    with AgentMemory.open(tmp_path) as memory, pytest.MonkeyPatch.context() as patch:
        memory.write("a.md", "x\n" * BLOCK)
        patch.setattr(Reader, "read", rewriting)
        assert [match.line for match in found(memory, "needle")] == [2]
    assert not left


def test_remote_files_are_searched_concurrently_and_reported_in_order(ministack: S3Server) -> None:
    with Proxy(ministack.endpoint) as proxy:
        with AgentMemory.open(ministack.new_url(), storage_options=ministack.through(proxy)) as memory:
            paths = [f"{number:02}.md" for number in range(40)]
            for path in paths:
                memory.write(path, f"needle of {path}\n")
            proxy.choose, proxy.most_at_once = lambda _: "slow", 0
            assert [match.path for match in found(memory, "needle", max_results=200)] == paths
            assert memory.read_many(reversed(paths)) == {path: f"needle of {path}\n" for path in reversed(paths)}
    assert 4 <= proxy.most_at_once <= 16


# Regular expressions, upper and lower case, whole lines, all matches.


LINES = "Alpha beta\nalpha BETA\nGAMMA: 12\nétude 7\n"


@pytest.mark.parametrize(
    ("query", "given", "lines"),
    [
        ("alpha", {}, [1, 2]),
        ("alpha", {"case_sensitive": True}, [2]),
        ("Alpha", {"case_sensitive": True}, [1]),
        ("É", {"case_sensitive": True}, []),
        ("é", {"case_sensitive": True}, [4]),
        ("a.*a$", {"regex": True}, [1, 2]),
        ("a.*a$", {"regex": True, "case_sensitive": True}, [1]),
        (r"\d+", {"regex": True}, [3, 4]),
        (r"^\pL+:? \d+$", {"regex": True}, [3, 4]),
        (r"\AGAMMA", {"regex": True}, [3]),
        ("beta\\nalpha", {"regex": True}, []),
        ("a.*a$", {}, []),
        ("\ud800", {"case_sensitive": True}, []),
        ("\ufffd", {"case_sensitive": True}, [5]),
        ("\ufffd", {"regex": True}, [5]),
    ],
)
def test_a_query_is_a_text_or_a_regular_expression(query: str, given: dict[str, Any], lines: list[int]) -> None:
    memory = AgentMemory.open("memory://")
    memory.write("a.md", LINES.encode() + b"torn \xff")
    assert [match.line for match in MemorySearch(memory).search(query, **given).matches] == lines


def test_a_regular_expression_takes_linear_time() -> None:
    memory = AgentMemory.open("memory://")
    memory.write("a.md", "a" * 1_000_000 + "!")
    groups = "(" * 500 + "a" + ")" * 500
    for pattern in ("^(a+)+$", "(x|a?){900}b", f"{groups}b"):
        assert MemorySearch(memory).search(pattern, regex=True).matches == ()


@pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1", "a{1001}", "*", "a" * 10_001, "\ud800"])
def test_what_is_no_regular_expression_is_refused_with_a_reason(pattern: str) -> None:
    with pytest.raises(ValueError, match="regular expression"):
        MemorySearch(AgentMemory.open("memory://")).search(pattern, regex=True)


def test_without_the_engine_a_regular_expression_is_refused_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(BackendNotAvailableError, match=r"agent-memory-files\[search\]"):
        MemorySearch(AgentMemory.open("memory://")).search("a", regex=True)


def test_whole_lines_are_returned_as_they_are() -> None:
    memory = AgentMemory.open("memory://")
    line = "\x1b[31m" + "word " * 1_000 + "end"
    memory.write("a.md", f"before{line}\n{line}\r\nafter{line}\n")
    (match,) = MemorySearch(memory).search("end\r", whole_lines=True, context=1).matches
    assert (match.before, match.text, match.after) == ([f"before{line}"], line + "\r", [f"after{line}"])
    (cut,) = MemorySearch(memory).search("end").matches[1:2]
    assert len(cut.text) < 310


def test_all_matches_are_returned_on_request() -> None:
    memory = AgentMemory.open("memory://")
    for number in range(30):
        memory.write(f"{number:02}.md", "match\n" * 100)
    found = MemorySearch(memory).search("match", max_results=None)
    assert (len(found.matches), found.more, found.next) == (3_000, False, None)


def test_a_search_by_an_async_caller_takes_the_same_arguments() -> None:
    async def search() -> list[int]:
        memory = AsyncAgentMemory.open("memory://")
        await memory.write("a.md", LINES)
        found = await AsyncMemorySearch(memory).search("^[aA]", regex=True, case_sensitive=True, max_results=None)
        return [match.line for match in found.matches]

    assert asyncio.run(search()) == [1, 2]


@pytest.mark.parametrize(("before", "after"), [(3, 0), (0, 3), (2, 2)])
def test_a_match_that_is_too_large_has_fewer_lines_around_it(before: int, after: int) -> None:
    match = LineMatch("a.md", 4, "needle", ["b" * 100] * before, ["a" * 100] * after)
    (shown,) = fitting(SearchResult((match,), False), 250).matches
    assert shown.size <= 250 < match.size
    assert shown.before or shown.after
