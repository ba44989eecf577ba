"""``agent-memory mcp`` as a process, with real clients over stdio and HTTP; stdout carries only the protocol."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

import pytest
from click.testing import Result
from mcp import MCPError

from agent_memory import AgentMemoryService
from tests.support import forked
from tests.support.mcp_clients import all_of, both_eras, called, hold_session, insert_forty_lines, over_http, over_stdio
from tests.support.mcp_processes import INITIALIZE, Server, serving, shared_server, started
from tests.support.pages import blocks_of

Run = Callable[..., Result]
Spawn = Callable[..., subprocess.CompletedProcess[bytes]]

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from shared_server(tmp_path_factory, real=True)


@pytest.fixture
def errors(tmp_path: Path) -> Iterator[TextIO]:
    """The stderr of servers over stdio. Check that it stays empty."""
    with (tmp_path / "stderr").open("w+") as file:
        yield file
        file.seek(0)
        assert file.read() == ""


@pytest.mark.asyncio
@both_eras
async def test_a_client_can_use_a_session_over_stdio(script: str, errors: TextIO, mode: str) -> None:
    async with over_stdio([script, "--url", "root", "--agent", "a", "mcp"], errors, mode) as client:
        await hold_session(client)


@pytest.mark.asyncio
@both_eras
async def test_a_client_can_use_a_session_over_http(server: Server, mode: str) -> None:
    async with over_http(server.url, server.token, mode) as client:
        await hold_session(client)


@pytest.mark.asyncio
async def test_a_client_can_read_the_history_only_with_the_option_and_never_change_it(
    script: str, errors: TextIO
) -> None:
    with AgentMemoryService("root") as service:
        service.write_memory_file("default", "history.jsonl", "said\n")
    for options in ([], ["--history"]):
        async with over_stdio([script, "--url", "root", "mcp", *options], errors) as client:
            assert ("said" in (await called(client, "view", path="/memories/history.jsonl")).text) == bool(options)
            assert (await called(client, "append", path="/memories/history.jsonl", text="forged")).is_error
            assert (await called(client, "delete", path="/memories/history.jsonl")).is_error
    with AgentMemoryService("root") as service:
        assert service.read_memory_file("default", "history.jsonl") == "said\n"


@pytest.mark.asyncio
async def test_the_options_directory_and_read_only_limit_the_served_memory(script: str, errors: TextIO) -> None:
    with AgentMemoryService("root") as service:
        service.write_memory_file("default", "notes/a.md", "noted\n")
        service.write_memory_file("default", "plan.md", "planned\n")
    async with over_stdio([script, "--url", "root", "mcp", "--directory", "notes", "--read-only"], errors) as client:
        assert "noted" in (await called(client, "view", path="/memories/a.md")).text
        assert (await called(client, "view", path="/memories/plan.md")).is_error
        assert (await called(client, "append", path="/memories/a.md", text="x")).is_error
    with AgentMemoryService("root") as service:
        assert service.read_memory_file("default", "notes/a.md") == "noted\n"


@pytest.mark.long
@pytest.mark.asyncio
async def test_forty_concurrent_inserts_over_stdio_and_http_keep_forty_lines(script: str, errors: TextIO) -> None:
    with serving(script) as server:
        ours = [over_http(server.url, server.token, mode) for mode in ("auto", "legacy", "auto")]
        theirs = [over_stdio([script, "--url", "root", "mcp"], errors) for _ in range(2)]
        async with all_of([*ours, *theirs]) as clients:
            await insert_forty_lines(clients)


@pytest.mark.asyncio
@both_eras
async def test_a_clients_mistake_is_an_error_and_the_server_continues(
    script: str, server: Server, errors: TextIO, mode: str
) -> None:
    stdio = over_stdio([script, "--url", "root", "mcp"], errors, mode)
    async with all_of([stdio, over_http(server.url, server.token, mode)]) as clients:
        for client in clients:
            told = await called(client, "create", path="/memories/12:30 meeting.md", file_text="x")
            assert told.is_error
            assert told.text.endswith("try /memories/12-30 meeting.md")
            told = await called(client, "view", path="/memories/../../etc/passwd")
            assert told.text.endswith("try /memories/etc/passwd")
            assert (await called(client, "view", path=7)).is_error
            assert (await called(client, "insert")).is_error
            with pytest.raises(MCPError, match=r"try 'x\.md'"):
                await client.read_resource("memory://%2e%2e/x.md")
        told = await called(clients[0], "append", path="/memories/big.md", text="x" * 50_000_001)
        assert (told.is_error, "50,000,000" in told.text) == (True, True)
        with pytest.raises(MCPError):  # the server does not read a request of 4 MiB or more
            await called(clients[1], "append", path="/memories/big.md", text="x" * 4_200_000)
        for client in clients:
            assert (await called(client, "view", path="/memories")).text.endswith("0B\t/memories")


def test_lines_that_are_no_messages_are_answered_with_errors(script: str) -> None:
    with started([script, "mcp"]) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"nonsense\n\xff\xfe\n\n[]\n7\n" + b'{"jsonrpc":"2.0"}\n' + json.dumps(INITIALIZE).encode())
        process.stdin.write(b"\n" + PING)
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(7)]
        assert [answer["id"] for answer in answers] == [*[None] * 5, 1, 1]
        codes = [answer["error"]["code"] for answer in answers if "error" in answer]
        assert codes == [-32700, -32700, -32600, -32600, -32600]
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (0, b"", b"")


@pytest.mark.parametrize(
    "redirected", ["input", *(pytest.param(each, marks=pytest.mark.long) for each in ("/dev/null", ""))]
)
def test_the_end_of_stdin_ends_the_server(spawn: Spawn, tmp_path: Path, redirected: str) -> None:
    (tmp_path / "input").write_bytes(b"no message\n")
    with ExitStack() as files:
        stdin = files.enter_context(Path(redirected).open("rb")) if redirected else subprocess.PIPE
        done = spawn("mcp", stdin=stdin)
    codes = [json.loads(line)["error"]["code"] for line in done.stdout.splitlines()]
    assert (done.returncode, codes, done.stderr) == (0, [-32700] if redirected == "input" else [], b"")


def test_an_interrupt_ends_the_server_silently_while_the_client_is_idle(script: str) -> None:
    with started([script, "mcp"]) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.wait(60)
        assert (process.returncode, process.stdout.read(), process.stderr and process.stderr.read()) == (130, b"", b"")


def test_a_closed_client_ends_the_server_silently(script: str) -> None:
    with started([script, "mcp"]) as process:
        assert process.stdin
        assert process.stdout
        process.stdout.close()
        process.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        process.stdin.flush()
        process.wait(60)
        assert (process.returncode, process.stderr and process.stderr.read()) == (141, b"")


@pytest.mark.parametrize("closed", [0, 1])
def test_a_closed_stdin_or_stdout_is_a_usage_error(spawn: Spawn, closed: int) -> None:
    done = spawn("mcp", closed=[closed])
    assert done.returncode == 2
    assert done.stderr.startswith(b"Error: stdin and stdout are the connection")


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (["--port", "80"], 2, "go with --http"),
        (["--token-env", "HOME"], 2, "go with --http"),
        (["--public-url", "https://a", "--oauth-scope", "x"], 2, "go with --http: --public-url, --oauth-scope"),
        (["--http", "--host", "0.0.0.0"], 2, "give --token-env, --token-file or --oauth-issuer, and --public-url"),
        (["--http", "--host", "::", "--public-url", "https://a"], 2, "other hosts can reach ::: give --token-env"),
        (["--http", "--host", "10.0.0.1", "--token-env", "HOME"], 2, "the token must be 16 or more"),
        (["--http", "--host", "0.0.0.0", "--oauth-issuer", "https://a"], 2, "give the public URL"),
        (["--http", "--host", "localhost"], 2, "'localhost' is not an IP address"),
        (["--http", "--host", ""], 2, "'' is not an IP address"),
        (["--http", "--public-url", "memory.example.org"], 2, "the public URL must be https://"),
        (["--http", "--public-url", "https://u:p@a"], 2, "the public URL must be https://"),
        (["--http", "--public-url", "https://a:x"], 2, "the public URL must be https://"),
        (["--http", "--oauth-scope", "x"], 2, "go with --oauth-issuer: --oauth-scope"),
        (["--http", "--agent-from-claim", "sub"], 2, "go with --oauth-issuer: --agent-from-claim"),
        (["--http", "--oauth-issuer", "http://a"], 2, "the issuer must be an https:// URL"),
        (["--http", "--oauth-issuer", "https://a", "--oauth-scope", "x y"], 2, "a scope is one word"),
        (["--http", "--oauth-issuer", "https://a", "--token-env", "HOME"], 2, "and --token-env exclude each other"),
        (["--http", "--oauth-issuer", "https://a", "--actor", "me"], 2, "and --actor exclude each other"),
        (["--http", "--oauth-issuer", "https://a", "--agent-from-claim", "sub", "--agent", "a"], 2, "and --agent exc"),
        (["--http", "--graceful-timeout", "0"], 2, "0 is not in the range"),
        (["--http", "--port", "65536"], 2, "65536 is not in the range"),
        (["--http", "--token-env", "NO_SUCH_VARIABLE"], 2, "'NO_SUCH_VARIABLE' holds no token"),
        (["--http", "--token-env", "HOME", "--token-file", "x"], 2, "exclude each other"),
        (["--http", "--token-file", "absent"], 1, "'absent' cannot be read"),
        (["--http", "--token-file", "short"], 2, "the token must be 16 or more"),
        (["--http", "--token-file", "open"], 2, "all users of this host can change the token in 'open'"),
        (["--agent", "../x"], 5, "is not an agent id"),
    ],
)
def test_a_usage_error_prints_one_line(run: Run, tmp_path: Path, args: list[str], code: int, told: str) -> None:
    for name, mode in (("short", 0o400), ("open", 0o602)):
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(mode)
    done = run("mcp", *args)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert told in done.stderr


@pytest.mark.long
def test_a_port_in_use_prints_one_line(script: str, spawn: Spawn) -> None:
    with serving(script) as server:
        done = spawn("mcp", "--http", "--port", server.url.split(":")[2].removesuffix("/mcp"))
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (1, b"", 1)
    assert b"in use" in done.stderr


@pytest.mark.parametrize(("options", "told"), [([], 1), pytest.param(["--json"], 0, marks=pytest.mark.long)])
def test_a_terminal_is_told_once_what_is_served_and_that_it_waits(
    spawn: Spawn, tmp_path: Path, options: list[str], told: int
) -> None:
    (tmp_path / "root").mkdir()
    ours, theirs = pty.openpty()
    command = ["--url", "root", "--agent", "ann", *options, "mcp", "--directory", "notes", "--read-only"]
    done = spawn(*command, stderr=theirs)
    os.write(theirs, b"end")
    os.close(theirs)
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    assert (done.returncode, done.stdout) == (0, b"")
    assert shown.count("Serving notes (read-only) of agent 'ann' in 'root', and waiting for a client") == told
    assert shown.count("\n") == told


@pytest.mark.parametrize(
    ("store", "told"),
    [
        (["--url", "a-file"], b"Error: "),
        pytest.param(["--url", "a-file/below"], b"Error: ", marks=pytest.mark.long),
        pytest.param(
            ["--url", "s3://memories/x", "-o", "endpoint_url=http://127.0.0.1:9", "-o", "key=k", "-o", "secret=s"],
            b"Error: bucket 'memories': no reply from S3", marks=pytest.mark.long,
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("way", [[], pytest.param(["--http"], marks=pytest.mark.long)])
def test_a_store_that_cannot_be_reached_ends_the_server_at_once(
    script: str, tmp_path: Path, store: list[str], told: bytes, way: list[str]
) -> None:
    (tmp_path / "a-file").write_text("x")
    with started([script, *store, "mcp", *way]) as process:
        process.wait(60)  # the client waits, too: stdin stays open
        assert process.stdout
        assert process.stderr
        assert (process.returncode, process.stdout.read()) == (1, b"")
        assert process.stderr.read().splitlines()[-1].startswith(told)


def test_a_read_only_server_of_a_missing_store_ends_at_once(spawn: Spawn) -> None:
    done = spawn("mcp", "--read-only")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (3, b"", 1)
    assert b"there is no store" in done.stderr


def test_the_command_names_the_missing_extra() -> None:
    program = "import sys; sys.modules['mcp'] = None; from agent_memory.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program, "mcp"], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (6, b"")
    assert done.stderr == b"Error: the MCP SDK is missing: pip install 'agent-memory-files[mcp]'\n"


def test_the_library_names_the_missing_extra() -> None:
    program = "import sys; sys.modules['mcp'] = None; import agent_memory.mcp_server"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, text=True)
    assert done.stderr.splitlines()[-1] == (
        "agent_memory.errors.BackendNotAvailableError: the MCP SDK is missing: pip install 'agent-memory-files[mcp]'"
    )


def test_the_other_commands_do_not_import_the_sdk() -> None:
    program = "import sys; import agent_memory.cli.app; sys.exit('mcp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_output_of_a_plugin_does_not_reach_the_client() -> None:
    program = """
