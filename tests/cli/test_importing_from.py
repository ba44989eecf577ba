"""import --from: shows what other programs left on the host, reads nothing else, and imports it only with --yes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from agent_memory import AgentMemoryService
from agent_memory.cli.output import argument
from tests.support.servers import S3Server

Run = Callable[..., Result]
KEY = "ghp_" + "a1B2" * 9
NOON = "2026-03-01T12:00:00.000Z"
PROJECT = "-home-ann-shop"


def lines(*values: object) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def claude(kind: str, content: object) -> dict[str, object]:
    return {
        "type": kind,
        "message": {"role": kind, "content": content},
        "timestamp": NOON,
        "sessionId": "s",
        "uuid": "u",
    }


def codex(kind: str, **payload: object) -> dict[str, object]:
    return {"timestamp": NOON, "type": kind, "payload": payload}


SUMMARY = {"type": "summary", "summary": "Tea", "leafUuid": "u"}
SESSION = lines(SUMMARY, claude("user", "which tea?"), claude("assistant", [{"type": "text", "text": "green tea"}]))
SUBAGENT = lines(claude("user", "look up tea"))
CLAUDE_CODE = {
    "CLAUDE.md": "# Me\n",
    "agent-memory/reviewer/MEMORY.md": "# Reviews\n",
    f"projects/{PROJECT}/0a1b.jsonl": SESSION,
    f"projects/{PROJECT}/0a1b/subagents/agent-c.jsonl": SUBAGENT,
    f"projects/{PROJECT}/memory/MEMORY.md": "# Shop\n",
    f"projects/{PROJECT}/memory/topics/keys.md": f"{KEY} and {KEY}\n",
}
IMPORTED = {
    "claude-code/CLAUDE.md": "# Me\n",
    "claude-code/agent-memory/reviewer/MEMORY.md": "# Reviews\n",
    f"claude-code/{PROJECT}/0a1b/history.jsonl": SESSION,
    f"claude-code/{PROJECT}/0a1b/subagents/agent-c/history.jsonl": SUBAGENT,
    f"claude-code/{PROJECT}/memory/MEMORY.md": "# Shop\n",
    f"claude-code/{PROJECT}/memory/topics/keys.md": f"{KEY} and {KEY}\n",
}
ROLLOUT = lines(
    codex("session_meta", id="s"),
    codex("response_item", type="message", role="user", content=[{"type": "input_text", "text": "hi"}]),
    codex("event_msg", type="user_message", message="hi"),
    codex("response_item", type="message", role="assistant", content=[{"type": "output_text", "text": "hello"}]),
)
PROMPTS = lines({"session_id": "s", "ts": 1_772_366_400, "text": "hi"})
CODEX = {
    "AGENTS.md": "# Rules\n",
    "archived_sessions/rollout-b.jsonl": ROLLOUT,
    "history.jsonl": PROMPTS,
    "memories/MEMORY.md": "# Me\n",
    "sessions/2026/03/01/rollout-a.jsonl": ROLLOUT,
}


def put(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home; the commands run in another directory, ``work``."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("home", "project"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "home"


@pytest.fixture
def claude_home(home: Path) -> Path:
    """A home of Claude Code, with files that nothing may read."""
    put(home / ".claude", CLAUDE_CODE)
    put(home / ".claude", {".credentials.json": KEY, "plugins/notes.md": KEY, "todos/x.jsonl": SESSION})
    put(home, {"CLAUDE.md": KEY})
    return home / ".claude"


def stored(url: str = ".agent-memory") -> dict[str, str]:
    with AgentMemoryService(url) as service:
        memory = service.agent("default")
        return {entry.path: memory.read(entry.path) for entry in memory.list()}


def documented(result: Result) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(result.stdout)
    assert document["exit_code"] == result.exit_code
    return document


def planned(result: Result) -> dict[str, dict[str, Any]]:
    return {each["source"]: each for each in documented(result)["files"]}


@pytest.mark.usefixtures("claude_home")
def test_a_plan_shows_each_file_and_writes_nothing(run: Run, tmp_path: Path) -> None:
    result = run("import", "--from", "claude-code")
    assert result.exit_code == 0
    rows = re.sub(r"\n {4}(?=\S)", "  ", result.stdout).splitlines()
    shown = [tuple(row.split()[1:4:2]) for row in rows[:-1] if row.startswith("  ")]
    assert shown == list(zip(CLAUDE_CODE, IMPORTED, strict=True))
    assert f"{len(SESSION):,}  projects/{PROJECT}/0a1b.jsonl" in result.stdout
    assert "2 messages, 1 other line" in result.stdout
    assert "2 likely secrets: GitHub Token" in result.stdout
    assert rows[-1] == "would import 6 files, 0 were there already"
    assert "Note: nothing was written; --yes imports these files\n" in result.stderr
    assert KEY not in result.output
    assert str(tmp_path) not in result.output
    assert list((tmp_path / "project").iterdir()) == []


@pytest.mark.usefixtures("claude_home")
@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_a_plan_as_json_has_the_facts_of_each_file(run: Run, options: tuple[str, ...]) -> None:
    document = documented(run("--json", "import", "--from", "claude-code", *options))
    assert (document["from"], document["dry_run"], document["written"]) == ("~/.claude", True, 6)
    keys = f"projects/{PROJECT}/memory/topics/keys.md"
    session = f"projects/{PROJECT}/0a1b.jsonl"
    files = {each["source"]: each for each in document["files"]}
    assert files[keys] == {
        "source": keys, "name": f"claude-code/{PROJECT}/memory/topics/keys.md", "renamed": False,
        "size": len(CLAUDE_CODE[keys]), "secrets": {"GitHub Token": 2}, "messages": None, "skipped": 0,
    }  # fmt: skip
    assert (files[session]["messages"], files[session]["skipped"], files[session]["secrets"]) == (2, 1, {})


@pytest.mark.usefixtures("claude_home")
@pytest.mark.parametrize("url", [".agent-memory", "memory://import-from"])
def test_with_yes_the_files_are_imported_and_the_conversations_can_be_read(run: Run, url: str) -> None:
    result = run("--url", url, "import", "--from", "claude-code", "--yes")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "imported 6 files, 0 were there already")
    assert stored(url) == IMPORTED
    directory = f"claude-code/{PROJECT}/0a1b"
    assert f"Note: to print a conversation: agent-memory conversation show --directory {directory}\n" in result.stderr
    shown = run("--url", url, "conversation", "show", "--directory", directory)
    assert [row.partition("] ")[2] for row in shown.stdout.splitlines()] == ["USER: which tea?", "ASSISTANT: green tea"]
    assert "1 line without a message skipped" in shown.stderr
    found = json.loads(run("--url", url, "--json", "conversation", "search", "green", "--directory", directory).stdout)
    assert (len(found["matches"]), found["skipped"]) == (1, 1)


def test_the_files_are_imported_into_s3(
    run: Run, claude_home: Path, ministack: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_MEMORY_STORAGE_OPTIONS", json.dumps(ministack.options))
    url = ministack.new_url()
    put(claude_home, {f"projects/{PROJECT}/large.jsonl": SESSION + lines(claude("user", "x" * 1_000_000)) * 8})
    for outcome in ("imported 7 files, 0 were there already", "imported 0 files, 7 were there already"):
        result = run("--url", url, "import", "--from", "claude-code", "--yes")
        assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, outcome)
    shown = run("--url", url, "--json", "conversation", "show", "--all", "--directory", f"claude-code/{PROJECT}/large")
    assert (len(shown.stdout.splitlines()), '"skipped": 1' in shown.stderr) == (10, True)


def test_equal_files_are_not_written_again_and_different_ones_only_with_overwrite(run: Run, claude_home: Path) -> None:
    first = f"claude-code/{PROJECT}/memory/MEMORY.md"
    run("import", "--from", "claude-code", "--yes")
    put(claude_home, {f"projects/{PROJECT}/memory/MEMORY.md": "# Shop, changed\n"})
    for options, code in (((), 0), (("--yes",), 4)):
        result = run("import", "--from", "claude-code", *options)
        assert (result.exit_code, f"Different: '{first}'" in result.stderr.replace("projects", "claude-code")) == (
            code,
            True,
        )
        assert "5 were there already, 1 left out" in result.stdout
        assert stored()[first] == "# Shop\n"
    assert run("import", "--from", "claude-code", "--yes", "--overwrite").exit_code == 0
    assert stored() == {**IMPORTED, first: "# Shop, changed\n"}


SESSION_FILE = f"projects/{PROJECT}/0a1b.jsonl"
STORED_SESSION = f"claude-code/{PROJECT}/0a1b/history.jsonl"


@pytest.mark.parametrize("end", ["", '{"type": "us'], ids=["whole lines", "half a line"])
@pytest.mark.parametrize("options", [(), ("--overwrite",)])
@pytest.mark.parametrize("url", [".agent-memory", "memory://went-on"])
def test_a_session_that_went_on_gets_its_new_lines_as_one_append(
    run: Run, claude_home: Path, options: tuple[str, ...], end: str, url: str
) -> None:
    long = SESSION + lines(claude("user", "x" * 1_000_000)) * 5
    put(claude_home, {SESSION_FILE: long + end})
    url = f"{url}-{len(options)}{len(end)}"
    run("--url", url, "import", "--from", "claude-code", "--yes")
    whole = long + lines(claude("user", "thanks"))
    put(claude_home, {SESSION_FILE: whole})
    for change in (("--dry-run",), ("--yes",)):
        assert stored(url)[STORED_SESSION] == long + end
        result = run("--url", url, "import", "--from", "claude-code", *change, *options)
        told = result.stdout.endswith(" 1 file, 5 were there already\n")
        assert (result.exit_code, told) == (0, True)
    assert stored(url) == {**IMPORTED, STORED_SESSION: whole}
    if url.startswith("."):
        records = json.loads(run("--url", url, "--json", "audit", "show", "--last", "1").stdout)["records"]
        assert [record["operation"] for record in records] == ["append"]


@pytest.mark.usefixtures("claude_home")
@pytest.mark.parametrize("options", [(), ("--overwrite",)])
def test_a_history_with_more_lines_than_the_file_stays(run: Run, options: tuple[str, ...]) -> None:
    run("import", "--from", "claude-code", "--yes")
    run("append", STORED_SESSION, more := lines(claude("user", "later")))
    result = run("import", "--from", "claude-code", "--yes", *options)
    assert (result.exit_code, result.stdout.endswith("imported 0 files, 6 were there already\n")) == (0, True)
    assert stored() == {**IMPORTED, STORED_SESSION: SESSION + more}


def test_a_history_with_other_lines_is_replaced_only_with_overwrite(run: Run, claude_home: Path) -> None:
    run("import", "--from", "claude-code", "--yes")
    run("append", STORED_SESSION, more := lines(claude("user", "later")))
    for file in (SUBAGENT, SESSION + SUBAGENT, SESSION + SUBAGENT * 9):
        put(claude_home, {SESSION_FILE: file})
        assert run("import", "--from", "claude-code", "--yes").exit_code == 4
        assert stored()[STORED_SESSION] == SESSION + more
    assert run("import", "--from", "claude-code", "--yes", "--overwrite").exit_code == 0
    assert stored()[STORED_SESSION] == file


def test_a_markdown_file_that_grew_or_shrank_is_different(run: Run, claude_home: Path) -> None:
    run("import", "--from", "claude-code", "--yes")
    for text in ("# Me\nAnn\n", "# "):
        put(claude_home, {"CLAUDE.md": text})
        assert run("import", "--from", "claude-code", "--yes").exit_code == 4
        assert stored() == IMPORTED


@pytest.mark.usefixtures("claude_home")
def test_excluded_files_are_left_out_and_printed(run: Run) -> None:
    excludes = ("--exclude", "subagents", "--exclude", "*/memory/topics", "--exclude", "typo")
    result = run("import", "--from", "claude-code", "--yes", *excludes)
    assert result.exit_code == 0
    assert [name for name in IMPORTED if name not in stored()] == [
        f"claude-code/{PROJECT}/0a1b/subagents/agent-c/history.jsonl", f"claude-code/{PROJECT}/memory/topics/keys.md",
    ]  # fmt: skip
    assert f"Left out (--exclude): 'projects/{PROJECT}/0a1b/subagents/'" in result.stderr
    assert "--exclude 'typo' matches nothing" in result.stderr
    assert "secrets" not in result.stderr


def test_the_folder_of_a_variable_is_read(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(home / ".claude", {"CLAUDE.md": "of the home"})
    put(tmp_path / "elsewhere", CLAUDE_CODE)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "elsewhere"))
    assert run("import", "--from", "claude-code", "--yes").exit_code == 0
    assert stored() == IMPORTED
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "nowhere"))
    told = run("import", "--from", "claude-code").stderr
    assert "found nothing to import in $CLAUDE_CONFIG_DIR: " in told
    assert str(tmp_path) not in told


@pytest.mark.parametrize("variable", [None, "CODEX_HOME"])
def test_the_sessions_and_memories_of_codex_are_imported(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None
) -> None:
    root = tmp_path / "elsewhere" if variable else home / ".codex"
    if variable:
        monkeypatch.setenv(variable, str(root))
    put(root, {**CODEX, "auth.json": KEY, "config.toml": "x", "log/a.md": "x", "sessions/2026/03/01/b.jsonl.zst": "x"})
    result = run("import", "--from", "codex", "--yes")
    assert result.exit_code == 0
    assert stored() == {
        "codex/AGENTS.md": CODEX["AGENTS.md"],
        "codex/archived_sessions/rollout-b/history.jsonl": ROLLOUT,
        "codex/history.jsonl": PROMPTS,
        "codex/memories/MEMORY.md": CODEX["memories/MEMORY.md"],
        "codex/sessions/2026/03/01/rollout-a/history.jsonl": ROLLOUT,
    }
    assert "1 compressed file (.zst, .gz) left out" in result.stderr
    shown = run("conversation", "show", "--directory", "codex/sessions/2026/03/01/rollout-a").stdout
    assert [row.partition("] ")[2] for row in shown.splitlines()] == ["USER: hi", "ASSISTANT: hello"]
    assert "2026-03-01T12:00:00+00:00" in run("conversation", "show", "--directory", "codex").stdout


def test_memory_banks_here_and_one_level_below_are_imported(run: Run, tmp_path: Path) -> None:
    banks = {"memory-bank/activeContext.md": "a", "shop/memory-bank/sub/progress.md": "b"}
    put(
        tmp_path / "project", {**banks, "deep/er/memory-bank/x.md": "x", "shop/notes.md": "x", "memory-bank/a.png": "x"}
    )
    (tmp_path / "project/elsewhere").symlink_to(tmp_path / "home")
    result = run("import", "--from", "memory-bank", "--yes")
    assert (result.exit_code, "elsewhere" in result.stderr) == (0, False)
    assert stored() == {"memory-bank/project/activeContext.md": "a", "memory-bank/shop/sub/progress.md": "b"}
    assert "Note: 1 other file in these directories left out\n" in result.stderr


def test_a_folder_or_a_file_of_the_user_is_imported(run: Run, tmp_path: Path) -> None:
    put(tmp_path / "old/chats", {"a.jsonl": SESSION, "b/history.jsonl": ROLLOUT, "notes.md": "n", "c.ndjson": SUBAGENT})
    put(tmp_path / "old/chats", {"[x].txt": PROMPTS, "x.txt": PROMPTS})
    for path in ("../old/chats", "../old/chats/[x].txt"):
        assert run("import", "--from", path, "--yes").exit_code == 0
    assert stored() == {
        "chats/a/history.jsonl": SESSION, "chats/b/history.jsonl": ROLLOUT, "chats/c/history.jsonl": SUBAGENT,
        "chats/notes.md": "n", "chats/[x].txt/history.jsonl": PROMPTS,
    }  # fmt: skip


def test_names_are_made_valid_and_shown(run: Run, home: Path) -> None:
    composed, decomposed = "café.md", unicodedata.normalize("NFD", "café.md")
    names = {f"projects/a:b/memory/{decomposed}": "é", "projects/a:b/memory/12:30?.md": "half past"}
    put(home / ".claude", {**names, "projects/a:b/con.jsonl": SESSION})
    result = run("import", "--from", "claude-code", "--yes")
    assert result.exit_code == 0
    assert stored() == {
        "claude-code/a-b/_con/history.jsonl": SESSION, "claude-code/a-b/memory/12-30.md": "half past",
        f"claude-code/a-b/memory/{composed}": "é",
    }  # fmt: skip
    assert result.stdout.count("name made valid") == 3
    assert "Note: 1 path in Unicode form D, as macOS writes it; the memory has form C\n" in result.stderr


def test_of_two_files_with_one_name_the_second_is_left_out(run: Run, home: Path) -> None:
    put(home / ".claude/projects/p/memory", {"12-30.md": "a", "12:30.md": "b"})
    result = run("import", "--from", "claude-code", "--yes")
    assert (result.exit_code, stored()) == (4, {"claude-code/p/memory/12-30.md": "a"})
    assert "another file gets the same name in the memory, 'projects/p/memory/12-30.md'" in result.stderr


@pytest.mark.parametrize("name", ["it's $(touch owned) `id`", "a b", "~"])
def test_the_printed_command_opens_the_conversation_in_a_shell(run: Run, home: Path, name: str) -> None:
    put(home / ".claude/projects", {f"{name}/s.jsonl": SESSION})
    result = run("import", "--from", "claude-code", "--yes")
    command = re.search(r"agent-memory (conversation show .*)\n", result.stderr)
    assert command is not None
    echoed = subprocess.run(["sh", "-c", f"printf '%s\\n' {command[1]}"], capture_output=True, text=True, check=True)
    assert "USER: which tea?" in run(*echoed.stdout.splitlines()).stdout
    assert not Path("owned").exists()


def test_a_text_that_a_terminal_must_not_show_is_no_argument_of_a_printed_command() -> None:
    assert [argument(text) for text in ("a", "a b", "a\x1b[2J", "a\u202eb")] == ["a", "'a b'", None, None]


def test_a_file_that_keeps_its_name_goes_before_a_file_that_would_take_it(run: Run, tmp_path: Path) -> None:
    put(
        tmp_path / "chats",
        {".jsonl": SESSION, "history.jsonl": ROLLOUT, "a.jsonl": SESSION, "a/history.jsonl": ROLLOUT},
    )
    result = run("import", "--from", "../chats", "--yes")
    assert (result.exit_code, stored()) == (4, {"chats/history.jsonl": ROLLOUT, "chats/a/history.jsonl": ROLLOUT})


def test_the_end_of_a_name_is_compared_without_case(run: Run, tmp_path: Path) -> None:
    put(tmp_path / "chats", {"NOTES.MD": "n", "X.JSONL": SESSION, "Y.NdJson": SESSION, "z.JSONL.GZ": "x"})
    result = run("import", "--from", "../chats", "--yes")
    assert (result.exit_code, stored()) == (
        0,
        {"chats/NOTES.MD": "n", "chats/X/history.jsonl": SESSION, "chats/Y/history.jsonl": SESSION},
    )
    assert "1 compressed file" in result.stderr


def test_a_damaged_file_is_reported_and_the_others_are_imported(run: Run, claude_home: Path) -> None:
    project = claude_home / f"projects/{PROJECT}"
    (project / "bad.jsonl").write_bytes(bytes(range(256)) * 100)
    (project / "memory/latin.md").write_bytes(b"caf\xe9")
    (project / "memory/cut.md").write_bytes("é".encode()[:1])
    put(project, {"empty.jsonl": "", "meta.jsonl": lines(SUMMARY)})
    for options, code in (((), 0), (("--yes",), 5)):
        result = run("import", "--from", "claude-code", *options)
        assert result.exit_code == code
        assert f"Refused: 'projects/{PROJECT}/bad.jsonl': no line is a JSON object\n" in result.stderr
        for name in ("latin", "cut"):
            assert f"Refused: 'projects/{PROJECT}/memory/{name}.md': not UTF-8 text\n" in result.stderr
        for name in ("empty", "meta"):
            assert f"Left out (no message): 'projects/{PROJECT}/{name}.jsonl'\n" in result.stderr
    assert stored() == IMPORTED


def test_no_link_is_followed(run: Run, claude_home: Path, tmp_path: Path) -> None:
    put(tmp_path / "outside", {"secret.md": KEY, "s.jsonl": SESSION})
    links = {
        f"projects/{PROJECT}/memory/link.md": "secret.md",
        f"projects/{PROJECT}/l.jsonl": "s.jsonl",
        "projects/dir": "",
    }
    for name, target in links.items():
        (claude_home / name).symlink_to(tmp_path / "outside" / target)
    (claude_home / "unrelated").symlink_to(tmp_path / "outside")
    os.mkfifo(claude_home / f"projects/{PROJECT}/memory/pipe.md")
    result = run("import", "--from", "claude-code", "--yes")
    assert result.exit_code == 1
    assert stored() == IMPORTED
    for name in links:
        assert f"Refused: '{name}': symbolic links are not followed\n" in result.stderr
    assert "pipe.md': not a regular file" in result.stderr
    assert "unrelated" not in result.stderr
    (tmp_path / "project/bank").mkdir()
    (tmp_path / "project/memory-bank").symlink_to(tmp_path / "outside")
    result = run("import", "--from", "memory-bank")
    assert (result.exit_code, "'memory-bank': symbolic links are not followed" in result.stderr) == (0, True)


def test_a_long_line_is_one_skipped_line(run: Run, home: Path) -> None:
    with (home / "chat.jsonl").open("w") as file:
        for text in (
            SESSION,
            "x" * 40_000_000,
            "\n",
            lines(claude("user", "x" * 15_000_000)),
            lines(claude("user", "end")),
        ):
            file.write(text)
    result = run("--json", "import", "--from", str(home / "chat.jsonl"), "--yes")
    (file_,) = planned(result).values()
    assert (file_["messages"], file_["skipped"]) == (4, 2)
    shown = run("--json", "conversation", "show", "-n", "100", "--directory", "home/chat")
    assert (len(shown.stdout.splitlines()), json.loads(shown.stderr)["skipped"]) == (4, 2)


NOTHING = {
    "claude-code": "found nothing to import in ~/.claude: no CLAUDE.md, agent-memory/**/*.md, "
    "projects/*/memory/**/*.md or projects/**/*.jsonl; set CLAUDE_CONFIG_DIR if that is elsewhere",
    "codex": "found nothing to import in ~/.codex: no AGENTS.md, memories/**/*.md, history.jsonl, sessions/**/*.jsonl "
    "or archived_sessions/**/*.jsonl; set CODEX_HOME if that is elsewhere",
    "memory-bank": "found nothing to import in the current directory: no memory-bank/**/*.md or */memory-bank/**/*.md; "
    "run the command in a project or in the directory above, or name the folder with --from PATH",
    "empty": "found nothing to import in empty: no **/*.md, **/*.jsonl or **/*.ndjson; give another folder",
    "claude": "there is no file or folder 'claude'; --from takes claude-code, codex, memory-bank, or a path",
}


@pytest.mark.parametrize(("source", "told"), NOTHING.items(), ids=NOTHING)
def test_an_error_says_where_nothing_was_found(run: Run, tmp_path: Path, source: str, told: str) -> None:
    (tmp_path / "project/empty").mkdir()
    (tmp_path / "home/.codex").mkdir()
    for options in ((), ("--yes",)):
        result = run("import", "--from", source, *options)
        assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"Error: {told}\n")
    assert not (tmp_path / "project/.agent-memory").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "give a DIRECTORY, or a source with --from"),
        (["folder", "--yes"], "--yes needs --from"),
        (["folder", "--from", "codex"], "DIRECTORY and --from exclude each other"),
        (["--from", "codex", "--all"], "--all and --gitignore need a DIRECTORY"),
        (["--from", "codex", "--gitignore"], "--all and --gitignore need a DIRECTORY"),
        (["--from", "codex", "--yes", "--dry-run"], "--yes and --dry-run exclude each other"),
        (["--from", ""], "--from takes claude-code, codex, memory-bank, or a path"),
    ],
)
def test_options_that_contradict_each_other_are_a_usage_error(run: Run, options: list[str], told: str) -> None:
    result = run("import", *options)
    assert (result.exit_code, result.stdout, told in result.stderr) == (2, "", True)


@pytest.mark.usefixtures("claude_home")
def test_a_plan_is_not_recorded_and_an_import_is(run: Run) -> None:
    run("write", "a.md", "x")
    for options, count in (((), 1), (("--yes",), 7)):
        run("import", "--from", "claude-code", *options)
        assert len(json.loads(run("--json", "audit", "show").stdout)["records"]) == count
