"""The commands mcp and connect: serve one agent's memory to MCP clients, and print how a client starts that."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeVar
from urllib.parse import parse_qsl, urlsplit

import click

from agent_memory.backend import AnyBackend
from agent_memory.backend._deadline import default_seconds
from agent_memory.cli.arguments import memory_path
from agent_memory.cli.inspection import first_page
from agent_memory.cli.mcp_http import HttpOptions, http_options, tell
from agent_memory.cli.output import Exit, note, printable, show_json
from agent_memory.cli.presence import local_root, require_store
from agent_memory.cli.settings import (
    OPTIONS_VARIABLE,
    Access,
    Command,
    Settings,
    key_value,
    open_store,
    opening_errors,
    pass_settings,
    usage_errors,
)
from agent_memory.cli.signals import run
from agent_memory.errors import BackendNotAvailableError, UnsupportedOperationError, install_hint
from agent_memory.key import Key
from agent_memory.memory import AsyncAgentMemory
from agent_memory.plugins.configuration import PLUGINS_VARIABLE
from agent_memory.service import AsyncAgentMemoryService

F = TypeVar("F", bound=Callable[..., Any])
_SECONDS_TO_REACH: Final = 7.0
"""Clients give a server some time to start; Codex gives it 10 seconds."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_VARIABLE: Final = re.compile(r"\$[\w{]")
_MODULE: Final = ["-P", "-m", "agent_memory"]
"""Starts this package, and nothing from the current directory."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_OF_S3: Final = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CA_BUNDLE")
"""Variables besides those of credentials without which S3 would not be found."""
_SERVED_OPTIONS: Final = (
    click.option("--directory", type=memory_path, default="", metavar="DIR", help="Serve only this directory."),
    click.option("--read-only", is_flag=True, help="Refuse every change."),
    click.option("--history", is_flag=True, help="Let clients read the files of conversations, but never change them."),
    click.option(
        "--no-conversation", is_flag=True, help="The memory holds no conversation: let clients use its names."
    ),
    click.option(
        "--versions", is_flag=True, help='Add tools that list and restore earlier versions; see "versions on".'
    ),
)


def _served_options(command: F) -> F:
    """Add the options that say what is served; connect passes them on to mcp."""
    for option in reversed(_SERVED_OPTIONS):
        command = option(command)
    return command


@click.command(cls=Command)
@click.option("--http", is_flag=True, help="Serve streamable HTTP instead of stdin and stdout.")
@http_options
@_served_options
@pass_settings
def mcp(
    settings: Settings,
    /,
    http: bool,
    directory: str,
    read_only: bool,
    history: bool,
    no_conversation: bool,
    versions: bool,
    **given: Any,
) -> None:
    """Serve the memory of --agent to MCP clients.

    Serves over stdin and stdout until stdin ends. With --http it serves until a signal ends it, at the URL printed on
    stderr, and clients must send the token. Without --token-env, --token-file and --oauth-issuer a token is generated
    and printed too; then only this host can connect.
    """
    over_http = HttpOptions(**given)
    if not http:
        over_http.require_none()
        _require_streams()
    from agent_memory.mcp_server import mcp_server, serve_stdio

    oauth = over_http.oauth(settings) if http else None
    owner = "each user's agent" if over_http.agent_from_claim else f"agent {settings.agent!r}"
    served = f"{directory or 'all files'}{' (read-only)' if read_only else ''} of {owner}"
    server = partial(mcp_server, history=history, conversation=not no_conversation, versions=versions)
    options = settings.storage_options()
    with (
        settings.recorded(settings.url, options, Access.MAKE) as plugins,
        open_store(settings.url, options, settings) as store,
    ):
        service = AsyncAgentMemoryService(
            store.backend, plugins=plugins, actor=settings.actor, limits=settings.limits()
        )

        def of_agent(agent: str) -> AsyncAgentMemory:
            memory = service.agent(agent)
            memory = memory.subtree(directory) if directory else memory
            return memory.read_only() if read_only else memory

        memory = of_agent(settings.agent)
        probe = store.service.agent(settings.agent).as_async()  # without plugins: a probe leaves no record
        serve = over_http.serve(settings, served, oauth, probe) if http else serve_stdio
        _reach(store.backend, settings.agent, directory)
        if read_only:
            require_store(store.backend, settings.url, None if over_http.agent_from_claim else settings.agent)
        if not http:
            how = "on stdin and stdout; 'agent-memory connect' configures clients to start this command."
            tell(settings, served, how)
        tree = over_http.memory_of(oauth, memory, of_agent) if oauth else memory

        try:
            with usage_errors():  # what a signal ends is recorded before the log is closed
                run(service, lambda: serve(server(tree, actor=settings.actor)))
        except KeyboardInterrupt:
            raise click.exceptions.Exit(Exit.INTERRUPTED) from None


def _require_streams() -> None:
    if sys.stdin is None or sys.stdout is None:
        raise click.UsageError("stdin and stdout are the connection to the client, and one of them is closed")


def _reach(backend: AnyBackend, agent: str, directory: str) -> None:
    """Ask the storage for one name, so that a store out of reach ends the command, not the first call of a client.

    Raises:
        FileOperationError: the storage failed.
    """
    tree = Key.agent(agent)
    with default_seconds(_SECONDS_TO_REACH):
        first_page(backend, tree.join_prefix(directory) if directory else tree)


@dataclass(frozen=True)
class Client:
    """One MCP client.

    Attributes:
        title: its name.
        user: the file for all projects, below the user's home directory.
        project: the file of one project, below its directory; None if the client has none.
        servers: the object or table of all servers.
        fields: the fields of an entry besides ``command`` and ``args``.
        home: the environment variable with another directory for the file ``user``.
        form: the language of the configuration to copy; with ``shell`` it is the client's own command.
    """

    title: str
    user: str
    project: str | None = None
    servers: str = "mcpServers"
    fields: Mapping[str, str] = field(default_factory=dict)
    home: str | None = None
    form: Literal["json", "toml", "shell"] = "json"

    def file(self, scope: str) -> Path:
        """The file of the scope ``user`` or ``project``.

        Raises:
            click.UsageError: the client has no files of projects.
        """
        if scope == "user":
            return self._user_file()
        if self.project is None:
            raise click.UsageError(f"{self.title} has no file for one project; leave out --scope")
        return Path.cwd() / self.project

    def configuration(self, scope: str, name: str, command: list[str]) -> str:
        """The text to copy that makes the client start a server by a command."""
        if self.form == "shell":
            return shlex.join(["claude", "mcp", "add", "--scope", scope, name, "--", *command])
        entry = {**self.fields, "command": command[0], "args": command[1:]}
        if self.form == "json":
            return json.dumps({self.servers: {name: entry}}, indent=2, ensure_ascii=False)
        values = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()]
        return "\n".join([f"[{self.servers}.{name}]", *values])

    def place(self, file: Path, name: str) -> str:
        """Where the configuration goes."""
        if self.form == "shell":
            return f"run this command in a shell; it changes {str(file)!r}"
        if self.form == "toml":
            return f"add this at the end of {str(file)!r}, or put it in the place of an older table of this name"
        return f"this is the content of {str(file)!r}; if the file exists, set {name!r} in its {self.servers!r}"

    def _user_file(self) -> Path:
        if self.home and (directory := os.environ.get(self.home)):
            return Path(directory).absolute() / Path(self.user).name
        home, file = Path.home(), Path(self.user)
        if file.parts[0] != ".config":
            return home / file
        given = Path(os.environ.get("XDG_CONFIG_HOME", ""))
        others = given if given.is_absolute() else home / ".config"  # as the specification of XDG says
        configured = home / "Library/Application Support" if sys.platform == "darwin" else others
        return configured / file.relative_to(".config")


CLIENTS: Final = {
    "claude-code": Client("Claude Code", ".claude.json", ".mcp.json", home="CLAUDE_CONFIG_DIR", form="shell"),
    "claude-desktop": Client("Claude Desktop", ".config/Claude/claude_desktop_config.json"),
    "codex": Client("Codex", ".codex/config.toml", ".codex/config.toml", "mcp_servers", home="CODEX_HOME", form="toml"),
    "cursor": Client("Cursor", ".cursor/mcp.json", ".cursor/mcp.json"),
    "gemini": Client("Gemini CLI", ".gemini/settings.json", ".gemini/settings.json"),
    "vscode": Client("VS Code", ".config/Code/User/mcp.json", ".vscode/mcp.json", "servers", {"type": "stdio"}),
    "windsurf": Client("Windsurf", ".codeium/windsurf/mcp_config.json"),
}
"""The clients by the name that the command takes; their formats were checked in November 2026."""


@click.command(cls=Command)
@click.argument("client", type=click.Choice(list(CLIENTS)))
@click.option("--scope", type=click.Choice(["user", "project"]), default="user", show_default=True,
              help="The file for all projects, or the file of the project in the current directory.")  # fmt: skip
@click.option("--name", default="agent-memory", show_default=True, help="The name of the server in the file.")
@_served_options
@pass_settings
def connect(settings: Settings, /, client: str, scope: str, name: str, **served: Any) -> None:
    """Print the configuration with which an MCP client serves itself the memory of --agent.

    For Claude Code it is a command for the shell, for the other clients an entry for the client's file. Nothing is
    written, and credentials are never printed.
    """
    if importlib.util.find_spec("mcp") is None:
        raise BackendNotAvailableError(f"the MCP SDK is missing: {install_hint('mcp')}")
    if not _NAME.fullmatch(name):
        raise click.UsageError("the name of a server is 1 to 64 characters of A-Z a-z 0-9 _ -, the first no _ or -")
    chosen = CLIENTS[client]
    file = chosen.file(scope)
    options = _options({f"--{option.replace('_', '-')}": value for option, value in served.items()})
    store = _store_arguments(settings, served["directory"], served["read_only"])
    command = _checked([*_program(), *store, "mcp", *options])
    text, needed = chosen.configuration(scope, name, command), _variables(settings)
    if settings.json:
        show_json({
            "client": client, "scope": scope, "name": name, "file": str(file), "command": command,
            "environment": needed, "text": text,
        })  # fmt: skip
        return
    click.echo(printable(text))
    note(f"nothing was written: {chosen.place(file, name)}")
    if needed:
        place = "env_vars" if chosen.form == "toml" else '"env"'
        note(
            f"the configuration has no credentials: the server takes {', '.join(needed)} from its environment; "
            f"if {chosen.title} does not pass them on, name them in {place} of the entry"
        )


def _program() -> list[str]:
    """This program, in a form that starts it from any directory and any environment."""
    script = Path(sysconfig.get_path("scripts"), "agent-memory")
    return [str(script)] if os.access(script, os.X_OK) else [sys.executable, *_MODULE]


def _store_arguments(settings: Settings, directory: str, read_only: bool) -> list[str]:
    """The global options, in a form that opens this store from any directory.

    Raises:
        click.UsageError: the store does not open, or an option is a credential.
        AgentMemoryFileNotFoundError: there is no store, and the server could not create it.
    """
    options = dict(settings.options)
    with opening_errors():
        url = _absolute_url(settings)
        _refuse_credentials(url, options)
    with settings.configured(), open_store(url, settings.storage_options(), settings) as store:
        if read_only and local_root(url):
            require_store(store.backend, settings.url)
        memory = store.service.agent(settings.agent)
        if directory:
            memory.subtree(directory)
    if settings.chosen_url is None:
        options = {"within": ".", **options}  # no symbolic link may take the place of the default store
    if local_root(url) and "within" in options:
        options["within"] = str(Path(str(options["within"])).absolute())
    config = settings.config and str(Path(settings.config).absolute())
    given = {"--url": url, "--agent": settings.agent, "--actor": settings.actor, "--config": config}
    pairs = [word for key, value in options.items() for word in ("-o", _pair(key, value))]
    return [*_options(given), *pairs, *_options({"--no-audit": settings.no_audit})]


def _absolute_url(settings: Settings) -> str:
    url = settings.url
    if not url.strip():
        raise click.UsageError("the URL of the store is empty")
    if url.lower().startswith("memory://"):
        raise UnsupportedOperationError(
            "memory:// exists in one process only, so each start of the server would lose it"
        )
    root = local_root(url)
    if root is not None and root.exists() and not root.is_dir():
        raise click.UsageError(f"the store {url!r} is a file, not a directory")
    return url if root is None or "://" in url else str(root.absolute())


def _refuse_credentials(url: str, options: Mapping[str, object]) -> None:
    from agent_memory.integrations.fsspec import _secrets

    if "://" in url:
        parts = urlsplit(url)
        if parts.password is not None or any(_secrets(dict(parse_qsl(parts.query)))):
            raise click.UsageError("the URL contains a credential, and the configuration is readable text")
    for name in _secrets(options):
        raise click.UsageError(
            f"the option {name!r} is a credential, and the configuration is readable text; set {OPTIONS_VARIABLE} in "
            "the environment of the client instead"
        )


def _pair(key: str, value: object) -> str:
    """An option of the store as the argument of ``-o``."""
    plain = f"{key}={value}"
    return plain if isinstance(value, str) and key_value(plain) == (key, value) else f"{key}={json.dumps(value)}"


def _options(values: Mapping[str, str | bool | None]) -> list[str]:
    """The options that are set; a flag is only its name."""
    return [word for name, value in values.items() if value for word in ((name,) if value is True else (name, value))]


def _checked(command: list[str]) -> list[str]:
    for word in command:
        if _VARIABLE.search(word):
            raise click.UsageError(f"clients would replace the $ in {word!r} by a variable of the environment")
        if _CONTROL.search(word) or printable(word) != word:
            raise click.UsageError(f"{word!r} has characters that a configuration cannot have")
    return command


def _variables(settings: Settings) -> list[str]:
    """The variables that the server needs, because the configuration has none of their values."""
    names = [name for name in (OPTIONS_VARIABLE, PLUGINS_VARIABLE) if os.environ.get(name)]
    if settings.url.lower().startswith("s3://"):
        found = [name for name in _OF_S3 if os.environ.get(name)]
        names = ["AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", *found, *names]
    return names
