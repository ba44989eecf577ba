"""The command mcp: serves one agent's memory to MCP clients, over stdin and stdout, or over HTTP on this host."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from agent_memory.backend import AnyBackend
from agent_memory.backend._deadline import default_seconds
from agent_memory.cli.arguments import memory_path
from agent_memory.cli.files import given_text
from agent_memory.cli.inspection import first_page
from agent_memory.cli.output import Exit, printable
from agent_memory.cli.presence import require_store
from agent_memory.cli.settings import Access, Command, Settings, open_store, pass_settings
from agent_memory.key import Key
from agent_memory.memory import AsyncAgentMemory
from agent_memory.reading.lines import MARK
from agent_memory.service import AsyncAgentMemoryService

if TYPE_CHECKING:
    from mcp.server import MCPServer

    Serve = Callable[[MCPServer[Any]], Coroutine[Any, Any, None]]

_SECONDS_TO_REACH: Final = 7.0
"""Clients give a server some time to start; Codex gives it 10 seconds."""


@click.command(cls=Command)
@click.option("--http", is_flag=True, help="Serve streamable HTTP on this host instead of stdin and stdout.")
@click.option("--host", type=click.Choice(["127.0.0.1", "::1"]), help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help="Port; 0 is any free port.  [default: 0]")
@click.option("--token-env", metavar="NAME", help="The environment variable that holds the token.")
@click.option("--token-file", metavar="FILE", help="The file of this host that holds the token.")
@click.option("--directory", type=memory_path, default="", metavar="DIR", help="Serve only this directory.")
@click.option("--read-only", is_flag=True, help="Refuse every change.")
@click.option("--history", is_flag=True, help="Let clients read the files of conversations, but never change them.")
@click.option("--no-conversation", is_flag=True, help="The memory holds no conversation: let clients use its names.")
@click.option("--versions", is_flag=True, help='Add tools that list and restore earlier versions; see "versions on".')
@pass_settings
def mcp(
    settings: Settings,
    http: bool,
    host: str | None,
    port: int | None,
    token_env: str | None,
    token_file: str | None,
    directory: str,
    read_only: bool,
    history: bool,
    no_conversation: bool,
    versions: bool,
) -> None:
    """Serve the memory of --agent to MCP clients.

    Serves over stdin and stdout until stdin ends. With --http it serves until interrupted, at the URL printed on
    stderr, and clients must send the token. Without --token-env and --token-file a token is generated and printed too.
    """
    if not http and (host, port, token_env, token_file) != (None, None, None, None):
        raise click.UsageError("--host, --port, --token-env and --token-file go with --http")
    files = f"{directory or 'all files'}{' (read-only)' if read_only else ''}"
    if http:
        told = partial(_tell, settings, files, http=True)
        serve = _over_http(settings, host or "127.0.0.1", port or 0, _token(token_env, token_file), told)
    else:
        serve = _over_stdio()

    def narrowed(memory: AsyncAgentMemory) -> AsyncAgentMemory:
        memory = memory.subtree(directory) if directory else memory
        return memory.read_only() if read_only else memory

    def ready(backend: AnyBackend) -> None:
        _reach(backend, settings.agent, directory)
        if read_only:
            require_store(backend, settings.url, settings.agent)
        if not http:
            _tell(settings, files, http=False)

    from agent_memory.mcp_server import mcp_server

    server = partial(mcp_server, history=history, conversation=not no_conversation, versions=versions)
    _run(settings, serve, narrowed, server, ready)


def _over_stdio() -> Serve:
    from agent_memory.mcp_server import serve_stdio

    if sys.stdin is None or sys.stdout is None:
        raise click.UsageError("stdin and stdout are the connection to the client, and one of them is closed")
    return serve_stdio


def _over_http(settings: Settings, host: str, port: int, given: str | None, tell: Callable[[], None]) -> Serve:
    from agent_memory.mcp_server import serve_http

    token = secrets.token_urlsafe() if given is None else given

    def announce(url: str) -> None:
        tell()
        facts = {"url": url} if given is not None else {"url": url, "token": token}
        text = json.dumps(facts) if settings.json else "\n".join(f"{name}: {fact}" for name, fact in facts.items())
        click.echo(text, err=True)

    return lambda server: serve_http(server, token=token, host=host, port=port, listening=announce)


def _token(variable: str | None, file: str | None) -> str | None:
    """The token from a variable or a file; never from an argument, because every user of the host could read it."""
    if variable is not None and file is not None:
        raise click.UsageError("--token-env and --token-file exclude each other")
    if file is not None:
        return given_text(None, file).removeprefix(MARK.decode()).strip()
    if variable is not None and not os.environ.get(variable):
        raise click.UsageError(f"the environment variable {variable!r} holds no token")
    return variable and os.environ[variable]


def _reach(backend: AnyBackend, agent: str, directory: str) -> None:
    """Ask the storage for one name, so that a store out of reach ends the command, not the first call of a client.

    Raises:
        FileOperationError: the storage failed.
    """
    tree = Key.agent(agent)
    with default_seconds(_SECONDS_TO_REACH):
        first_page(backend, tree.join_prefix(directory) if directory else tree)


def _tell(settings: Settings, files: str, *, http: bool) -> None:
    """Say what is served, to a person at a terminal; the stderr of a server is otherwise the log of its client."""
    if settings.json or sys.stderr is None or not sys.stderr.isatty():
        return
    text = f"Serving {files} of agent {settings.agent!r} in {settings.url!r}, and waiting for a client"
    how = (
        " over HTTP."
        if http
        else " on stdin and stdout; 'agent-memory connect' configures clients to start this command."
    )
    click.echo(printable(text + how), err=True)


def _run(
    settings: Settings,
    serve: Serve,
    narrowed: Callable[[AsyncAgentMemory], AsyncAgentMemory],
    server: Callable[..., MCPServer[Any]],
    ready: Callable[[AnyBackend], None],
) -> None:
    options = settings.storage_options()
    with (
        settings.recorded(settings.url, options, Access.MAKE) as plugins,
        open_store(settings.url, options, settings) as store,
    ):
        service = AsyncAgentMemoryService(store.backend, plugins=plugins, actor=settings.actor)
        memory = narrowed(service.agent(settings.agent))
        ready(store.backend)

        async def served() -> None:
            async with service:  # what a signal ends is recorded before the log is closed
                await serve(server(memory, actor=settings.actor))

        try:
            asyncio.run(served())
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        except KeyboardInterrupt:
            raise click.exceptions.Exit(Exit.INTERRUPTED) from None
