"""How the memory tool shows files and directories: numbered lines, sizes, ranges, and complete pages."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_memory import AgentMemory
from agent_memory.tools._views import readable
from agent_memory.tools.memory_tool import MAX_VIEW_CHARACTERS
from tests.support.sizes import examples
from tests.tools.calls import Call, caller, fill, refused, succeeded

HINT = re.compile(
    r"\n\[Cut at [\d,]+ characters: [^\n;]*(?:; view its rest with view_range \[\d+, -1\] and line_offset (\d+))?"
    r"(?:; view the next with view_range \[(\d+), -1\])?\]\Z"
)
LINE = re.compile(r" *(\d+)\t")


def body(output: str) -> str:
    """A view without its header."""
    return output.partition("\n")[2]


def numbered(lines: list[str], first: int = 1) -> str:
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, first))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("\n", ["", ""]),
        ("a", ["a"]),
        ("a\nb\n", ["a", "b", ""]),
        ("a\r\nb\rc\r\n", ["a", "b\rc", ""]),
        ("a\x0cb\x0bc\x85d\u2028e\u2029f\x1cg", ["a\x0cb\x0bc\x85d\u2028e\u2029f\x1cg"]),
        ("\ufeff\tcolumn\0\ufeff", ["\tcolumn\0\ufeff"]),
    ],
)
def test_lines_end_only_at_newlines_and_the_rest_is_a_line_too(
    memory: AgentMemory, call: Call, text: str, lines: list[str]
) -> None:
    memory.write("a.md", text)
    assert body(succeeded(call("view", path="/memories/a.md"))) == numbered(lines)


@pytest.mark.parametrize(
    ("view_range", "first", "lines"),
    [
        ([1, 5], 1, "abcde"),
        ([2, 4], 2, "bcd"),
        ([3, 3], 3, "c"),
        ([4, -1], 4, "de"),
        ([0, 2], 1, "ab"),
        ([-7, 2], 1, "ab"),
        ([4, 99], 4, "de"),
        ([5, 10**30], 5, "e"),
        ([6, -1], 6, ""),
        ([10**30, -1], 1, ""),
        ([4, 3], 4, ""),
        ([1, 0], 1, ""),
        ([1, -2], 1, ""),
        ([2], 1, "abcde"),
        ([], 1, "abcde"),
        ([2, 3, 4], 1, "abcde"),
        (None, 1, "abcde"),
    ],
)
def test_a_range_is_clipped_to_the_file_and_an_invalid_range_is_ignored(
    memory: AgentMemory, call: Call, view_range: list[int] | None, first: int, lines: str
) -> None:
    memory.write("a.md", "\n".join("abcde"))
    output = succeeded(call("view", path="/memories/a.md", view_range=view_range))
    assert output == f"Here's the content of /memories/a.md with line numbers:\n{numbered(list(lines), first)}"


def test_a_range_of_a_directory_is_ignored(memory: AgentMemory, call: Call) -> None:
    fill(memory, {"a.md": "a", "b.md": "b"})
    whole = call("view", path="/memories")
    assert call("view", path="/memories", view_range=[2, 2]) == whole
    assert "/memories/b.md" in whole.output


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0B"), (1, "1B"), (1023, "1023B"), (1024, "1K"), (1536, "1.5K"), (2048, "2K"), (1_153_434, "1.1M")],
)
def test_a_size_is_an_integer_or_has_one_decimal(memory: AgentMemory, call: Call, size: int, shown: str) -> None:
    memory.write("a.md", "x" * size)
    rows = body(succeeded(call("view", path="/memories")))
    assert rows == f"{shown}\t/memories\n{shown}\t/memories/a.md"


def test_the_largest_unit_of_sizes_is_the_gigabyte() -> None:
    assert readable(1024**2) == "1M"
    assert readable(1024**2 - 1) == "1024.0K"
    assert readable(3 * 1024**3 // 2) == "1.5G"
    assert readable(5 * 1024**4) == "5120G"


def test_hidden_names_and_node_modules_are_not_listed_and_not_counted(memory: AgentMemory, call: Call) -> None:
    unlisted = [".hidden.md", ".git/config", "node_modules/x.js", "d/.env", "d/node_modules/y/z.js", "d/e/.f/g.md"]
    fill(memory, dict.fromkeys(unlisted, "1234567890"))
    memory.write("d/e/node_modules.md", "1")
    rows = "1B\t/memories\n1B\t/memories/d/\n1B\t/memories/d/e/"
    assert body(succeeded(call("view", path="/memories"))) == rows
    assert body(succeeded(call("view", path="/memories/node_modules"))) == (
        "10B\t/memories/node_modules\n10B\t/memories/node_modules/x.js"
    )
    assert body(succeeded(call("view", path="/memories/.git"))) == "10B\t/memories/.git\n10B\t/memories/.git/config"


def test_a_directory_is_listed_before_its_content_and_names_are_sorted(memory: AgentMemory, call: Call) -> None:
    fill(memory, dict.fromkeys(["b", "a/z", "a/b/c", "a/b/c2/d", "a.md", "B", "é", "a b"], "x"))
    names = [row.partition("\t")[2] for row in body(succeeded(call("view", path="/memories"))).split("\n")]
    shown = ["", "/B", "/a/", "/a/b/", "/a/z", "/a b", "/a.md", "/b", "/é"]
    assert names == [f"/memories{name}" for name in shown]


@pytest.mark.parametrize("path", ["/memories", "/memories/", "/memories//", "/memories/."])
def test_every_spelling_of_the_root_shows_the_root(memory: AgentMemory, call: Call, path: str) -> None:
    memory.write("a.md", "1")
    assert body(succeeded(call("view", path=path))) == "1B\t/memories\n1B\t/memories/a.md"


@pytest.mark.parametrize("path", ["d/e/", "d//e", "./d/e", "d/./e", "d/e//"])
def test_every_spelling_of_a_directory_shows_that_directory(memory: AgentMemory, call: Call, path: str) -> None:
    memory.write("d/e/f.md", "1")
    rows = body(succeeded(call("view", path=f"/memories/{path}"))).split("\n")
    assert [row.rpartition("/")[2] for row in rows][1:] == ["f.md"]


def pages(call: Call, path: str) -> list[str]:
    """The rows of a file, page by page along the hints; the parts of a long line are joined again."""
    rows: list[str] = []
    place: dict[str, object] = {}
    while True:
        output = body(succeeded(call("view", path=path, **place)))
        hint = HINT.search(output)
        found = output[: hint.start() if hint else None].split("\n")
        if "line_offset" in place:
            rows[-1] += LINE.sub("", found.pop(0), count=1)
        rows += found
        if not hint:
            return rows
        if hint[1]:
            line = LINE.match(found[-1] if found else rows[-1])
            assert line
            place = {"view_range": [int(line[1]), -1], "line_offset": int(hint[1])}
        else:
            place = {"view_range": [int(hint[2]), -1]}


@examples(100)
@given(
    st.lists(st.text("ab\t[]\r", max_size=12) | st.integers(0, 60).map("x".__mul__), max_size=40), st.integers(8, 200)
)
@example([f"[Cut at 1 characters: line 1 of 9 is longer; view the next with view_range [{n}, -1]]" for n in "123"], 99)
def test_following_the_hints_shows_every_line_exactly_once(lines: list[str], limit: int) -> None:
    memory = AgentMemory.open("memory://")
    memory.write("a.md", text := "\n".join(lines))
    whole = numbered(text.replace("\r\n", "\n").split("\n")).split("\n")
    rows = pages(caller(memory, max_view_characters=limit), "/memories/a.md")
    assert rows == whole


def test_a_long_file_is_cut_at_the_limit_with_a_hint(memory: AgentMemory, call: Call) -> None:
    memory.write("a.md", "0123456789\n" * 2000)
    output = body(succeeded(call("view", path="/memories/a.md")))
    rows, _, hint = output.rpartition("\n")
    assert MAX_VIEW_CHARACTERS - 18 < len(rows) <= MAX_VIEW_CHARACTERS
    assert hint == (
        "[Cut at 16,000 characters: lines 1-888 of 2001 are shown; view the next with view_range [889, -1]]"
    )
    following = body(succeeded(call("view", path="/memories/a.md", view_range=[889, 890])))
    assert following == "   889\t0123456789\n   890\t0123456789"


def test_a_view_that_exactly_reaches_the_limit_is_not_cut(memory: AgentMemory) -> None:
    memory.write("a.md", "abc\nde")
    rows = "     1\tabc\n     2\tde"
    assert body(succeeded(caller(memory, max_view_characters=len(rows))("view", path="/memories/a.md"))) == rows
    cut = body(succeeded(caller(memory, max_view_characters=len(rows) - 1)("view", path="/memories/a.md")))
    assert cut.startswith("     1\tabc\n[Cut at 19 characters: lines 1-1 of 2 are shown; ")


def test_a_single_long_line_is_cut_with_a_hint_how_to_continue(memory: AgentMemory) -> None:
    memory.write("a.md", "x" * 100_000 + "\nnext\n" + "y" * 100_000)
    call = caller(memory, max_view_characters=20)
    first = body(succeeded(call("view", path="/memories/a.md")))
    hint = "view its rest with view_range [1, -1] and line_offset 13; view the next with view_range [2, -1]"
    assert first == f"     1\t{'x' * 13}\n[Cut at 20 characters: line 1 of 3 is longer; {hint}]"
    last = body(succeeded(call("view", path="/memories/a.md", view_range=[3, -1])))
    hint = "view its rest with view_range [3, -1] and line_offset 13"
    assert last == f"     3\t{'y' * 13}\n[Cut at 20 characters: line 3 of 3 is longer; {hint}]"
    rest = body(succeeded(call("view", path="/memories/a.md", view_range=[1, -1], line_offset=99_990)))
    assert rest.startswith("     1\txxxxxxxxxx\n[Cut at 20 characters: lines 1-1 of 3 are shown; ")


def test_a_huge_listing_is_cut_and_a_subdirectory_can_be_viewed_separately(memory: AgentMemory, call: Call) -> None:
    fill(memory, {f"{name}/{number:04}.md": "x" for name in "ab" for number in range(600)})
    output = body(succeeded(call("view", path="/memories")))
    assert len(output) < MAX_VIEW_CHARACTERS + 200
    *rows, hint = output.split("\n")
    assert rows[:3] == ["1.2K\t/memories", "600B\t/memories/a/", "1B\t/memories/a/0000.md"]
    shown = len(rows) - 1
    assert f"names 1-{shown} of 1202 are shown; view the next with view_range [{shown + 1}, -1], or" in hint
    assert body(succeeded(call("view", path="/memories/b"))).endswith("/memories/b/0599.md")


def test_following_the_hints_of_a_huge_directory_shows_every_name_once(memory: AgentMemory, call: Call) -> None:
    fill(memory, {f"{number:04}.md": "x" for number in range(1000)})
    names: list[str] = []
    start = 1
    while start:
        directory, *rows, hint = body(succeeded(call("view", path="/memories", view_range=[start, -1]))).split("\n")
        assert directory == "1000B\t/memories"
        names += (row.partition("\t/memories/")[2] for row in rows)
        following = re.search(r"view_range \[(\d+), -1\]", hint)
        start = int(following[1]) if following else 0
    assert names == [f"{number:04}.md" for number in range(1000)]


def test_a_listing_shows_the_directory_and_one_name_for_any_limit(memory: AgentMemory) -> None:
    fill(memory, {"a.md": "x", "b.md": "x"})
    output = body(succeeded(caller(memory, max_view_characters=1)("view", path="/memories")))
    assert output.startswith("2B\t/memories\n1B\t/memories/a.md\n[Cut at 1 characters: names 1-1 of 2 are shown; ")


def test_the_names_of_a_cut_listing_fit_with_the_directory(memory: AgentMemory) -> None:
    fill(memory, dict.fromkeys(["a.md", "b.md", "c.md", "d.md"], "x"))
    output = body(succeeded(caller(memory, max_view_characters=40)("view", path="/memories")))
    assert output.startswith("4B\t/memories\n1B\t/memories/a.md\n[Cut at 40 characters: names 1-1 of 4 are shown; ")


@pytest.mark.parametrize("content", [b"\xff", b"text\n\xc3", b"\xed\xa0\x80", "text".encode("utf-16")])
def test_a_file_that_is_no_utf8_text_is_an_unsupported_file_type(
    memory: AgentMemory, call: Call, content: bytes
) -> None:
    memory.write("a.png", content)
    assert refused(call("view", path="/memories/a.png")) == "Unsupported file type for /memories/a.png"
    assert f"{len(content)}B\t/memories/a.png" in succeeded(call("view", path="/memories"))
    for edit in (
        call("str_replace", path="/memories/a.png", old_str="t", new_str="x"),
        call("insert", path="/memories/a.png", insert_line=0, insert_text="x"),
    ):
        assert refused(edit) == "Unsupported file type for /memories/a.png"
    assert memory.read_bytes("a.png") == content


def test_a_limit_below_one_character_is_refused(memory: AgentMemory) -> None:
    with pytest.raises(ValueError, match="max_view_characters must be at least 1"):
        caller(memory, max_view_characters=0)
