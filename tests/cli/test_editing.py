"""edit with --replace and with an editor: neither a concurrent write nor the user's text is ever lost."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from agent_memory import AgentMemoryService
from agent_memory.cli.files import USUAL_EDITORS

Run = Callable[..., Result]
HOSTILE_NAMES = [
    "a.;touch pwned",
    "a; touch pwned.md",
    "a.$(touch pwned)",
    "$(touch pwned).md",
    "a.md`touch pwned`",
    "`touch pwned`",
    "a.md' ; touch pwned ; '",
    "a.&touch pwned",
    "--help",
    "-c touch pwned",
    "+!touch pwned",
]


@pytest.fixture(autouse=True)
def _files_of_editors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))


@pytest.fixture
def left(tmp_path: Path) -> Callable[[], list[Path]]:
    """The remaining temporary files."""
    return lambda: [path for path in (tmp_path / "tmp").rglob("*") if path.is_file()]


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make a Python program the user's editor; the program gets the path of the edited file as ``name``."""

    def use(program: str) -> None:
        file = tmp_path / "editor.py"
        file.write_text(f"import pathlib, sys\nname = pathlib.Path(sys.argv[1])\n{program}\n")
        monkeypatch.setenv("EDITOR", f"{shlex.quote(sys.executable)} {shlex.quote(str(file))}")

    return use


def content(path: str = "a.md") -> bytes:
    with AgentMemoryService(".agent-memory") as service:
        return service.agent("default").read_bytes(path)


def test_replace_changes_the_only_occurrence(run: Run) -> None:
    run("write", "a.md", "- [ ] milk\r\n- [ ] eggs\r\n")
    assert run("edit", "a.md", "--replace", "- [ ] milk", "- [x] milk").exit_code == 0
    assert content() == b"- [x] milk\r\n- [ ] eggs\r\n"


def test_replace_with_an_empty_text_deletes(run: Run) -> None:
    run("write", "a.md", "keep drop")
    assert run("edit", "a.md", "--replace", " drop", "").exit_code == 0
    assert content() == b"keep"


def test_replace_refuses_a_text_that_does_not_occur(run: Run) -> None:
    run("write", "a.md", "one")
    result = run("edit", "a.md", "--replace", "two", "three")
    assert result.exit_code == 1
    assert "does not occur" in result.stderr
    assert content() == b"one"


def test_replace_names_the_lines_if_the_text_occurs_more_than_once(run: Run) -> None:
    run("write", "a.md", "x\ny\nx\n\nx")
    result = run("edit", "a.md", "--replace", "x", "z")
    assert result.exit_code == 1
    assert "occurs 3 times, on line 1, 3, 5" in result.stderr
    assert content() == b"x\ny\nx\n\nx"


def test_occurrences_that_overlap_are_ambiguous(run: Run) -> None:
    run("write", "a.md", "aaa")
    assert "occurs 2 times" in run("edit", "a.md", "--replace", "aa", "b").stderr


def test_replacing_an_empty_text_is_a_usage_error(run: Run) -> None:
    assert run("edit", "a.md", "--replace", "", "x").exit_code == 2


def test_a_missing_file_is_not_edited(run: Run) -> None:
    assert run("edit", "a.md").exit_code == 3
    assert run("edit", "a.md", "--replace", "a", "b").exit_code == 3


def test_the_editor_receives_and_stores_the_exact_bytes(run: Run, editor: Callable[[str], None]) -> None:
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


def test_a_conflict_keeps_the_other_writers_text_and_the_users_text(run: Run, editor: Callable[[str], None]) -> None:
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
    assert stat.S_IMODE(Path(kept[1]).stat().st_mode) == 0o600


def test_a_text_that_cannot_be_stored_is_kept_in_its_temporary_file(run: Run, editor: Callable[[str], None]) -> None:
    run("write", "a.md", "one")
    editor("name.write_bytes(b'caf\\xe9')")
    result = run("edit", "a.md", "--json")
    error = json.loads(result.stderr)["error"]
    assert (result.exit_code, content()) == (5, b"one")
    assert Path(error["kept"]).read_bytes() == b"caf\xe9"


def test_a_failing_editor_prints_one_line(run: Run, editor: Callable[[str], None]) -> None:
    run("write", "a.md", "one")
    editor("sys.exit(3)")
    result = run("edit", "a.md")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert content() == b"one"


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_no_part_of_a_name_is_in_the_editors_command(
    run: Run, editor: Callable[[str], None], name: str, tmp_path: Path
) -> None:
    with AgentMemoryService(".agent-memory") as service:
        service.agent("default").write(name, "one")
    before = set(tmp_path.iterdir())
    editor(
        "import json, stat\n"
        "seen = [sys.argv[1:], stat.S_IMODE(name.stat().st_mode), stat.S_IMODE(name.parent.stat().st_mode)]\n"
        f"pathlib.Path({str(tmp_path / 'seen.json')!r}).write_text(json.dumps(seen))\n"
        "name.write_text('two')"
    )
    result = run("edit", "--", name)
    assert (result.exit_code, content(name)) == (0, b"two"), result.output
    arguments, mode, mode_of_directory = json.loads((tmp_path / "seen.json").read_text())
    assert [Path(argument).name for argument in arguments] == ["memory.md"]
    assert (mode, mode_of_directory) == (0o600, 0o700)
    assert set(tmp_path.iterdir()) - before == {tmp_path / "seen.json", tmp_path / "editor.py"}


