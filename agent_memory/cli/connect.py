"""The command connect: configures an MCP client to start ``agent-memory mcp`` with this store."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import click

from agent_memory.cli.client_entries import Place, Unchangeable, with_json_entry, with_toml_entry
from agent_memory.cli.client_files import content, replace_file
from agent_memory.cli.clients import CLIENTS, Client
from agent_memory.cli.output import note, printable, show_json
from agent_memory.cli.paths import memory_path
from agent_memory.cli.presence import local_root, require_store
from agent_memory.cli.settings import (
    OPTIONS_VARIABLE,
    Command,
    Settings,
    global_options,
    key_value,
    open_store,
    pass_settings,
)
from agent_memory.errors import BackendNotAvailableError, UnsupportedOperationError, install_hint
from agent_memory.plugins.configuration import PLUGINS_VARIABLE
from agent_memory.reading.lines import MARK

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_VARIABLE: Final = re.compile(r"\$[\w{]")
_MODULE: Final = ["-P", "-m", "agent_memory"]
"""Starts this package, and nothing from the current directory."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_OF_S3: Final = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CA_BUNDLE")
"""Variables besides those of credentials without which S3 would not be found."""


@click.command(cls=Command)
@click.argument("client", type=click.Choice(list(CLIENTS)))
@click.option("--write", is_flag=True, help="Change the client's file; without it, only print.")
@click.option("--scope", type=click.Choice(["user", "project"]), default="user", show_default=True,
              help="The file for all projects, or the file of the project in the current directory.")  # fmt: skip
@click.option("--name", default="agent-memory", show_default=True, help="The name of the server in the file.")
@click.option("--directory", type=memory_path, default="", metavar="DIR", help="Serve only this directory.")
@click.option("--read-only", is_flag=True, help="Refuse every change.")
@click.option("--history", is_flag=True, help="Let the client read the files of conversations.")
@click.option("--versions", is_flag=True, help="Let the client list and restore earlier versions.")
@pass_settings
def connect(
    settings: Settings, client: str, write: bool, scope: str, name: str, directory: str,
    read_only: bool, history: bool, versions: bool,
) -> None:  # fmt: skip
    """Configure an MCP client to serve itself the memory of --agent.

    Prints the configuration. With --write, merges it into the file of the client and keeps the old file beside it; no
    other entry is changed. Credentials are never written.
    """
    if importlib.util.find_spec("mcp") is None:
        raise BackendNotAvailableError(f"the MCP SDK is missing: {install_hint('mcp')}")
    if not _NAME.fullmatch(name):
        raise click.UsageError("the name of a server is 1 to 64 characters of A-Z a-z 0-9 _ -, the first no _ or -")
    chosen = CLIENTS[client]
    file, place = chosen.file(scope), Place(chosen.servers, name)
    flags = {"--read-only": read_only, "--history": history, "--versions": versions}
    served = _options({"--directory": directory, **flags})
    command = _checked([*_program(), *_store_arguments(settings, directory, read_only), "mcp", *served])
    entry = chosen.entry(command)
    needed = _variables(settings)
    facts = {
        "client": client, "scope": scope, "name": name, "file": str(file), "command": command, "environment": needed
    }  # fmt: skip
    if write:
        facts |= _merge(file, place, entry, private=scope == "user")
        text = f"{_told(chosen, facts)}\nit serves the memory of agent {settings.agent!r} in {settings.url!r}"
    else:
        facts["text"] = text = _shown(client, scope, place, entry)
    if settings.json:
        show_json(facts)
        return
    click.echo(printable(text))
    if not write:
        note(f"nothing was written; --write merges this into {str(file)!r}")
    if needed:
        note(_on_credentials(chosen, needed))


