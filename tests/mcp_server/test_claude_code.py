"""Claude Code, as npm installs it, with the MCP server and a model that copies to the letter what it is shown."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sysconfig
from pathlib import Path

from tests.support import npm
from tests.support.messages_api import Call, Step, serving

PACKAGE = "@anthropic-ai/claude-code@2.1.332"
NOTES, WINDOWS = "/memories/notes.md", "/memories/windows.md"
TEXT = """say "hi" to C:\\temp\\new
\tif x == '\\t':
\t\treturn "\\\\"  # é
"last" \\
"""


def test_no_edit_of_text_with_quotes_backslashes_and_tabs_fails(tmp_path: Path) -> None:
    tree = tmp_path / "memories" / "agent_memory" / "ann"
    tree.mkdir(parents=True)
    (tree / "windows.md").write_bytes(TEXT.replace("\n", "\r\n").encode())
    steps: list[Step] = [
        lambda _: call("create", path=NOTES, file_text=TEXT),
        lambda _: call("view", path=NOTES),
        lambda shown: with_a_dash(NOTES, lines_of(shown)),
        lambda _: call("view", path=WINDOWS),
        lambda shown: with_a_dash(WINDOWS, lines_of(shown)),
        lambda _: call("search", path=NOTES, query="SAY"),
        lambda found: with_a_dash(NOTES, json.loads(found)["matches"][0]["text"]),  # it shows only the records
    ]
    with serving(steps) as api:
        run_claude_code(api.url, tmp_path)
    assert len(api.results) == len(steps)
    assert [result for result in api.results if result.is_error] == []
    assert (tree / "notes.md").read_bytes().decode() == f"- - {TEXT}"
    assert (tree / "windows.md").read_bytes().decode() == f"- {TEXT}".replace("\n", "\r\n")


def call(tool: str, **arguments: object) -> Call:
    return Call(f"mcp__memory__{tool}", arguments)


def with_a_dash(path: str, text: str) -> Call:
    return call("str_replace", path=path, old_str=text, new_str=f"- {text}")


def lines_of(shown: str) -> str:
    """The lines of a file in the answer of `view`, without their numbers."""
    return "\n".join(re.findall(r"^ *[0-9]+\t(.*)$", shown, re.MULTILINE))


def run_claude_code(api: str, directory: Path) -> None:
    """Let Claude Code answer one prompt with the tools of a memory, in an environment and a home of its own."""
    package = npm.install(PACKAGE, directory)
    server = {
        "command": str(Path(sysconfig.get_path("scripts"), "agent-memory")),
        "args": ["--url", str(directory / "memories"), "--agent", "ann", "mcp"],
    }
    options = {"mcp-config": json.dumps({"mcpServers": {"memory": server}}), "allowedTools": "mcp__memory", "tools": ""}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),
        "TMPDIR": str(directory),
        "ANTHROPIC_BASE_URL": api,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
        "MCP_TIMEOUT": "120000",  # milliseconds for the server to start on a busy machine
    }
    command = [npm.NODE, str(package / "cli-wrapper.cjs"), "--bare", "--strict-mcp-config", "-p", "Edit.", *words]
    done = subprocess.run(
        command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done
