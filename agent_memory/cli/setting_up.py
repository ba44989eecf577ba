"""The commands plugins, new and s3-policy, which open no store: list extensions, make one, and print an IAM policy.

The templates of new lie in ``templates/``. Their names end with ``.txt``, so that linters and pytest leave them alone.
`string.Template` fills them in.
"""

from __future__ import annotations

import importlib.util
import json
import re
import secrets
import shutil
import typing
import unicodedata
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint, distributions, entry_points, version
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, Final, NamedTuple

import click

from agent_memory.backend.helpers import STORE_RECORD
from agent_memory.cli.output import Exit, Explained, TableRow, printable, show_json, show_table
from agent_memory.cli.presence import shown_path
from agent_memory.cli.settings import Command, Settings, pass_settings, usage_errors
from agent_memory.core.conversation_marks import marks_of
from agent_memory.core.limits.ledger import ledgers_of
from agent_memory.core.receipts import receipts_of
from agent_memory.core.versions.record import records_of
from agent_memory.errors import DISTRIBUTION, AgentMemoryError, FileAlreadyExistsError
from agent_memory.hookspecs import PROJECT
from agent_memory.key import AGENTS, RESERVED, Key
from agent_memory.plugins.configuration import Installed, close, configuration, installed_plugins, made, package_of
from agent_memory.plugins.logging import LoggingPlugin
from agent_memory.registry import GROUP, broken_plugins, installed_backends

_FILES: Final = {
    ".gitignore": "gitignore.txt",
    "README.md": "$kind/README.md.txt",
    "$module.py": "$kind/module.py.txt",
    "pyproject.toml": "$kind/pyproject.toml.txt",
    "tests/test_$snake.py": "$kind/test_module.py.txt",
}
"""The files of a distribution, each with its template."""
_PREFIX: Final = "agent-memory-"
_LONGEST: Final = 40
_NAME: Final = re.compile(r"(?!test)[a-z][a-z0-9]*(-[a-z0-9]+)*")  # pytest would collect a class TestQuotaPlugin
_RULE: Final = (
    f"a name has lower case letters, digits and single '-' between them, begins with a letter, has at most {_LONGEST} "
    f"characters, and does not begin with '{_PREFIX}' or 'test'"
)
_ACTIONS: Final = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")
_BUCKET: Final = re.compile(r"[A-Za-z0-9._-]+")
_SPECIAL: Final = re.compile(r"[*?$]")
"""Characters that IAM reads as wildcards and variables, in resources and in conditions."""


class PluginRow(NamedTuple):
    """One plugin: its package, whether it is enabled, its hooks, and its load error."""

    name: str
    package: str
    enabled: bool
    hooks: tuple[str, ...]
    error: str | None = None


@click.command(cls=Command)
@pass_settings
def plugins(settings: Settings) -> None:
    """List the installed plugins, their hooks, and whether --config or the environment enables them.

    Exits with 1 if an enabled plugin does not load.
    """
    with usage_errors():
        enabled = configuration(settings.config)
    always = PluginRow("logging", f"{DISTRIBUTION} {version(DISTRIBUTION)}", True, _hooks(LoggingPlugin))
    rows = [always, *_configurable(enabled), *_backends()]
    if settings.json:
        show_json({"plugins": [row._asdict() for row in rows]})
    else:
        _show(rows)
    if any(row.error for row in rows if row.enabled):
        raise click.exceptions.Exit(Exit.FAILED)


def _configurable(enabled: dict[str, dict[str, Any]]) -> list[PluginRow]:
    rows = [_row(each, enabled) for each in installed_plugins()]
    missing = enabled.keys() - {row.name for row in rows}
    return rows + [PluginRow(name, "-", True, (), "not installed") for name in sorted(missing)]


def _row(installed: Installed, enabled: dict[str, dict[str, Any]]) -> PluginRow:
    name, package, point = installed
    try:
        if name not in enabled:
            return PluginRow(name, package, False, _hooks(_made_by(point.load())))
        plugin = made(name, enabled[name])
    except (ValueError, AgentMemoryError) as error:
        return PluginRow(name, package, name in enabled, (), str(error))
    except Exception as error:  # noqa: BLE001 - a broken package may fail in any way
        return PluginRow(name, package, name in enabled, (), f"{type(error).__name__}: {error}")
    try:
        return PluginRow(name, package, True, _hooks(plugin))
    finally:
        close([plugin])


