"""The effects of the memory tool's commands on files, and their refusals."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

import pytest

from agent_memory import AgentMemory
from tests.support.names import NAMES, PASSES
from tests.tools.calls import Call, caller, everything, fill, refused, succeeded

EDITED = "The memory file has been edited.\n"


# create


def test_a_file_is_stored_byte_for_byte(memory: AgentMemory, call: Call) -> None:
    text = "\ufeffCRLF\r\nCR\rend\x00\x1b[0m\u2028日本\U0001f600"
    succeeded(call("create", path="/memories/a.md", file_text=text))
    assert everything(memory) == {"a.md": text.encode()}


@pytest.mark.parametrize("on_existing", ["error", "overwrite"])
@pytest.mark.parametrize("path", ["/memories", "/memories/", "/memories/d", "/memories/d/"])
def test_create_refuses_the_name_of_a_directory(memory: AgentMemory, on_existing: str, path: str) -> None:
    before = everything(fill(memory, {"a.md": "a", "d/b.md": "b"}))
    output = refused(caller(memory, on_existing=on_existing)("create", path=path, file_text="x"))
    assert output == f"Error: File {path.rstrip('/')} already exists"
    assert everything(memory) == before


def test_create_overwrites_if_the_option_allows_it(memory: AgentMemory) -> None:
    memory.write("a.md", "a longer text that was here before")
    created = caller(memory, on_existing="overwrite")("create", path="/memories/a.md", file_text="new")
    assert succeeded(created) == "File created successfully at: /memories/a.md"
    assert everything(memory) == {"a.md": b"new"}


def test_an_unknown_value_of_on_existing_is_refused(memory: AgentMemory) -> None:
    with pytest.raises(ValueError, match="on_existing must be 'error' or 'overwrite', not 'append'"):
        caller(memory, on_existing="append")


# str_replace


@pytest.mark.parametrize("new", [{}, {"new_str": None}, {"new_str": ""}])
def test_str_replace_without_a_new_text_deletes_the_old_one(
    memory: AgentMemory, call: Call, new: dict[str, str | None]
) -> None:
    memory.write("a.md", "one two three")
    output = succeeded(call("str_replace", path="/memories/a.md", old_str=" two", **new))
    assert output == f"{EDITED}     1\tone three"
    assert memory.read("a.md") == "one three"


def test_the_old_and_the_new_text_may_have_several_lines(memory: AgentMemory, call: Call) -> None:
    memory.write("a.md", "a\r\nb\r\nc\r\n")
    succeeded(call("str_replace", path="/memories/a.md", old_str="b\r\nc", new_str="$1\\1{x}\nd"))
    assert memory.read_bytes("a.md") == b"a\r\n$1\\1{x}\r\nd\r\n"


@pytest.mark.parametrize(
    ("old", "rows"),
    [
        ("line 1", "     1\tX\n     2\tline 2\n     3\tline 3"),
        ("line 5", "     3\tline 3\n     4\tline 4\n     5\tX\n     6\tline 6\n     7\tline 7"),
        ("line 9", "     7\tline 7\n     8\tline 8\n     9\tX"),
        ("line 3\nline 4\nline 5", "     1\tline 1\n     2\tline 2\n     3\tX\n     4\tline 6\n     5\tline 7"),
    ],
)
def test_the_snippet_shows_two_lines_around_the_first_changed_line(
    memory: AgentMemory, call: Call, old: str, rows: str
) -> None:
    memory.write("a.md", "\n".join(f"line {number}" for number in range(1, 10)))
    assert succeeded(call("str_replace", path="/memories/a.md", old_str=old, new_str="X")) == EDITED + rows


def test_the_snippet_of_a_long_new_text_ends_two_lines_after_its_first_line(memory: AgentMemory, call: Call) -> None:
    memory.write("a.md", "old\n")
    output = succeeded(call("str_replace", path="/memories/a.md", old_str="old", new_str="1\n2\n3\n4"))
    assert output == f"{EDITED}     1\t1\n     2\t2\n     3\t3"


def test_the_snippet_of_an_emptied_file_is_one_empty_line(memory: AgentMemory, call: Call) -> None:
    memory.write("a.md", "old\n")
    assert succeeded(call("str_replace", path="/memories/a.md", old_str="old\n")) == f"{EDITED}     1\t"


def test_a_snippet_is_cut_like_a_view(memory: AgentMemory) -> None:
    memory.write("a.md", "x" * 1000)
    output = succeeded(caller(memory, max_view_characters=10)("str_replace", path="/memories/a.md", old_str="x" * 1000))
    assert output == f"{EDITED}     1\t"
    succeeded(caller(memory)("insert", path="/memories/a.md", insert_line=0, insert_text="old"))
    call = caller(memory, max_view_characters=10)
    output = succeeded(call("str_replace", path="/memories/a.md", old_str="old", new_str="y" * 1000))
    assert output.startswith(f"{EDITED}     1\tyyy\n[Cut at 10 characters: ")


def test_an_empty_old_text_is_refused(memory: AgentMemory, call: Call) -> None:
    memory.write("a.md", "text")
    output = refused(call("str_replace", path="/memories/a.md", old_str="", new_str="x"))
    assert output == "No replacement was performed, old_str is empty; give the text to replace."
    assert memory.read("a.md") == "text"


@pytest.mark.parametrize(
    ("text", "old", "lines"),
    [
        ("b a b", "b", "1, 1"),
        ("x\nb\n\nb", "b", "2, 4"),
        ("aaa", "aa", "1, 1"),  # two overlapping occurrences
        ("aaaa", "aa", "1, 1, 1"),
        ("a\nb\na\nb\n", "a\nb", "1, 3"),
        ("a\nb\na\nb\na", "a\nb\na", "1, 3"),
    ],
)
def test_a_text_that_occurs_more_than_once_is_refused_with_all_line_numbers(
    memory: AgentMemory, call: Call, text: str, old: str, lines: str
) -> None:
    memory.write("a.md", text)
    output = refused(call("str_replace", path="/memories/a.md", old_str=old, new_str="x"))
    assert f"Multiple occurrences of old_str `{old}` in lines: {lines}. Please ensure it is unique" in output
    assert memory.read("a.md") == text


def test_the_message_about_a_long_text_or_many_occurrences_is_bounded(memory: AgentMemory, call: Call) -> None:
    memory.write("a.md", "x\n" * 10_000)
    output = refused(call("str_replace", path="/memories/a.md", old_str="x", new_str="y"))
    assert "99, 100 and more. Please ensure it is unique" in output
    output = refused(call("str_replace", path="/memories/a.md", old_str="y" * 1_000_000))
    assert f"old_str `{'y' * 1000}...` did not appear" in output


def test_replacing_a_text_with_itself_writes_nothing(memory: AgentMemory, call: Call) -> None:
    memory.write("a.md", "text")
    before = memory.stat("a.md")
    assert succeeded(call("str_replace", path="/memories/a.md", old_str="ex", new_str="ex")) == f"{EDITED}     1\ttext"
    assert memory.stat("a.md") == before


# insert


@pytest.mark.parametrize(
    ("text", "line", "addition", "result"),
    [
        ("a\nb\n", 0, "x", "x\na\nb\n"),
        ("a\nb\n", 1, "x", "a\nx\nb\n"),
        ("a\nb\n", 2, "x", "a\nb\nx\n"),
        ("a\nb", 2, "x", "a\nb\nx\n"),
        ("a\nb", 0, "x", "x\na\nb\n"),
        ("", 0, "x", "x\n"),
        ("\n", 1, "x", "\nx\n"),
        ("a\n", 1, "x\ny", "a\nx\ny\n"),
        ("a\n", 1, "x\n", "a\nx\n"),
        ("a\n", 0, "x\n\n\n", "x\na\n"),
        ("a\n", 0, "\n\nx", "\n\nx\na\n"),
        ("a\n", 0, "", "\na\n"),
        ("a\r\nb\r\n", 1, "x", "a\r\nx\r\nb\r\n"),
        ("a\r\nb\r\n", 2, "x\r\n", "a\r\nb\r\nx\r\n"),
        ("a\rb\u2028c\n", 1, "x", "a\rb\u2028c\nx\n"),
    ],
)
def test_lines_are_inserted_after_a_line_and_the_file_ends_with_a_newline(
    memory: AgentMemory, call: Call, text: str, line: int, addition: str, result: str
) -> None:
    memory.write("a.md", text)
    succeeded(call("insert", path="/memories/a.md", insert_line=line, insert_text=addition))
    assert memory.read("a.md") == result


@pytest.mark.parametrize(("text", "lines"), [("", 0), ("a", 1), ("a\n", 1), ("a\n\n", 2), ("a\rb\n", 1)])
def test_the_line_to_insert_after_must_exist(memory: AgentMemory, call: Call, text: str, lines: int) -> None:
    memory.write("a.md", text)
    for line in (-1, lines + 1, 10**100):
        output = refused(call("insert", path="/memories/a.md", insert_line=line, insert_text="x"))
        assert output.endswith(f"parameter: {line}. It should be within the range of lines of the file: [0, {lines}]")
    assert memory.read("a.md") == text


# delete and rename


@pytest.mark.parametrize("path", ["/memories", "/memories/", "/memories//", "/memories/."])
def test_the_root_is_neither_deleted_nor_renamed_nor_edited(memory: AgentMemory, call: Call, path: str) -> None:
    before = everything(fill(memory, {"a.md": "a", "d/b.md": "b"}))
    assert refused(call("delete", path=path)) == "Cannot delete the /memories directory itself"
    assert refused(call("rename", old_path=path, new_path="/memories/x")) == (
        "Cannot rename the /memories directory itself"
    )
    assert refused(call("rename", old_path="/memories/a.md", new_path=path)) == (
        "Error: The destination /memories already exists"
    )
    refused(call("str_replace", path=path, old_str="a", new_str="b"))
    refused(call("insert", path=path, insert_line=0, insert_text="x"))
    assert everything(memory) == before


@pytest.mark.parametrize("old", ["a.md", "d"])
@pytest.mark.parametrize("new", ["a.md", "d", "e", "e/c.md"])
def test_rename_overwrites_no_file(memory: AgentMemory, call: Call, old: str, new: str) -> None:
    before = everything(fill(memory, {"a.md": "a", "d/b.md": "b", "e/c.md": "c"}))
    output = refused(call("rename", old_path=f"/memories/{old}", new_path=f"/memories/{new}"))
    assert output == f"Error: The destination /memories/{new} already exists"
    assert everything(memory) == before


@pytest.mark.parametrize("new", ["d/inside", "d/e/deeper", "d/e/c.md/x", "./d//x"])
def test_renaming_a_directory_into_itself_is_refused(memory: AgentMemory, call: Call, new: str) -> None:
    before = everything(fill(memory, {"d/b.md": "b", "d/e/c.md": "c"}))
    output = refused(call("rename", old_path="/memories/d", new_path=f"/memories/{new}"))
    assert output == "Error: a directory cannot be moved or copied into itself"
    assert everything(memory) == before


def test_delete_and_rename_apply_to_a_directory_with_all_its_content(memory: AgentMemory, call: Call) -> None:
    fill(memory, {"d/b.md": "b", "d/.hidden/c.bin": b"\xff", "d2.md": "kept"})
    succeeded(call("rename", old_path="/memories/d/", new_path="/memories/new/deep"))
    assert everything(memory) == {"new/deep/b.md": b"b", "new/deep/.hidden/c.bin": b"\xff", "d2.md": b"kept"}
    succeeded(call("delete", path="/memories/new"))
    assert everything(memory) == {"d2.md": b"kept"}


# names

SUGGESTED = re.compile(r"; try (/memories/.+)\Z", re.DOTALL)


def test_the_refusal_of_a_name_suggests_a_valid_name(memory: AgentMemory, call: Call) -> None:
    names = [name for name, rule in NAMES if rule != PASSES and name not in ("", ".") and name == name.strip("/")]
    for name in names:
        output = refused(call("create", path=f"/memories/{name}", file_text="x"))
        suggested = SUGGESTED.search(output)
        assert suggested, output
        assert everything(memory) == {}
        succeeded(call("create", path=suggested[1], file_text="x"))
        assert everything(memory) == {suggested[1].removeprefix("/memories/"): b"x"}
        succeeded(call("delete", path=suggested[1]))
    assert len(names) > 50


def test_ordinary_names_work(memory: AgentMemory, call: Call) -> None:
    for name in (name for name, rule in NAMES if rule == PASSES):
        path = f"/memories/{name}"
        assert succeeded(call("create", path=path, file_text="x")) == f"File created successfully at: {path}"
        assert everything(memory) == {posixpath.normpath(name): b"x"}
        assert succeeded(call("delete", path=path)) == f"Successfully deleted {path}"


@pytest.mark.parametrize("on_existing", ["error", "overwrite"])
def test_the_message_for_a_path_below_a_file_says_so(memory: AgentMemory, on_existing: str) -> None:
    fill(memory, {"a.md": "a", "b.md": "b"})
    call = caller(memory, on_existing=on_existing)
    assert " lies below a file" in refused(call("create", path="/memories/a.md/c.md", file_text="x"))
    assert " lies below a file" in refused(call("rename", old_path="/memories/b.md", new_path="/memories/a.md/b.md"))
    assert everything(memory) == {"a.md": b"a", "b.md": b"b"}


@pytest.mark.parametrize("command", ["delete", "rename"])
def test_files_that_no_path_can_name_are_kept_and_counted(tmp_path: Path, command: str) -> None:
    with AgentMemory.open(tmp_path) as memory:
        memory.write("d/a.md", "a")
        (tmp_path / "d" / "b:c?.md").write_text("an editor's")
        call = caller(memory)
        paths = (
            {"path": "/memories/d"} if command == "delete" else {"old_path": "/memories/d", "new_path": "/memories/e"}
        )
        assert succeeded(call(command, **paths)).endswith("; 1 names in it are not valid paths and were left there")
    assert (tmp_path / "d" / "b:c?.md").read_text() == "an editor's"


def test_a_view_of_a_subtree_shows_no_name_above_it(tmp_path: Path) -> None:
    with AgentMemory.open(tmp_path) as memory:
        memory.write("deep/er/a.md", "a")
        (tmp_path / "deep" / "er" / "big.md").write_bytes(b"x" * 50_000_001)
        output = refused(caller(memory.subtree("deep/er"))("view", path="/memories/big.md"))
    assert output.startswith("Error: 'big.md': ")