import asyncio
from agent_memory import AsyncAgentMemory, hookimpl
from agent_memory.mcp_server import mcp_server, serve_stdio

class Loud:
    @hookimpl
    def agent_memory_after_operation(self):
        print("printed")

asyncio.run(serve_stdio(mcp_server(AsyncAgentMemory.open("memory://", plugins=[Loud()]))))
print("at last")
"""
    call = {"name": "view", "arguments": {"path": "/memories"}}
    messages = [INITIALIZE, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}]
    lines = "".join(f"{json.dumps(message)}\n" for message in messages)
    done = forked.run([sys.executable, "-c", program], given=lines.encode())
    _, answer, last = done.stdout.splitlines()
    assert not json.loads(answer)["result"].get("isError")
    assert (done.returncode, last, done.stderr) == (0, b"at last", b"printed\n")


@pytest.mark.asyncio
async def test_the_served_memory_is_that_of_the_agent_in_the_options(script: str, errors: TextIO) -> None:
    async with over_stdio([script, "--url", "root", "--agent", "ann", "mcp"], errors) as client:
        await called(client, "append", path="/memories/a.md", text="x")
    with AgentMemoryService("root") as service:
        assert service.read_memory_file("ann", "a.md") == "x"


@pytest.mark.asyncio
async def test_the_configurations_in_the_docs_connect(script: str, server: Server, errors: TextIO) -> None:
    page = (Path(__file__).parents[2] / "docs/mcp.md").read_text()
    blocks = [block.code for block in blocks_of(page) if block.language == "json"]
    stdio, http = (json.loads(block)["mcpServers"]["memory"] for block in blocks)
    assert stdio["command"] == "agent-memory"
    assert http["url"].endswith("/mcp")
    token = http["headers"]["Authorization"].removeprefix("Bearer ").replace("${MEMORY_TOKEN}", server.token)
    ours = over_stdio(["env", f"HOME={Path.cwd()}", script, *stdio["args"]], errors, real=True)
    async with all_of([ours, over_http(server.url, token)]) as clients:
        for client in clients:
            await hold_session(client)
        await called(clients[0], "append", path="/memories/a.md", text="x")
    with AgentMemoryService("memories") as service:
        assert service.read_memory_file("ann", "a.md") == "x"