def _backends() -> list[PluginRow]:
    """Packages that add backends; they are always enabled."""
    broken = broken_plugins()
    rows = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        error = broken.get(point.name) or _missing(point)
        hooks = () if error else (f"{PROJECT}_register_backends",)
        rows.append(PluginRow(point.name, package_of(point), error is None, hooks, error))
    return rows


def _missing(point: EntryPoint) -> str | None:
    """The packages of the extra with the entry point's name that are not installed; None if there are none."""
    if point.dist is None:
        return None
    only = re.compile(rf"""([\w.-]+)[^;]*; *extra == ["']{re.escape(point.name)}["']""")
    needed = [found[1] for line in point.dist.requires or () if (found := only.fullmatch(line))]
    missing = [name for name in needed if not any(distributions(name=name))]
    return f"needs {', '.join(missing)}: pip install '{point.dist.name}[{point.name}]'" if missing else None


def _made_by(factory: Any) -> object:
    """The class of the objects that a factory makes; None if the factory does not declare it."""
    return factory if isinstance(factory, type) else typing.get_type_hints(factory).get("return")


def _hooks(plugin: object) -> tuple[str, ...]:
    return tuple(name for name in dir(plugin) if hasattr(getattr(plugin, name, None), f"{PROJECT}_impl"))


def _show(rows: list[PluginRow]) -> None:
    show_table(("plugin", "from", "enabled", "hooks"), map(_cells, rows))
    for row in rows:
        if row.error:
            click.echo(printable(f"{row.name} does not load: {row.error}"))


def _cells(row: PluginRow) -> TableRow:
    short = ", ".join(name.removeprefix(f"{PROJECT}_") for name in row.hooks)
    return TableRow((row.name, row.package, "yes" if row.enabled else "no", "does not load" if row.error else short))


@click.command(cls=Command)
@click.argument("kind", type=click.Choice(["plugin", "backend", "adapter"]))
@click.argument("name")
@click.option("--directory", type=click.Path(file_okay=False, path_type=Path), default=".", metavar="DIR",
              help="Make it in this directory.  [default: the current directory]")  # fmt: skip
@pass_settings
def new(settings: Settings, kind: str, name: str, directory: Path) -> None:
    """Make a distribution for a plugin, a backend or an adapter of your own.

    Writes agent-memory-NAME/ with one module, a README, a pyproject.toml and tests that pass. A directory that exists
    is not changed. No store is opened.
    """
    _check(kind, name)
    target = directory / f"{_PREFIX}{name}"
    made = _contents(kind, name)
    _write(target, made)
    if settings.json:
        show_json({"kind": kind, "name": name, "directory": str(target.absolute()), "files": list(made)})
        return
    click.echo(printable(f"made {shown_path(target)}: {', '.join(made)}"))
    click.echo("run its tests there: pip install -e '.[test]' && python -m pytest")


def _check(kind: str, name: str) -> None:
    """Raise `Explained` for a name that breaks the rule, or that an installed distribution has."""
    if not _NAME.fullmatch(name) or len(name) > _LONGEST or name.startswith(_PREFIX):
        raise _refused(name, _RULE, _suggested(name))
    if taken := _taken(kind, name):
        raise _refused(name, taken, _suggested(f"my-{name}"))


def _refused(name: str, reason: str, suggestion: str) -> Explained:
    error = click.UsageError(f"{name!r} is refused: {reason}")
    return Explained(error, f"try {suggestion!r}", {"suggestion": suggestion})


def _taken(kind: str, name: str) -> str | None:
    """Why a distribution of this name cannot be installed beside the installed ones; None if it can."""
    if f"{_PREFIX}{name}" == DISTRIBUTION:
        return f"{DISTRIBUTION} is the distribution of agent-memory itself"
    if importlib.util.find_spec(_module(name)):
        return f"a module {_module(name)} is installed"
    if kind == "plugin" and name in {each.name for each in installed_plugins()}:
        return f"a plugin {name!r} is installed"
    if kind == "backend" and name in installed_backends():
        return f"a backend for {name}:// is installed"
    return None


