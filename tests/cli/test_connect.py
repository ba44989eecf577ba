"""The command connect: what it prints, what it changes in a client's file, and what it never changes."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.cli import client_files
from agent_memory.cli.client_entries import Place, with_json_entry, with_toml_entry
from agent_memory.cli.client_files import replace_file
from agent_memory.cli.clients import CLIENTS
from agent_memory.cli.connect import _pair
from agent_memory.cli.settings import key_value
from agent_memory.errors import ConflictError
from tests.support.mcp_clients import called, over_stdio

Run = Callable[..., Result]
SCRIPT = str(Path(sysconfig.get_path("scripts"), "agent-memory"))
USER = {
    "claude-code": ".claude.json",
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "codex": ".codex/config.toml",
    "cursor": ".cursor/mcp.json",
    "gemini": ".gemini/settings.json",
    "vscode": ".config/Code/User/mcp.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
}
PROJECT = {
    "claude-code": ".mcp.json",
    "codex": ".codex/config.toml",
    "cursor": ".cursor/mcp.json",
    "gemini": ".gemini/settings.json",
    "vscode": ".vscode/mcp.json",
}
SERVERS = {"codex": "mcp_servers", "vscode": "servers"}
TYPED = ("claude-code", "vscode")
MORE = ["--history", "--versions"]
OURS: dict[str, Any] = {"command": "/old/bin/agent-memory", "args": ["--url", "/old", "mcp"]}
JSON, TOML = Place("mcpServers", "agent-memory"), Place("mcp_servers", "agent-memory")
ENTRY: dict[str, Any] = {"command": "/bin/agent-memory", "args": ["--url", '/m é "q" \\', "mcp"]}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "AGENT_MEMORY_NO_AUDIT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("agent_memory.cli.clients.sys", SimpleNamespace(platform="linux"))
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "home"


def parsed(file: Path) -> Any:
    return tomllib.loads(file.read_text()) if file.suffix == ".toml" else json.loads(file.read_text())


def entry_in(file: Path, client: str = "cursor", name: str = "agent-memory") -> Any:
    return parsed(file)[SERVERS.get(client, "mcpServers")][name]


def files_below(*directories: Path) -> set[Path]:
    return {file for directory in directories for file in directory.rglob("*") if not file.is_dir()}


def arguments(*options: str, agent: str = "default", root: str = "store") -> list[str]:
    return ["--url", str(Path.cwd() / root), "--agent", agent, *options, "mcp"]


def test_every_client_is_tested() -> None:
    assert USER.keys() == CLIENTS.keys()


@pytest.mark.parametrize("client", USER)
def test_write_adds_the_entry_to_the_file_of_the_user(run: Run, home: Path, client: str) -> None:
    result = run("--url", "store", "--agent", "ann", "connect", client, "--write", "--directory", "n", *MORE)
    assert result.exit_code == 0, result.stderr
    assert "it serves the memory of agent 'ann' in 'store'\n" in result.stdout
    assert f"agent-memory was added to {home / USER[client]}\n" in result.stdout
    typed = {"type": "stdio"} if client in TYPED else {}
    command = [*arguments(agent="ann"), "--directory", "n", *MORE]
    assert entry_in(home / USER[client], client) == {**typed, "command": SCRIPT, "args": command}
    assert files_below(home, Path.cwd()) == {home / USER[client]}


@pytest.mark.parametrize("client", PROJECT)
def test_write_adds_the_entry_to_the_file_of_the_project(run: Run, home: Path, client: str) -> None:
    assert run("--url", "store", "connect", client, "--write", "--scope", "project").exit_code == 0
    assert entry_in(Path(PROJECT[client]), client)["args"] == arguments()
    assert files_below(home, Path.cwd()) == {Path.cwd() / PROJECT[client]}


@pytest.mark.parametrize("client", sorted(USER.keys() - PROJECT.keys()))
def test_a_client_without_files_of_projects_is_a_usage_error(run: Run, home: Path, client: str) -> None:
    result = run("connect", client, "--write", "--scope", "project")
    assert (result.exit_code, "has no file for one project" in result.stderr) == (2, True)
    assert files_below(home, Path.cwd()) == set()


@pytest.mark.parametrize(
    ("client", "file"),
    [
        ("claude-desktop", "Library/Application Support/Claude/claude_desktop_config.json"),
        ("vscode", "Library/Application Support/Code/User/mcp.json"),
        ("cursor", ".cursor/mcp.json"),
    ],
)
def test_files_on_macos(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, client: str, file: str) -> None:
    monkeypatch.setattr("agent_memory.cli.clients.sys", SimpleNamespace(platform="darwin"))
    run("connect", client, "--write")
    assert files_below(home) == {home / file}


@pytest.mark.parametrize(
    ("client", "variable", "file"),
    [
        ("claude-code", "CLAUDE_CONFIG_DIR", ".claude.json"),
        ("codex", "CODEX_HOME", "config.toml"),
        ("claude-desktop", "XDG_CONFIG_HOME", "Claude/claude_desktop_config.json"),
        ("vscode", "XDG_CONFIG_HOME", "Code/User/mcp.json"),
    ],
)
def test_a_variable_selects_another_directory(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, client: str, variable: str, file: str
) -> None:
    monkeypatch.setenv(variable, str(home / "elsewhere"))
    run("connect", client, "--write")
    assert files_below(home) == {home / "elsewhere" / file}


def test_a_relative_xdg_directory_is_ignored(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "elsewhere")
    run("connect", "vscode", "--write")
    assert files_below(home, Path.cwd()) == {home / USER["vscode"]}


@pytest.mark.parametrize("client", USER)
def test_without_write_the_configuration_is_printed_and_nothing_is_written(run: Run, home: Path, client: str) -> None:
    result = run("--url", "store with space", "connect", client)
    assert (result.exit_code, files_below(home, Path.cwd())) == (0, set())
    assert f"--write merges this into '{home / USER[client]}'" in result.stderr
    if client == "claude-code":
        words = shlex.split(result.stdout)
        assert words[:7] == ["claude", "mcp", "add", "--scope", "user", "agent-memory", "--"]
        assert words[7:] == [SCRIPT, *arguments(root="store with space")]
    else:
        run("--url", "store with space", "connect", client, "--write")
        assert result.stdout == (home / USER[client]).read_text()


def test_the_json_document_has_all_facts(run: Run, home: Path) -> None:
    command = [SCRIPT, *arguments()]
    facts = {
        "client": "cursor",
        "scope": "user",
        "name": "memo",
        "file": str(home / USER["cursor"]),
        "command": command,
        "environment": [],
    }
    options = ["--json", "--url", "store", "connect", "cursor", "--name", "memo"]
    shown = run(*options)
    assert json.loads(shown.stdout).items() >= facts.items()
    assert shown.stderr == ""
    written = run(*options, "--write")
    assert json.loads(written.stdout) == {**facts, "written": True, "replaced": False, "kept": [], "backup": None}
    assert entry_in(home / USER["cursor"], name="memo")["args"] == arguments()
    other = json.loads(run(*options, "--write", "--history").stdout)
    assert (other["written"], other["replaced"]) == (True, True)
    assert other["backup"] == str(home / ".cursor/mcp.json.agent-memory-backup")


def test_a_second_call_changes_nothing(run: Run, home: Path) -> None:
    for client in USER:
        run("connect", client, "--write")
    before = {file: file.read_bytes() for file in files_below(home)}
    for client in USER:
        result = run("connect", client, "--write")
        assert (result.exit_code, " already\n" in result.stdout) == (0, True)
    assert {file: file.read_bytes() for file in files_below(home)} == before


def test_an_old_entry_of_ours_is_replaced_and_the_old_file_is_kept(run: Run, home: Path) -> None:
    file = home / USER["cursor"]
    file.parent.mkdir()
    old = json.dumps({"mcpServers": {"a": {}, "agent-memory": {**OURS, "env": {"AWS_PROFILE": "p"}}, "b": {}}, "z": 1})
    file.write_text(old)
    result = run("--url", "store", "connect", "cursor", "--write")
    backup = home / ".cursor/mcp.json.agent-memory-backup"
    assert f"agent-memory was replaced in {file}; the old file is {backup}" in result.stdout
    assert backup.read_text() == old
    new = {"command": SCRIPT, "args": arguments(), "env": {"AWS_PROFILE": "p"}}
    assert parsed(file) == {"mcpServers": {"a": {}, "agent-memory": new, "b": {}}, "z": 1}
    assert list(parsed(file)["mcpServers"]) == ["a", "agent-memory", "b"]
    assert "\nkept from the old entry: env\n" in result.stdout
    run("--url", "store", "connect", "cursor", "--write", "--history")
    assert files_below(home) == {file, backup, home / ".cursor/mcp.json.agent-memory-backup2"}
    assert backup.read_text() == old


@pytest.mark.parametrize(
    "theirs",
    [
        {"command": "npx", "args": ["-y", "agent-memory"]},
        {"command": "agent-memory", "args": ["serve"]},
        {"command": "agent-memory", "args": ["mcp serve"]},
        {"command": "agent-memory", "args": ["serve", "mcp"]},
        {"command": "agent-memory", "args": ["--db", "x", "mcp"]},
        {"command": "python", "args": ["-m", "mcp"]},
        {"url": "http://localhost/mcp"},
        {},
    ],
)
@pytest.mark.parametrize("client", ["cursor", "codex"])
def test_another_server_with_the_name_is_never_changed(
    run: Run, home: Path, client: str, theirs: dict[str, Any]
) -> None:
    file = home / USER[client]
    file.parent.mkdir()
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in theirs.items())
    text = (
        f"[mcp_servers.agent-memory]\n{lines}"
        if client == "codex"
        else json.dumps({"mcpServers": {"agent-memory": theirs}})
    )
    file.write_text(text)
    result = run("connect", client, "--write")
    assert (result.exit_code, "--name gives ours another name" in result.stderr) == (4, True)
    assert (file.read_text(), files_below(home)) == (text, {file})
    assert run("connect", client, "--write", "--name", "notes").exit_code == 0
    assert entry_in(file, client) == theirs
    assert entry_in(file, client, "notes")["command"] == SCRIPT


@pytest.mark.parametrize(
    "command",
    [
        ["/any/where/agent-memory", "mcp"],
        ["agent-memory", "--url", "x", "mcp", "--history"],
        ["/usr/bin/python3", "-m", "agent_memory", "mcp"],
        ["python", "-P", "-m", "agent_memory", "-o", "a=1", "mcp"],
    ],
)
def test_an_entry_of_another_environment_is_ours(run: Run, home: Path, command: list[str]) -> None:
    file = home / USER["cursor"]
    file.parent.mkdir()
    file.write_text(json.dumps({"mcpServers": {"agent-memory": {"command": command[0], "args": command[1:]}}}))
    assert "was replaced" in run("connect", "cursor", "--write").stdout


@pytest.mark.parametrize(
    ("client", "text", "told"),
    [
        ("vscode", b'{\n  // comment\n  "servers": {}\n}', "not plain JSON (line 2); comments could not be kept"),
        ("gemini", b'{"a": [1, 2,]}', "not plain JSON (line 1)"),
        ("cursor", b"[]", "no object in the place"),
        ("cursor", b'{"mcpServers": null}', "no object in the place"),
        ("cursor", b'{"mcpServers": {"agent-memory": []}}', "no object in the place"),
        ("cursor", b'{"a": "\xff"}', "not UTF-8"),
        ("cursor", b"[" * 100_000, "not plain JSON"),
        ("cursor", b'{"a": NaN}', "not plain JSON"),
        ("cursor", b'{"mcpServers": {"agent-memory": {"command": "agent-memory", "args": ["mcp"], "timeout": 1e400}}}',
         "a number that JSON does not have"),
        ("cursor", b'{"mcpServers": {"agent-memory": {"command": "agent-memory", "args": ["mcp"], "x": "\\ud800"}}}',
         "not UTF-8"),
        ("codex", b"a = \n", "not valid TOML"),
        ("codex", b"mcp_servers = {}\n", "cannot be changed safely"),
        ("codex", b"mcp_servers = 1\n", "no object in the place"),
        ("codex", b'[mcp_servers]\nagent-memory = {command = "agent-memory", args = ["mcp"]}\n', "is not a table"),
        ("codex", b'mcp_servers.agent-memory.command = "agent-memory"\nmcp_servers.agent-memory.args = ["mcp"]\n',
         "is not a table"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_merged_is_left_as_it_is(
    run: Run, home: Path, client: str, text: bytes, told: str
) -> None:
    file = home / USER[client]
    file.parent.mkdir(parents=True)
    file.write_bytes(text)
    result = run("connect", client, "--write")
    assert (result.exit_code, result.stdout, told in result.stderr) == (1, "", True), result.stderr
    assert result.stderr.startswith(f"Error: '{file}' is unchanged: ")
    assert (file.read_bytes(), files_below(home)) == (text, {file})


def is_ours(entry: Any) -> bool:
    return "mcp" in entry.get("args", ())


def only_added(before: str, after: str) -> bool:
    """Whether a text was put into another at one place."""
    start = next((at for at, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), len(before))
    return after.endswith(before[start:])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text(max_size=5), VALUES, min_size=1, max_size=4)


@pytest.mark.parametrize(("client", "text"), [("cursor", b'{"a": 1}\r\n'), ("codex", b"a = 1\r\n")])
def test_a_byte_order_mark_stays_in_the_file(run: Run, home: Path, client: str, text: bytes) -> None:
    file = home / USER[client]
    file.parent.mkdir(parents=True)
    file.write_bytes(b"\xef\xbb\xbf" + text)
    assert run("connect", client, "--write").exit_code == 0
    marked = file.read_bytes()
    file.write_bytes(text)
    assert run("connect", client, "--write").exit_code == 0
    assert marked == b"\xef\xbb\xbf" + file.read_bytes()


@given(OBJECTS, st.none() | OBJECTS, st.sampled_from([None, 0, 1, 2, 4, "\t"]), st.booleans(), st.booleans())
def test_in_json_only_the_entry_is_added(
    others: dict[str, Any], servers: dict[str, Any] | None, indent: int | str | None, ascii_only: bool, windows: bool
) -> None:
    document = others if servers is None else {**others, "mcpServers": servers, "last": []}
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only)
    text = text.replace("\n", "\r\n") if windows else text
    after = with_json_entry(text, JSON, ENTRY, is_ours).text
    assert only_added(text, after)
    assert json.loads(after) == {**document, "mcpServers": {**(servers or {}), "agent-memory": ENTRY}}
    assert ("\r\n" in after) == ("\r\n" in text)
    assert with_json_entry(after, JSON, ENTRY, is_ours).text == after


@given(OBJECTS, OBJECTS, st.sampled_from([None, 2, "\t"]))
def test_in_json_only_our_entry_is_replaced(
    before_it: dict[str, Any], after_it: dict[str, Any], indent: int | str | None
) -> None:
    document: dict[str, Any] = {
        "mcpServers": {**before_it, "agent-memory": {**OURS, "env": {"A": "b"}}, **after_it},
        "z": [1.50, {}],
    }
    text = json.dumps(document, indent=indent)
    changed = with_json_entry(text, JSON, ENTRY, is_ours)
    begin = text.index(json.dumps("agent-memory"))
    assert changed.text.startswith(text[:begin])
    assert changed.replaced
    assert json.loads(changed.text, object_pairs_hook=list) == json.loads(
        json.dumps(
            {**document, "mcpServers": {**document["mcpServers"], "agent-memory": {**ENTRY, "env": {"A": "b"}}}}
        ),
        object_pairs_hook=list,
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "mcpServers": {\n    "m": {\n      "a": 1\n    }\n  }\n}\n'),
        ("{}", '{\n  "mcpServers": {\n    "m": {\n      "a": 1\n    }\n  }\n}'),
        ('{\n\t"mcpServers": {}\n}\n', '{\n\t"mcpServers": {\n\t\t"m": {\n\t\t\t"a": 1\n\t\t}\n\t}\n}\n'),
        ('{"x": 1.10}', '{"x": 1.10, "mcpServers": {"m": {"a": 1}}}'),
        (
            '{\n  "x": {"y" : 1e5}\n}',
            '{\n  "x": {"y" : 1e5},\n  "mcpServers": {\n    "m": {\n      "a": 1\n    }\n  }\n}',
        ),
    ],
)
def test_an_entry_in_json_has_the_indentation_of_the_file(before: str, after: str) -> None:
    assert with_json_entry(before, Place("mcpServers", "m"), {"a": 1}, is_ours).text == after


TABLE = '[mcp_servers.agent-memory]\ncommand = "/bin/agent-memory"\nargs = ["--url", "/m é \\"q\\" \\\\", "mcp"]\n'
OLD_TABLE = '''# theirs
model = "m" # comment

[mcp_servers.other] # stays
command = "other"
args = [
  "a", # stays
]
[ mcp_servers . "agent-memory" ] # ours
command = "/old/agent-memory"
# our comment
args = [
  "--url", # goes
  "mcp",
]
startup_timeout_sec = 20
[mcp_servers.agent-memory.env]
AWS_PROFILE = "p"
# before the last
[last]
text = """
[mcp_servers.agent-memory]
command = "not a table"
"""
'''
NEW_TABLE = OLD_TABLE.replace('command = "/old/agent-memory"\n', "".join(TABLE.splitlines(True)[1:])).replace(
    'args = [\n  "--url", # goes\n  "mcp",\n]\n', ""
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", TABLE),
        ("a = 1", f"a = 1\n\n{TABLE}"),
        ("# c\na = 1\n", f"# c\na = 1\n\n{TABLE}"),
        ("[mcp_servers.x]\r\nb = 1\r\n", "[mcp_servers.x]\r\nb = 1\r\n\r\n" + TABLE.replace("\n", "\r\n")),
        ("mcp_servers.x.b = 1\n", f"mcp_servers.x.b = 1\n\n{TABLE}"),
        (OLD_TABLE, NEW_TABLE),
        ('[mcp_servers.agent-memory]\nargs = ["mcp"]\ncommand = "c"', TABLE),
        ('[mcp_servers.agent-memory]\nargs = ["mcp"] # end', TABLE),
    ],
)
def test_in_toml_only_our_table_is_changed(before: str, after: str) -> None:
    changed = with_toml_entry(before, TOML, ENTRY, is_ours)
    assert changed.text == after
    assert with_toml_entry(after, TOML, ENTRY, is_ours)[:2] == (after, True)


@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_any_text_is_a_value_in_both_formats(text: str) -> None:
    entry = {"command": text, "args": [text, "mcp"]}
    toml = with_toml_entry("", TOML, entry, is_ours).text
    assert tomllib.loads(toml) == {"mcp_servers": {"agent-memory": entry}}
    assert json.loads(with_json_entry("{}", JSON, entry, is_ours).text) == {"mcpServers": {"agent-memory": entry}}


def test_the_owner_the_mode_and_a_symbolic_link_stay(run: Run, home: Path) -> None:
    real = home / "dotfiles/cursor.json"
    real.parent.mkdir()
    real.write_text("{}")
    real.chmod(0o4640)
    if os.getuid() == 0:
        os.chown(real, 1234, 2345)
    owner = real.stat()
    link = home / USER["cursor"]
    link.parent.mkdir()
    link.symlink_to(real)
    assert run("connect", "cursor", "--write").exit_code == 0
    assert (link.is_symlink(), entry_in(real)["command"]) == (True, SCRIPT)
    backup = home / "dotfiles/cursor.json.agent-memory-backup"
    for file in (real, backup):
        found = file.stat()
        assert (found.st_mode & 0o7777, found.st_uid, found.st_gid) == (0o640, owner.st_uid, owner.st_gid)
    assert files_below(home) == {link, real, backup}


def test_a_new_file_of_the_user_is_private(run: Run, home: Path) -> None:
    before = os.umask(0o022)
    try:
        run("connect", "cursor", "--write")
        run("connect", "cursor", "--write", "--scope", "project")
    finally:
        os.umask(before)
    modes = [file.stat().st_mode & 0o777 for file in (home / USER["cursor"], Path(PROJECT["cursor"]))]
    assert modes == [0o600, 0o644]


def test_a_file_that_was_changed_at_the_same_moment_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    for old in (b"read before", None):
        file.write_bytes(b"written since")
        with pytest.raises(ConflictError, match="changed by another program"):
            replace_file(file, old, b"ours", private=True)
        assert {each: each.read_bytes() for each in files_below(tmp_path)} == {file: b"written since"}
    file.unlink()
    with pytest.raises(ConflictError):
        replace_file(file, b"read before", b"ours", private=True)
    assert files_below(tmp_path) == set()


def test_a_change_during_the_backup_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b"read before")
    real = client_files._backed_up

    def slow(*arguments: Any) -> Path:
        file.write_bytes(b"written since")
        return real(*arguments)

    monkeypatch.setattr(client_files, "_backed_up", slow)
    with pytest.raises(ConflictError):
        replace_file(file, b"read before", b"ours", private=True)
    assert {each: each.read_bytes() for each in files_below(tmp_path)} == {file: b"written since"}


def test_a_read_only_file_is_not_replaced(run: Run, home: Path) -> None:
    file = home / USER["cursor"]
    file.parent.mkdir()
    file.write_text("{}")
    file.chmod(0o444)
    result = run("connect", "cursor", "--write")
    assert (result.exit_code, "it is read-only" in result.stderr) == (1, True), result.stderr
    assert (file.read_text(), files_below(home)) == ("{}", {file})


def test_a_file_that_is_a_mount_of_its_own_is_named_as_such(run: Run, home: Path) -> None:
    file = home / USER["cursor"]
    file.parent.mkdir()
    file.write_text("{}")
    if os.getuid() != 0 or subprocess.run(["mount", "--bind", file, file], check=False).returncode:
        pytest.skip("mounting takes root")
    try:
        result = run("connect", "cursor", "--write")
    finally:
        subprocess.run(["umount", file], check=True)
    assert (result.exit_code, "this file is a mount of its own: mount its directory" in result.stderr) == (1, True)
    assert file.read_text() == "{}"


@pytest.mark.parametrize("link", [".cursor", ".cursor/mcp.json"])
@pytest.mark.usefixtures("home")
def test_a_symbolic_link_of_a_project_is_not_followed(run: Run, tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    Path(link).parent.mkdir(exist_ok=True)
    Path(link).symlink_to(outside if link == ".cursor" else outside / "x.json")
    result = run("connect", "cursor", "--scope", "project", "--write")
    assert (result.exit_code, "is a symbolic link in this project" in result.stderr) == (1, True), result.stderr
    assert files_below(outside) == set()


def test_a_file_that_cannot_be_written_is_an_error_of_one_line(run: Run, home: Path) -> None:
    (home / ".cursor").write_text("a file in the place of the directory")
    result = run("connect", "cursor", "--write")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    (home / ".gemini/settings.json").mkdir(parents=True)
    assert run("connect", "gemini", "--write").exit_code == 1


SECRET = "hush-hush"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--url", "", "connect", "cursor"], 2, "the URL of the store is empty"),
        (["--url", "a-file", "connect", "cursor"], 2, "is a file, not a directory"),
        (["--url", "memory://x", "connect", "cursor"], 6, "memory:// exists in one process only"),
        (["--url", "nosuch://x", "connect", "cursor"], 6, "nosuch"),
        (["--url", "s3:///x", "connect", "cursor"], 2, "an S3 URL is s3://bucket/prefix"),
        (["--url", f"sftp://ann:{SECRET}@host/x", "connect", "cursor"], 2, "the URL contains a credential"),
        (["--url", "s3://b/x", "-o", f"secret={SECRET}", "connect", "cursor"], 2, "'secret' is a credential"),
        (["--url", "s3://b/x", "-o", f"key={SECRET}", "connect", "cursor"], 2, "'key' is a credential"),
        (["--url", "s3://b/x", "-o", f'client_kwargs={{"aws_secret_access_key":"{SECRET}"}}', "connect", "cursor"], 2,
         "is a credential"),
        (["--agent", "../x", "connect", "cursor"], 5, "is not an agent id"),
        (["connect", "cursor", "--directory", "../x"], 5, "Error: "),
        (["--url", "a$HOME", "connect", "cursor"], 2, "clients would replace the $"),
        (["--url", "a${HOME}", "connect", "cursor"], 2, "clients would replace the $"),
        (["--url", "a\nb", "connect", "cursor"], 2, "characters that a configuration cannot have"),
        (["--url", "a\u200bb", "connect", "cursor"], 2, "characters that a configuration cannot have"),
        (["--url", f"abfs://box/x?sig={SECRET}&token={SECRET}", "connect", "cursor"], 2, "contains a credential"),
        (["--url", "missing", "connect", "cursor", "--read-only"], 3, "there is no store at 'missing'"),
        (["connect", "cursor", "--name=-x"], 2, "the name of a server"),
        (["--url", "a\udcff", "connect", "cursor"], 2, "characters that a configuration cannot have"),
        (["connect", "cursor", "--name", "a.b"], 2, "the name of a server"),
        (["connect", "cursor", "--name", ""], 2, "the name of a server"),
        (["connect", "emacs"], 2, "'claude-code', 'claude-desktop', 'codex'"),
        (["connect"], 2, "Missing argument"),
        (["--config", "absent.toml", "connect", "cursor"], 2, "absent.toml"),
    ],
)  # fmt: skip
def test_what_the_configured_server_could_not_use_is_refused(
    run: Run, home: Path, words: list[str], code: int, told: str
) -> None:
    Path("a-file").write_text("x")
    result = run(*words, *(["--write"] if len(words) > 1 else []))
    assert (result.exit_code, result.stdout) == (code, ""), result.stderr
    assert told in result.stderr
    assert SECRET not in result.stderr
    assert files_below(home, Path.cwd()) == {Path.cwd() / "a-file"}


def test_without_the_mcp_sdk_nothing_is_configured(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    result = run("connect", "cursor", "--write")
    assert result.stderr == "Error: the MCP SDK is missing: pip install 'agent-memory-files[mcp]'\n"
    assert (result.exit_code, files_below(home)) == (6, set())


def test_all_that_opens_the_store_is_written_and_paths_are_absolute(run: Run, home: Path) -> None:
    Path("plugins.toml").write_text("")
    options = ["--url", "store", "--config", "plugins.toml", "--actor", "me", "--no-audit", "-o", "durability=process"]
    run(*options, "connect", "cursor", "--write", "--directory", "/memories/notes", "--history")
    here = str(Path.cwd())
    assert entry_in(home / USER["cursor"])["args"] == [
        "--url", f"{here}/store", "--agent", "default", "--actor", "me", "--config", f"{here}/plugins.toml", "-o",
        "durability=process", "--no-audit", "mcp", "--directory", "notes", "--history",
    ]  # fmt: skip


@given(VALUES)
def test_an_option_of_the_store_keeps_its_value(value: object) -> None:
    assert key_value(_pair("name", value)) == ("name", value)


def test_the_directory_that_confines_the_store_becomes_absolute(run: Run, home: Path) -> None:
    run("--url", "store", "-o", "within=.", "connect", "cursor", "--write")
    assert f"within={Path.cwd()}" in entry_in(home / USER["cursor"])["args"]


@pytest.mark.usefixtures("home")
def test_variables_that_the_server_needs_are_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    shown = run("--json", "--url", "s3://bucket/x", "connect", "codex")
    assert json.loads(shown.stdout)["environment"][1:] == ["AWS_ENDPOINT_URL", "AWS_REGION"]
    assert "AWS_ENDPOINT_URL, AWS_REGION" in run("--url", "s3://bucket/x", "connect", "codex").stderr


@pytest.mark.parametrize("url", ["file:///absolute/store", "s3://bucket/store"])
def test_a_url_is_written_as_it_is(run: Run, home: Path, url: str) -> None:
    run("--url", url, "connect", "cursor", "--write")
    assert entry_in(home / USER["cursor"])["args"][:2] == ["--url", url]


def test_the_default_store_stays_confined_to_its_directory(run: Run, home: Path) -> None:
    run("connect", "cursor", "--write")
    here = Path.cwd()
    assert entry_in(home / USER["cursor"])["args"] == [
        "--url", f"{here}/.agent-memory", "--agent", "default", "-o", f"within={here}", "mcp",
    ]  # fmt: skip


def test_without_the_script_the_interpreter_is_configured(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_memory.cli.connect.sysconfig", SimpleNamespace(get_path=lambda _: "/nowhere"))
    run("--url", "store", "connect", "cursor", "--write")
    entry = entry_in(home / USER["cursor"])
    assert [entry["command"], *entry["args"][:3]] == [sys.executable, "-P", "-m", "agent_memory"]


@pytest.mark.parametrize(("client", "place"), [("codex", "env_vars"), ("cursor", '"env"')])
def test_credentials_are_named_and_never_written(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, client: str, place: str
) -> None:
    monkeypatch.setenv("AGENT_MEMORY_STORAGE_OPTIONS", json.dumps({"key": "K", "secret": SECRET}))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    for options in ([], ["--write"]):
        result = run("--url", "s3://bucket/x", "connect", client, *options)
        assert result.exit_code == 0
        assert SECRET not in result.stdout + result.stderr
        for told in ("AWS_SECRET_ACCESS_KEY", "AGENT_MEMORY_STORAGE_OPTIONS", f"name them in {place} of the entry"):
            assert told in result.stderr
    assert SECRET not in (home / USER[client]).read_text()


def test_the_written_command_serves_the_store(run: Run, home: Path, tmp_path: Path) -> None:
    run("--url", "store", "--agent", "ann", "write", "notes/a.md", "kept")
    run("--url", "store", "--agent", "ann", "connect", "cursor", "--write", "--directory", "notes", "--read-only")
    entry = entry_in(home / USER["cursor"])

    async def used(errors: TextIO) -> None:
        async with over_stdio(["env", "-C", "/", entry["command"], *entry["args"]], errors) as client:
            assert "kept" in (await called(client, "view", path="/memories/a.md")).text
            assert (await called(client, "append", path="/memories/a.md", text="x")).is_error

    with (tmp_path / "stderr").open("w+") as errors:
        asyncio.run(used(errors))
        errors.seek(0)
        assert errors.read() == ""