def test_the_temporary_file_is_removed(run: Run, editor: Callable[[str], None], left: Callable[[], list[Path]]) -> None:
    run("write", "a.md", "one")
    for program, code in (("pass", 0), ("name.write_text('two')", 0), ("sys.exit(3)", 1), ("name.unlink()", 1)):
        editor(program)
        assert run("edit", "a.md").exit_code == code
        assert left() == []


def test_a_text_is_kept_when_the_editor_fails_after_writing_it(
    run: Run, editor: Callable[[str], None], left: Callable[[], list[Path]]
) -> None:
    run("write", "a.md", "one")
    editor("name.write_text('mine')\nsys.exit(3)")
    result = run("edit", "a.md")
    assert (result.exit_code, content()) == (1, b"one")
    assert [path.read_text() for path in left()] == ["mine"]
    assert f"ended with 3; your text is kept in {left()[0]}" in result.stderr


def test_an_editor_may_replace_the_file(run: Run, editor: Callable[[str], None]) -> None:
    run("write", "a.md", "one")
    editor("new = name.with_name('new')\nnew.write_text('two')\nnew.replace(name)")
    assert run("edit", "a.md").exit_code == 0
    assert content() == b"two"


def test_the_editors_arguments_are_split_but_not_expanded(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run("write", "a.md", "one")
    file = tmp_path / "an editor.py"
    file.write_text("import pathlib, sys\npathlib.Path(sys.argv[-1]).write_text(repr(sys.argv[1:-1]))")
    given = [sys.executable, str(file), "-w", "$HOME", "a b; touch pwned"]
    monkeypatch.setenv("VISUAL", shlex.join(given))
    monkeypatch.setenv("EDITOR", "no-such-editor")
    assert run("edit", "a.md").exit_code == 0
    assert content().decode() == repr(given[2:])


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("no-such-editor -w", "the editor 'no-such-editor' cannot be started: No such file"),
        ("'", "the editor's command in $VISUAL or $EDITOR cannot be parsed: No closing quotation"),
        (os.devnull, "cannot be started: Permission denied"),
    ],
)
def test_an_editor_that_cannot_start_is_reported(
    run: Run, monkeypatch: pytest.MonkeyPatch, left: Callable[[], list[Path]], command: str, told: str
) -> None:
    run("write", "a.md", "one")
    monkeypatch.setenv("EDITOR", command)
    result = run("edit", "a.md")
    assert result.exit_code == 1
    assert told in result.stderr
    assert left() == []


@pytest.mark.parametrize("blank", ["", "  "])
def test_an_installed_editor_is_used_if_no_variable_names_one(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, blank: str
) -> None:
    run("write", "a.md", "one")
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("VISUAL", blank)
    monkeypatch.setenv("EDITOR", blank)
    assert "no editor was found: set $EDITOR" in run("edit", "a.md").stderr
    for name in reversed(USUAL_EDITORS):
        (programs / name).write_text(f'#!/bin/sh\nprintf {name} > "$1"\n')
        (programs / name).chmod(0o755)
        assert run("edit", "a.md").exit_code == 0
        assert content() == name.encode()


def test_an_interrupt_during_the_editor_does_not_end_the_command(
    run: Run, editor: Callable[[str], None], script: str, tmp_path: Path
) -> None:
    run("write", "a.md", "one")
    editor(
        "import os, signal, time\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "for _ in range(3):\n"
        "    time.sleep(0.3)\n"
        "    os.killpg(os.getpgrp(), signal.SIGINT)\n"
        "time.sleep(0.3)\n"
        "name.write_text('two')"
    )
    ended = subprocess.run([script, "edit", "a.md"], cwd=tmp_path, capture_output=True, process_group=0, check=False)
    assert (ended.returncode, content()) == (0, b"two"), ended.stderr


def test_a_signal_to_the_command_ends_the_editor_and_keeps_the_text(
    run: Run, editor: Callable[[str], None], script: str, tmp_path: Path
) -> None:
    run("write", "a.md", "one")
    editor(
        "import os, signal, time\n"
        "name.write_text('two')\n"
        "os.kill(os.getppid(), signal.SIGTERM)\n"
        "for _ in range(6000):\n"
        "    time.sleep(0.01)"
    )
    ended = subprocess.run([script, "edit", "a.md"], cwd=tmp_path, capture_output=True, check=False)
    assert (ended.returncode, content()) == (143, b"one")
    assert b"Your text is kept in" in ended.stderr


def test_an_editor_ended_by_a_signal_is_reported(run: Run, editor: Callable[[str], None]) -> None:
    run("write", "a.md", "one")
    editor("import os\nos.kill(os.getpid(), 15)")
    assert f"ended with {-signal.SIGTERM}" in run("edit", "a.md").stderr
