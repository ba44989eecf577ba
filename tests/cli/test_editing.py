"""edit: by --replace and by an editor; what others write, and what the user typed, is never lost."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from agent_memory import AgentMemoryService

Run = Callable[..., Result]


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a Python program the user's editor; it is given the name of the file to edit as ``name``."""

    def use(program: str) -> None:
        file = tmp_path / "editor.py"
        file.write_text(f"import pathlib, sys\nname = pathlib.Path(sys.argv[1])\n{program}\n")
        monkeypatch.setenv("EDITOR", f"{shlex.quote(sys.executable)} {shlex.quote(str(file))}")

    return use


def content(path: str = "a.md") -> bytes:
    with AgentMemoryService(".agent-memory") as service:
        return service.agent("default").read_bytes(path)


def test_replace_changes_the_one_occurrence(run: Run) -> None:
    run("write", "a.md", "- [ ] milk\r\n- [ ] eggs\r\n")
    assert run("edit", "a.md", "--replace", "- [ ] milk", "- [x] milk").exit_code == 0
    assert content() == b"- [x] milk\r\n- [ ] eggs\r\n"


def test_replace_may_delete(run: Run) -> None:
    run("write", "a.md", "keep drop")
    assert run("edit", "a.md", "--replace", " drop", "").exit_code == 0
    assert content() == b"keep"


def test_replace_refuses_a_text_that_does_not_occur(run: Run) -> None:
    run("write", "a.md", "one")
    result = run("edit", "a.md", "--replace", "two", "three")
    assert result.exit_code == 1
    assert "does not occur" in result.stderr
    assert content() == b"one"


def test_replace_names_the_lines_when_the_text_occurs_more_than_once(run: Run) -> None:
    run("write", "a.md", "x\ny\nx\n\nx")
    result = run("edit", "a.md", "--replace", "x", "z")
    assert result.exit_code == 1
    assert "occurs 3 times, on line 1, 3, 5" in result.stderr
    assert content() == b"x\ny\nx\n\nx"


def test_occurrences_that_overlap_are_ambiguous(run: Run) -> None:
    run("write", "a.md", "aaa")
    assert "occurs 2 times" in run("edit", "a.md", "--replace", "aa", "b").stderr


def test_replace_of_nothing_is_wrong_usage(run: Run) -> None:
    assert run("edit", "a.md", "--replace", "", "x").exit_code == 2


def test_a_missing_file_is_not_edited(run: Run) -> None:
    assert run("edit", "a.md").exit_code == 3
    assert run("edit", "a.md", "--replace", "a", "b").exit_code == 3


def test_the_editor_gets_and_gives_the_exact_bytes(run: Run, editor: Callable[[str], None]) -> None:
    before = "\ufeffone\r\ntwo"
    run("write", "a.md", given=before.encode())
    editor("name.write_bytes(name.read_bytes() + b'\\r\\nthree')")
    assert run("edit", "a.md").exit_code == 0
    assert content() == before.encode() + b"\r\nthree"


def test_an_editor_that_changes_nothing_writes_nothing(run: Run, editor: Callable[[str], None]) -> None:
    run("write", "a.md", "one")
    editor("pass")
    assert "unchanged" in run("edit", "a.md").stdout
    assert json.loads(run("edit", "a.md", "--json").stdout)["unchanged"] is True


def test_a_conflict_keeps_both_the_others_text_and_the_users(run: Run, editor: Callable[[str], None]) -> None:
    run("write", "a.md", "one")
    editor(
        "from agent_memory import AgentMemoryService\n"
        "AgentMemoryService('.agent-memory').agent('default').write('a.md', 'theirs')\n"
        "name.write_text('mine')"
    )
    result = run("edit", "a.md")
    assert result.exit_code == 4
    assert content() == b"theirs"
    kept = re.search(r"kept in (\S+)", result.stderr)
    assert kept is not None
    assert Path(kept[1]).read_text() == "mine"
    Path(kept[1]).unlink()


def test_a_text_that_cannot_be_stored_is_kept_too(run: Run, editor: Callable[[str], None]) -> None:
    run("write", "a.md", "one")
    editor("name.write_bytes(b'caf\\xe9')")
    result = run("edit", "a.md", "--json")
    error = json.loads(result.stderr)["error"]
    assert (result.exit_code, content()) == (5, b"one")
    assert Path(error["kept"]).read_bytes() == b"caf\xe9"
    Path(error["kept"]).unlink()


def test_an_editor_that_fails_is_one_line(run: Run, editor: Callable[[str], None]) -> None:
    run("write", "a.md", "one")
    editor("sys.exit(3)")
    result = run("edit", "a.md")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert content() == b"one"