def _suggested(text: str) -> str:
    """A similar name that the rule allows."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    name = re.sub(rf"\A({_PREFIX})+", "", re.sub(r"[^a-z0-9]+", "-", plain).strip("-"))
    if not name[:1].isalpha() or name.startswith("test"):
        name = f"my-{name or 'memory'}"
    return name[:_LONGEST].rstrip("-")


def _module(name: str) -> str:
    return f"{_PREFIX}{name}".replace("-", "_")


def _contents(kind: str, name: str) -> dict[str, str]:
    """The files of a distribution: their names, relative to its directory, and their texts."""
    words = {
        "kind": kind,
        "name": name,
        "snake": name.replace("-", "_"),
        "module": _module(name),
        "title": "".join(word.capitalize() for word in name.split("-")),
        "version": version(DISTRIBUTION),
    }

    def filled(text: str) -> str:
        return Template(text).substitute(words)

    templates = files("agent_memory.cli") / "templates"
    return {
        filled(file): filled((templates / filled(template)).read_text(encoding="utf-8"))
        for file, template in _FILES.items()
    }


def _write(target: Path, made: Mapping[str, str]) -> None:
    """Write a new directory in one step: another directory is filled and then renamed.

    Raises:
        FileAlreadyExistsError: the name is taken; nothing was written.
        OSError: the host refused; nothing was written but missing parents of the directory.
    """
    if target.is_symlink() or target.exists():
        raise FileAlreadyExistsError(f"{shown_path(target)} exists; nothing was written", "directory")
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        for name, text in made.items():
            file = unfinished / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


@click.command("s3-policy", cls=Command)
@pass_settings
def s3_policy(settings: Settings) -> None:
    """Print the smallest IAM policy for --agent, or for all agents.

    With --agent the policy allows the memory of that agent, its receipts of idempotency keys, its versions, its marks
    of directories without a conversation, its ledger of limits, and to read the record of the store. Without it, the
    memories of all agents and this package's own data: the record of the store, the audit log, all receipts and the
    scratch files of doctor. The store is an s3:// URL; no request is sent to it.
    """
    bucket, prefix = _location(settings.url)
    trees = _trees(settings.chosen_agent)
    read = [] if settings.chosen_agent is None else [_literal(prefix + STORE_RECORD.storage)]
    policy = _policy(bucket, [_literal(prefix + tree) + "/*" for tree in trees], read)
    settings.show(policy, json.dumps(policy, indent=2))


def _location(url: str) -> tuple[str, str]:
    """The bucket of a URL, and the prefix of every name in it, as the backend reads them."""
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme.lower() != "s3" or not _BUCKET.fullmatch(bucket):
        raise click.UsageError("s3-policy needs a store on S3: --url s3://bucket/prefix")
    if "?" in prefix or "#" in prefix:
        raise click.UsageError("an S3 URL has no query")
    prefix = prefix.strip("/")
    return bucket, prefix + "/" if prefix else ""


def _trees(agent: str | None) -> Sequence[str]:
    if agent is None:
        return AGENTS.storage, RESERVED
    beside = (receipts_of, records_of, marks_of, ledgers_of)
    return Key.agent(agent).storage, *(tree(agent).base for tree in beside)


def _policy(bucket: str, patterns: Sequence[str], read: Sequence[str]) -> dict[str, Any]:
    """Return the policy for objects by patterns, and for names that are only read.

    Listing is allowed by prefix. This is enough, because the backend lists nothing above a tree. It is necessary,
    because S3 answers a request for a missing object with 404 only if the caller may list it, and otherwise with 403.
    """
    arn = f"arn:aws:s3:::{bucket}"
    objects = {"Effect": "Allow", "Action": list(_ACTIONS), "Resource": [f"{arn}/{pattern}" for pattern in patterns]}
    listing = {
        "Effect": "Allow",
        "Action": ["s3:ListBucket"],
        "Resource": [arn],
        "Condition": {"StringLike": {"s3:prefix": [*patterns, *read]}},
    }
    reading = {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": [f"{arn}/{name}" for name in read]}
    return {"Version": "2012-10-17", "Statement": [objects, *([reading] if read else []), listing]}


def _literal(text: str) -> str:
    """A pattern that matches only this text."""
    return _SPECIAL.sub(r"${\g<0>}", text)
