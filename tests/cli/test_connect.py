"""The command connect: each client's configuration, parsed as the client parses it. Nothing is written."""

from __future__ import annotations

import asyncio
import contextlib
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

from agent_memory.cli.mcp import CLIENTS, _pair
from agent_memory.cli.settings import key_value
from tests.support.mcp_clients import called, over_stdio

pytestmark = pytest.mark.usefixtures("home")
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
MORE = ["--history", "--no-conversation", "--versions"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "AGENT_MEMORY_NO_AUDIT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    on(monkeypatch, "linux")
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "home"


def on(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    facts = SimpleNamespace(platform=platform, executable=sys.executable)
    monkeypatch.setattr("agent_memory.cli.mcp.sys", facts)


def file_of(run: Run, client: str) -> Path:
    return Path(json.loads(run("--json", "connect", client).stdout)["file"])


def parsed(client: str, text: str) -> Any:
    return tomllib.loads(text) if client == "codex" else json.loads(text)


def in_a_shell(line: str) -> list[str]:
    """The arguments that a command of this line gets from a shell."""
    program = f"claude() {{ printf '%s\\0' \"$@\"; }}; {line}"
    found = subprocess.run(["sh", "-c", program], capture_output=True, check=True).stdout.decode().split("\0")
    assert found[:-1] == shlex.split(line)[1:]
    return found[:-1]


def entry_of(result: Result) -> Any:
    """The entry in the output for Cursor."""
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)["mcpServers"]["agent-memory"]


def files_below(*directories: Path) -> set[Path]:
    return {file for directory in directories for file in directory.rglob("*") if not file.is_dir()}


def arguments(*options: str, agent: str = "default", root: str = "store") -> list[str]:
    return ["--url", str(Path.cwd() / root), "--agent", agent, *options, "mcp"]


def test_every_client_is_tested() -> None:
    assert USER.keys() == CLIENTS.keys()


@pytest.mark.parametrize("client", sorted(USER.keys() - PROJECT.keys()))
def test_a_client_without_files_of_projects_is_a_usage_error(run: Run, home: Path, client: str) -> None:
    result = run("connect", client, "--scope", "project")
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
    on(monkeypatch, "darwin")
    assert file_of(run, client) == home / file


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
    assert file_of(run, client) == home / "elsewhere" / file


def test_a_relative_xdg_directory_is_ignored(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "elsewhere")
    assert file_of(run, "vscode") == home / USER["vscode"]


@pytest.mark.parametrize("client", USER)
def test_the_configuration_of_each_client_starts_the_server(run: Run, home: Path, client: str) -> None:
    store = 'a store\'s "ä" \\ with #'
    result = run("--url", store, "--agent", "ann", "connect", client, "--directory", "my notes", *MORE)
    assert result.exit_code == 0, result.stderr
    command = [SCRIPT, *arguments(agent="ann", root=store), "--directory", "my notes", *MORE]
    if client == "claude-code":
        assert in_a_shell(result.stdout) == ["mcp", "add", "--scope", "user", "agent-memory", "--", *command]
    else:
        typed = {"type": "stdio"} if client == "vscode" else {}
        entry = {**typed, "command": command[0], "args": command[1:]}
        assert parsed(client, result.stdout) == {SERVERS.get(client, "mcpServers"): {"agent-memory": entry}}
    assert f"'{home / USER[client]}'" in result.stderr
    assert result.stderr.startswith("Note: nothing was written: ")
    assert files_below(home, Path.cwd()) == set()


@pytest.mark.parametrize("client", PROJECT)
def test_the_file_of_a_project_is_named(run: Run, client: str) -> None:
    result = run("--url", "store", "connect", client, "--scope", "project")
    assert f"'{Path.cwd() / PROJECT[client]}'" in result.stderr
    assert ("--scope project" in result.stdout) == (client == "claude-code")


def test_the_configuration_of_codex_goes_to_the_end_of_a_file(run: Run) -> None:
    before = 'model = "m"\n[mcp_servers.other]\ncommand = "c"\n'
    (server,) = tomllib.loads(run("connect", "codex").stdout)["mcp_servers"].values()
    after = tomllib.loads(before + run("connect", "codex").stdout)
    assert after == {"model": "m", "mcp_servers": {"other": {"command": "c"}, "agent-memory": server}}


def test_the_json_document_has_all_facts(run: Run, home: Path) -> None:
    options = ("--url", "store", "connect", "cursor", "--name", "memo")
    shown = run("--json", *options)
    assert (json.loads(shown.stdout), shown.stderr) == (
        {
            "client": "cursor", "scope": "user", "name": "memo", "file": str(home / USER["cursor"]),
            "command": [SCRIPT, *arguments()], "environment": [], "text": run(*options).stdout.rstrip("\n"),
        },
        "",
    )  # fmt: skip


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
    result = run(*words)
    assert (result.exit_code, result.stdout) == (code, ""), result.stderr
    assert told in result.stderr
    assert SECRET not in result.stderr
    assert files_below(home, Path.cwd()) == {Path.cwd() / "a-file"}


def test_without_the_mcp_sdk_nothing_is_configured(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    result = run("connect", "cursor")
    assert result.stderr == "Error: the MCP SDK is missing: pip install 'agent-memory-files[mcp]'\n"
    assert (result.exit_code, files_below(home)) == (6, set())


def test_all_that_opens_the_store_is_printed_and_paths_are_absolute(run: Run) -> None:
    Path("plugins.toml").write_text("")
    options = ["--url", "store", "--config", "plugins.toml", "--actor", "me", "--no-audit", "-o", "durability=process"]
    result = run(*options, "connect", "cursor", "--directory", "/memories/notes", "--history")
    here = str(Path.cwd())
    assert entry_of(result)["args"] == [
        "--url", f"{here}/store", "--agent", "default", "--actor", "me", "--config", f"{here}/plugins.toml", "-o",
        "durability=process", "--no-audit", "mcp", "--directory", "notes", "--history",
    ]  # fmt: skip


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(VALUES)
def test_an_option_of_the_store_keeps_its_value(value: object) -> None:
    assert key_value(_pair("name", value)) == ("name", value)


def test_the_directory_that_confines_the_store_becomes_absolute(run: Run) -> None:
    result = run("--url", "store", "-o", "within=.", "connect", "cursor")
    assert f"within={Path.cwd()}" in entry_of(result)["args"]


def test_variables_that_the_server_needs_are_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    shown = run("--json", "--url", "s3://bucket/x", "connect", "codex")
    assert json.loads(shown.stdout)["environment"][1:] == ["AWS_ENDPOINT_URL", "AWS_REGION"]
    assert "AWS_ENDPOINT_URL, AWS_REGION" in run("--url", "s3://bucket/x", "connect", "codex").stderr


@pytest.mark.parametrize("url", ["file:///absolute/store", "s3://bucket/store"])
def test_a_url_is_printed_as_it_is(run: Run, url: str) -> None:
    assert entry_of(run("--url", url, "connect", "cursor"))["args"][:2] == ["--url", url]


def test_the_default_store_stays_confined_to_its_directory(run: Run) -> None:
    here = Path.cwd()
    assert entry_of(run("connect", "cursor"))["args"] == [
        "--url", f"{here}/.agent-memory", "--agent", "default", "-o", f"within={here}", "mcp",
    ]  # fmt: skip


def test_without_the_script_the_interpreter_is_configured(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_memory.cli.mcp.sysconfig", SimpleNamespace(get_path=lambda _: "/nowhere"))
    entry = entry_of(run("--url", "store", "connect", "cursor"))
    assert [entry["command"], *entry["args"][:3]] == [sys.executable, "-P", "-m", "agent_memory"]


@pytest.mark.parametrize(("client", "place"), [("codex", "env_vars"), ("cursor", '"env"')])
def test_credentials_are_named_and_never_printed(
    run: Run, monkeypatch: pytest.MonkeyPatch, client: str, place: str
) -> None:
    monkeypatch.setenv("AGENT_MEMORY_STORAGE_OPTIONS", json.dumps({"key": "K", "secret": SECRET}))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    result = run("--url", "s3://bucket/x", "connect", client)
    assert result.exit_code == 0
    assert SECRET not in result.stdout + result.stderr
    for told in ("AWS_SECRET_ACCESS_KEY", "AGENT_MEMORY_STORAGE_OPTIONS", f"name them in {place} of the entry"):
        assert told in result.stderr


def test_the_printed_command_serves_the_store(run: Run, tmp_path: Path) -> None:
    run("--url", "store", "--agent", "ann", "write", "notes/a.md", "kept")
    words = ("--url", "store", "--agent", "ann", "connect", "cursor", "--directory", "notes", "--read-only")
    entry = entry_of(run(*words))

    async def used(errors: TextIO) -> None:
        async with over_stdio([entry["command"], *entry["args"]], errors) as client:
            assert "kept" in (await called(client, "view", path="/memories/a.md")).text
            assert (await called(client, "append", path="/memories/a.md", text="x")).is_error

    with (tmp_path / "stderr").open("w+") as errors:
        with contextlib.chdir("/"):
            asyncio.run(used(errors))
        errors.seek(0)
        assert errors.read() == ""
