"""The listed tests of the memory tool, by their given names: sync and async, on every backend.

Where the list and the current documentation of the tool differ, the tests follow the documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.servers import Root
from tests.tools.calls import Call, Kind, opened, refused, succeeded

LISTING = "Here're the files and directories up to 2 levels deep in {}, excluding hidden items and node_modules:"
CONTENT = "Here's the content of {} with line numbers:"
MISSING = "The path /memories/missing.md does not exist. Please provide a valid path."


@pytest.fixture(params=["sync", "async"])
def tool(request: pytest.FixtureRequest, root: Root) -> Iterator[Callable[..., Call]]:
    """A factory of the tool, with its options, over an empty memory."""
    kind: Kind = request.param
    with opened(root, kind) as new_tool:
        yield new_tool


@pytest.fixture
def call(tool: Callable[..., Call]) -> Call:
    return tool()


def text_of(call: Call, path: str) -> str:
    """The stored text of a file, taken from its numbered lines."""
    output = succeeded(call("view", path=path))
    header, *rows = output.split("\n")
    assert header == CONTENT.format(path)
    assert [row[:7] for row in rows] == [f"{number:>6}\t" for number in range(1, len(rows) + 1)]
    return "\n".join(row[7:] for row in rows)


def is_missing(call: Call, path: str) -> bool:
    return refused(call("view", path=path)) == f"The path {path} does not exist. Please provide a valid path."


def create(call: Call, path: str, text: str) -> None:
    assert succeeded(call("create", path=path, file_text=text)) == f"File created successfully at: {path}"


def test_view_directory_listing(call: Call) -> None:
    assert succeeded(call("view", path="/memories")) == LISTING.format("/memories") + "\n0B\t/memories"
    create(call, "/memories/b.md", "12")
    create(call, "/memories/a/c/deep.md", "123")
    create(call, "/memories/a/c/d/deeper.md", "1234")
    rows = ["9B\t/memories", "7B\t/memories/a/", "7B\t/memories/a/c/", "2B\t/memories/b.md"]
    assert succeeded(call("view", path="/memories")) == "\n".join([LISTING.format("/memories"), *rows])
    rows = ["7B\t/memories/a", "7B\t/memories/a/c/", "4B\t/memories/a/c/d/", "3B\t/memories/a/c/deep.md"]
    assert succeeded(call("view", path="/memories/a")) == "\n".join([LISTING.format("/memories/a"), *rows])


def test_view_file_content(call: Call) -> None:
    create(call, "/memories/notes.txt", "Meeting notes:\n- Discussed project timeline")
    rows = "     1\tMeeting notes:\n     2\t- Discussed project timeline"
    assert succeeded(call("view", path="/memories/notes.txt")) == f"{CONTENT.format('/memories/notes.txt')}\n{rows}"


def test_view_with_range(call: Call) -> None:
    create(call, "/memories/notes.txt", "\n".join("abcde"))
    header = CONTENT.format("/memories/notes.txt")
    shown = succeeded(call("view", path="/memories/notes.txt", view_range=[2, 3]))
    assert shown == f"{header}\n     2\tb\n     3\tc"
    shown = succeeded(call("view", path="/memories/notes.txt", view_range=[4, -1]))
    assert shown == f"{header}\n     4\td\n     5\te"


def test_view_nonexistent_path(call: Call) -> None:
    assert refused(call("view", path="/memories/missing.md")) == MISSING
    assert succeeded(call("view", path="/memories")).endswith("\n0B\t/memories"), "looking created something"


def test_create_new_file(call: Call) -> None:
    create(call, "/memories/notes.txt", "Meeting notes:\n- Grüße, メモ\n")
    assert text_of(call, "/memories/notes.txt") == "Meeting notes:\n- Grüße, メモ\n"


def test_create_overwrite_file(tool: Callable[..., Call]) -> None:
    call, overwriting = tool(), tool(on_existing="overwrite")
    create(call, "/memories/notes.txt", "old")
    again = call("create", path="/memories/notes.txt", file_text="new")
    assert refused(again) == "Error: File /memories/notes.txt already exists"
    assert text_of(call, "/memories/notes.txt") == "old"
    create(overwriting, "/memories/notes.txt", "new")
    assert text_of(call, "/memories/notes.txt") == "new"


def test_create_with_nested_directory(call: Call) -> None:
    create(call, "/memories/a/b/c/notes.txt", "deep")
    assert text_of(call, "/memories/a/b/c/notes.txt") == "deep"


def test_str_replace_success(call: Call) -> None:
    create(call, "/memories/preferences.txt", "one\nFavorite color: blue\nthree\n")
    output = call(
        "str_replace",
        path="/memories/preferences.txt",
        old_str="Favorite color: blue",
        new_str="Favorite color: green",
    )
    rows = "     1\tone\n     2\tFavorite color: green\n     3\tthree\n     4\t"
    assert succeeded(output) == f"The memory file has been edited.\n{rows}"
    assert text_of(call, "/memories/preferences.txt") == "one\nFavorite color: green\nthree\n"


def test_str_replace_file_not_found(call: Call) -> None:
    output = call("str_replace", path="/memories/missing.md", old_str="a", new_str="b")
    assert refused(output) == f"Error: {MISSING}"
    assert is_missing(call, "/memories/missing.md")


def test_str_replace_string_not_found(call: Call) -> None:
    create(call, "/memories/notes.txt", "text")
    output = call("str_replace", path="/memories/notes.txt", old_str="Text", new_str="b")
    absent = "No replacement was performed, old_str `Text` did not appear verbatim in /memories/notes.txt."
    assert refused(output) == absent
    assert text_of(call, "/memories/notes.txt") == "text"


def test_insert_at_line(call: Call) -> None:
    create(call, "/memories/todo.txt", "one\ntwo\nthree\n")
    inserted = call(
        "insert", path="/memories/todo.txt", insert_line=2, insert_text="- Review memory tool documentation\n"
    )
    assert succeeded(inserted) == "The file /memories/todo.txt has been edited."
    assert text_of(call, "/memories/todo.txt") == "one\ntwo\n- Review memory tool documentation\nthree\n"


def test_insert_at_end(call: Call) -> None:
    create(call, "/memories/todo.txt", "one\ntwo")
    succeeded(call("insert", path="/memories/todo.txt", insert_line=2, insert_text="three"))
    assert text_of(call, "/memories/todo.txt") == "one\ntwo\nthree\n"
    refused(call("insert", path="/memories/todo.txt", insert_line=4, insert_text="five"))
    assert text_of(call, "/memories/todo.txt") == "one\ntwo\nthree\n"


def test_insert_in_empty_file(call: Call) -> None:
    create(call, "/memories/todo.txt", "")
    succeeded(call("insert", path="/memories/todo.txt", insert_line=0, insert_text="one"))
    assert text_of(call, "/memories/todo.txt") == "one\n"


def test_delete_file(call: Call) -> None:
    create(call, "/memories/old_file.txt", "old")
    create(call, "/memories/kept.txt", "kept")
    deleted = call("delete", path="/memories/old_file.txt")
    assert succeeded(deleted) == "Successfully deleted /memories/old_file.txt"
    assert is_missing(call, "/memories/old_file.txt")
    assert text_of(call, "/memories/kept.txt") == "kept"


def test_delete_directory(call: Call) -> None:
    create(call, "/memories/old/a.txt", "a")
    create(call, "/memories/old/deep/b.txt", "b")
    create(call, "/memories/older.txt", "kept")
    assert succeeded(call("delete", path="/memories/old")) == "Successfully deleted /memories/old"
    assert is_missing(call, "/memories/old")
    assert is_missing(call, "/memories/old/deep/b.txt")
    assert text_of(call, "/memories/older.txt") == "kept"


def test_delete_nonexistent(call: Call) -> None:
    create(call, "/memories/kept.txt", "kept")
    output = call("delete", path="/memories/missing.md")
    assert refused(output) == "Error: The path /memories/missing.md does not exist"
    assert text_of(call, "/memories/kept.txt") == "kept"


def test_rename_file(call: Call) -> None:
    create(call, "/memories/draft.txt", "text")
    renamed = call("rename", old_path="/memories/draft.txt", new_path="/memories/final.txt")
    assert succeeded(renamed) == "Successfully renamed /memories/draft.txt to /memories/final.txt"
    assert is_missing(call, "/memories/draft.txt")
    assert text_of(call, "/memories/final.txt") == "text"


def test_rename_directory(call: Call) -> None:
    create(call, "/memories/drafts/a.txt", "a")
    create(call, "/memories/drafts/deep/b.txt", "b")
    renamed = call("rename", old_path="/memories/drafts", new_path="/memories/finals")
    assert succeeded(renamed) == "Successfully renamed /memories/drafts to /memories/finals"
    assert is_missing(call, "/memories/drafts")
    assert text_of(call, "/memories/finals/a.txt") == "a"
    assert text_of(call, "/memories/finals/deep/b.txt") == "b"


def test_rename_cross_directory(call: Call) -> None:
    create(call, "/memories/drafts/a.txt", "a")
    succeeded(call("rename", old_path="/memories/drafts/a.txt", new_path="/memories/new/deep/b.txt"))
    assert is_missing(call, "/memories/drafts/a.txt")
    assert text_of(call, "/memories/new/deep/b.txt") == "a"


ESCAPES = {
    "dotdot": ["../kept.txt", "a/../../etc/passwd", "..", "..\\kept.txt", "a\\..\\..\\b"],
    "encoded": ["%2e%2e%2fkept.txt", "%2e%2e/x", "%252e%252e%252fx", "..%2fx", "%c0%ae%c0%ae/x"],
    "outside": ["/memoriesX/a.txt", "/memories2/evil.txt", "/MEMORIES/a", "memories/a", "a.txt", ""],
    "absolute": ["/etc/passwd", "/", "//memories/a", "C:\\memories\\a", "\\\\host\\share", "~/a"],
}


def said_of(call: Call, path: str) -> set[str]:
    """Call every command with a refused path: return the distinct messages. Check that nothing has changed."""
    before = succeeded(call("view", path="/memories")), text_of(call, "/memories/kept.txt")
    results = [
        call("view", path=path),
        call("create", path=path, file_text="x"),
        call("str_replace", path=path, old_str="kept", new_str="x"),
        call("insert", path=path, insert_line=0, insert_text="x"),
        call("delete", path=path),
        call("rename", old_path=path, new_path="/memories/x"),
        call("rename", old_path="/memories/kept.txt", new_path=path),
    ]
    assert (succeeded(call("view", path="/memories")), text_of(call, "/memories/kept.txt")) == before
    return {refused(result) for result in results}


def test_path_traversal_dotdot(call: Call) -> None:
    create(call, "/memories/kept.txt", "kept")
    for path in ESCAPES["dotdot"]:
        (output,) = said_of(call, f"/memories/{path}")
        assert "would escape /memories directory" in output


def test_path_traversal_encoded(call: Call) -> None:
    create(call, "/memories/kept.txt", "kept")
    for path in ESCAPES["encoded"]:
        (output,) = said_of(call, f"/memories/{path}")
        assert "would escape /memories directory" in output


def test_path_outside_memories(call: Call) -> None:
    create(call, "/memories/kept.txt", "kept")
    for path in ESCAPES["outside"]:
        assert said_of(call, path) == {f"Path must start with /memories, got: {path}"}


def test_absolute_path_rejected(call: Call) -> None:
    create(call, "/memories/kept.txt", "kept")
    for path in ESCAPES["absolute"]:
        assert said_of(call, path) == {f"Path must start with /memories, got: {path}"}
