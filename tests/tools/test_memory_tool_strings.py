"""The "Exact strings" of Claude's memory tool, row by row: the set of the documentation and that of the Python SDK."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from anthropic.tools import BetaLocalFilesystemMemoryTool, ToolError

from agent_memory import AgentMemory
from agent_memory.tools import ToolResult
from tests.tools.calls import caller, fill

MILLION_LINES = "x\n" * 999_999
FILES: dict[str, str | bytes] = {
    "a.txt": "one\ntwo\nthree\nfour\nfive\n",
    "d/b.txt": "b\nb b\n",
    "d/e/f/deep.txt": "deep",
    "full.txt": MILLION_LINES[2:],
    "long.txt": MILLION_LINES,
    "bytes.bin": b"\xff\xfe\x00",
}
SNIPPET = "     1\tone\n     2\tzwei\n     3\tthree\n     4\tfour"


@dataclass(frozen=True)
class Row:
    """One case of the table: a call, and its answer in both sets; with ``sdk`` None the answers are equal."""

    case: str
    command: str
    parameters: dict[str, Any]
    docs: str
    sdk: str | None = None
    is_error: bool = False

    def answer(self, strings: str) -> ToolResult:
        output = self.sdk if strings == "sdk" and self.sdk is not None else self.docs
        return ToolResult(output, self.is_error)


@dataclass(frozen=True)
class Error(Row):
    """An answer that is an error."""

    is_error: bool = field(default=True)


A, D, MISSING, NEW = "/memories/a.txt", "/memories/d", "/memories/no.txt", "/memories/new/new.txt"
ROWS = [
    Row(
        "view dir: header and rows",
        "view",
        {"path": D},
        f"Here're the files and directories up to 2 levels deep in {D}, excluding hidden items and node_modules:\n"
        f"10B\t{D}\n6B\t{D}/b.txt\n4B\t{D}/e/\n4B\t{D}/e/f/",
        f"Here're the files and directories up to 2 levels deep in {D}, excluding hidden items:\n"
        f"10B\t{D}\n6B\t{D}/b.txt\n4B\t{D}/e/\n4B\t{D}/e/f/",
    ),
    Row(
        "view file",
        "view",
        {"path": "/memories/d/b.txt"},
        "Here's the content of /memories/d/b.txt with line numbers:\n     1\tb\n     2\tb b\n     3\t",
    ),
    Row(
        "view 999,999 lines",
        "view",
        {"path": "/memories/full.txt", "view_range": [999_998, -1]},
        "Here's the content of /memories/full.txt with line numbers:\n999998\tx\n999999\t",
    ),
    Error(
        "view > 999,999 lines",
        "view",
        {"path": "/memories/long.txt"},
        "File /memories/long.txt exceeds maximum line limit of 999,999 lines.",
    ),
    Error(
        "view missing",
        "view",
        {"path": MISSING},
        f"The path {MISSING} does not exist. Please provide a valid path.",
    ),
    Row("create ok", "create", {"path": NEW, "file_text": "x"}, f"File created successfully at: {NEW}"),
    Error(
        "create exists",
        "create",
        {"path": A, "file_text": "x"},
        f"Error: File {A} already exists",
        f"File {A} already exists",
    ),
    Row(
        "str_replace ok",
        "str_replace",
        {"path": A, "old_str": "two", "new_str": "zwei"},
        f"The memory file has been edited.\n{SNIPPET}",
        f"The memory file has been edited. Here is the snippet showing the change (with line numbers):\n{SNIPPET}",
    ),
    Error(
        "str_replace missing file",
        "str_replace",
        {"path": MISSING, "old_str": "two", "new_str": "zwei"},
        f"Error: The path {MISSING} does not exist. Please provide a valid path.",
        f"The path {MISSING} does not exist. Please provide a valid path.",
    ),
    Error(
        "str_replace directory",
        "str_replace",
        {"path": D, "old_str": "two", "new_str": "zwei"},
        f"Error: The path {D} does not exist. Please provide a valid path.",
        f"The path {D} is not a file.",
    ),
    Error(
        "str_replace not found",
        "str_replace",
        {"path": A, "old_str": "Two\n{x}", "new_str": "zwei"},
        f"No replacement was performed, old_str `Two\n{{x}}` did not appear verbatim in {A}.",
    ),
    Error(
        "str_replace duplicate",
        "str_replace",
        {"path": "/memories/d/b.txt", "old_str": "b", "new_str": "c"},
        "No replacement was performed. Multiple occurrences of old_str `b` in lines: 1, 2, 2. "
        "Please ensure it is unique",
    ),
    Row(
        "insert ok",
        "insert",
        {"path": A, "insert_line": 5, "insert_text": "six"},
        f"The file {A} has been edited.",
    ),
    Error(
        "insert missing",
        "insert",
        {"path": MISSING, "insert_line": 0, "insert_text": "x"},
        f"Error: The path {MISSING} does not exist",
        f"The path {MISSING} does not exist. Please provide a valid path.",
    ),
    Error(
        "insert bad line, past the end",
        "insert",
        {"path": A, "insert_line": 6, "insert_text": "x"},
        "Error: Invalid `insert_line` parameter: 6. It should be within the range of lines of the file: [0, 5]",
        "Invalid `insert_line` parameter: 6. It should be within the range [0, 5].",
    ),
    Error(
        "insert bad line, negative",
        "insert",
        {"path": A, "insert_line": -1, "insert_text": "x"},
        "Error: Invalid `insert_line` parameter: -1. It should be within the range of lines of the file: [0, 5]",
        "Invalid `insert_line` parameter: -1. It should be within the range [0, 5].",
    ),
    Error(
        "insert directory",
        "insert",
        {"path": D, "insert_line": 0, "insert_text": "x"},
        f"Error: The path {D} does not exist",
        f"The path {D} is not a file.",
    ),
    Row("delete ok", "delete", {"path": A}, f"Successfully deleted {A}"),
    Row("delete directory", "delete", {"path": D}, f"Successfully deleted {D}"),
    Error(
        "delete missing",
        "delete",
        {"path": MISSING},
        f"Error: The path {MISSING} does not exist",
        f"The path {MISSING} does not exist",
    ),
    Error("delete root", "delete", {"path": "/memories"}, "Cannot delete the /memories directory itself"),
    Row("rename ok", "rename", {"old_path": A, "new_path": NEW}, f"Successfully renamed {A} to {NEW}"),
    Row("rename directory", "rename", {"old_path": D, "new_path": NEW}, f"Successfully renamed {D} to {NEW}"),
    Error(
        "rename missing",
        "rename",
        {"old_path": MISSING, "new_path": NEW},
        f"Error: The path {MISSING} does not exist",
        f"The path {MISSING} does not exist",
    ),
    Error(
        "rename dest exists",
        "rename",
        {"old_path": A, "new_path": D},
        f"Error: The destination {D} already exists",
        f"The destination {D} already exists",
    ),
    Error(
        "rename root",
        "rename",
        {"old_path": "/memories", "new_path": NEW},
        "Cannot rename the /memories directory itself",
    ),
    Error("outside root", "view", {"path": "/etc/passwd"}, "Path must start with /memories, got: /etc/passwd"),
    Error(
        "outside root, escape",
        "view",
        {"path": "/memories/../x"},
        "Path /memories/../x would escape /memories directory; try /memories/x",
        "Path /memories/../x would escape /memories directory",
    ),
    Error("unsupported", "view", {"path": "/memories/bytes.bin"}, "Unsupported file type for /memories/bytes.bin"),
]
IDS = [row.case for row in ROWS]
every_row = pytest.mark.parametrize("row", ROWS, ids=IDS)


@pytest.mark.parametrize("strings", ["docs", "sdk"])
@every_row
def test_every_row_of_the_table_is_answered_word_for_word(
    memory: AgentMemory, row: Row, strings: Literal["docs", "sdk"]
) -> None:
    call = caller(fill(memory, FILES), strings=strings)
    assert call(row.command, **row.parameters) == row.answer(strings)


BEYOND_THE_SDK = {
    "view dir: header and rows": "its size of a directory is that of the inode",
    "unsupported": "it raises UnicodeDecodeError for bytes that are no text, and has this string for sockets and pipes",
}


@pytest.mark.parametrize("row", [row for row in ROWS if row.case not in BEYOND_THE_SDK], ids=lambda row: row.case)
def test_the_sdk_set_equals_the_answers_of_the_sdk(tmp_path: Path, row: Row) -> None:
    tool = BetaLocalFilesystemMemoryTool(str(tmp_path))
    with AgentMemory.open(tmp_path / "memories") as memory:
        fill(memory, FILES)
    try:
        answer = ToolResult(str(tool.call({"command": row.command, **row.parameters})))
    except ToolError as error:
        answer = ToolResult(str(error), is_error=True)
    assert answer == row.answer("sdk")


@pytest.mark.parametrize("strings", ["docs", "sdk"])
def test_a_symbolic_link_is_not_followed(tmp_path: Path, strings: Literal["docs", "sdk"]) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    root = tmp_path / "root"
    root.mkdir()
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    (root / "up").symlink_to(tmp_path)
    call = caller(AgentMemory.open(root), strings=strings)
    said = ToolResult("Path would escape /memories directory via symlink", is_error=True)
    for path in ("/memories/link.txt", "/memories/up/secret.txt"):
        assert call("view", path=path) == said
        assert call("str_replace", path=path, old_str="secret", new_str="x") == said
        assert call("insert", path=path, insert_line=0, insert_text="x") == said
    assert call("create", path="/memories/up/new.txt", file_text="x") == said
    assert (tmp_path / "secret.txt").read_text() == "secret"
    assert not (tmp_path / "new.txt").exists()


def test_an_unknown_set_is_refused(memory: AgentMemory) -> None:
    with pytest.raises(ValueError, match="strings must be 'docs' or 'sdk', not 'typescript'"):
        caller(memory, strings="typescript")