def _on_credentials(client: Client, needed: Sequence[str]) -> str:
    return (
        f"the configuration has no credentials: the server takes {', '.join(needed)} from its environment; "
        f"if {client.title} does not pass them on, name them in {client.environment} of the entry"
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
    try:
        url = _absolute_url(settings)
        _refuse_credentials(url, options)
    except ValueError as error:  # from urllib
        raise click.UsageError(f"the store does not open: {error}") from error
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


def _merge(file: Path, place: Place, entry: Mapping[str, Any], *, private: bool) -> dict[str, Any]:
    """Merge the entry into the file of a client.

    Raises:
        click.ClickException: the file cannot be changed without a loss.
        FileAlreadyExistsError: another server has the name.
        ConflictError: the client changed the file at the same time.
    """
    if not private and (link := _link_below(Path.cwd(), file)):
        raise click.ClickException(f"{str(file)!r} is unchanged: {str(link)!r} is a symbolic link in this project")
    old = content(file)
    with_entry = with_toml_entry if file.suffix == ".toml" else with_json_entry
    try:
        mark = MARK if (old or b"").startswith(MARK) else b""
        change = with_entry((old or b"").removeprefix(MARK).decode(), place, entry, _is_ours)
        new = mark + change.text.encode()
    except (Unchangeable, UnicodeError) as error:
        reason = str(error) if isinstance(error, Unchangeable) else "it is not UTF-8"
        raise click.ClickException(f"{str(file)!r} is unchanged: {reason}; add the entry by hand") from error
    backup = None if new == old else replace_file(file, old, new, private=private)
    kept = list(change.kept)
    return {"written": new != old, "replaced": change.replaced, "kept": kept, "backup": backup and str(backup)}


def _link_below(directory: Path, file: Path) -> Path | None:
    """The first symbolic link on the way from a directory to a file; a cloned repository may contain links."""
    below = [directory.joinpath(*file.relative_to(directory).parts[:end]) for end in range(1, len(file.parts))]
    return next((path for path in below if path.is_symlink()), None)


def _is_ours(entry: Mapping[str, Any]) -> bool:
    """Whether an entry starts ``agent-memory mcp``, from whatever environment."""
    command, words = entry.get("command"), entry.get("args")
    if not (isinstance(command, str) and isinstance(words, list) and all(isinstance(word, str) for word in words)):
        return False
    if Path(command).name != "agent-memory":
        words = words[1:] if words[:1] == _MODULE[:1] else words
        if words[:2] != _MODULE[1:]:
            return False
        words = words[2:]
    program = click.Group("agent-memory", params=global_options(again=True))
    try:
        _, (subcommand, *_), _ = program.make_parser(click.Context(program)).parse_args(list(words))
    except (click.UsageError, ValueError):
        return False
    return bool(subcommand == "mcp")


def _told(chosen: Client, facts: Mapping[str, Any]) -> str:
    if not facts["written"]:
        return f"{facts['name']} is in {facts['file']} already"
    what = "was replaced in" if facts["replaced"] else "was added to"
    backup = f"; the old file is {facts['backup']}" if facts["backup"] else ""
    kept = f"\nkept from the old entry: {', '.join(facts['kept'])}" if facts["kept"] else ""
    then = f"restart {chosen.title}: it reads the file when it starts"
    return f"{facts['name']} {what} {facts['file']}{backup}{kept}\n{then}"


def _shown(client: str, scope: str, place: Place, entry: Mapping[str, Any]) -> str:
    """The configuration to copy: the content of a file with this entry alone, or the command of Claude Code."""
    if client == "claude-code":
        words = ["claude", "mcp", "add", "--scope", scope, place.name, "--", entry["command"], *entry["args"]]
        return shlex.join(words)
    with_entry = with_toml_entry if client == "codex" else with_json_entry
    return with_entry("", place, entry, _is_ours).text.rstrip("\n")


def _variables(settings: Settings) -> list[str]:
    """The variables that the server needs, because the configuration has none of their values."""
    names = [name for name in (OPTIONS_VARIABLE, PLUGINS_VARIABLE) if os.environ.get(name)]
    if settings.url.lower().startswith("s3://"):
        found = [name for name in _OF_S3 if os.environ.get(name)]
        names = ["AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", *found, *names]
    return names
