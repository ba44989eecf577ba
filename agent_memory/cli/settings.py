"""The global options, and the store that they open. They may be given before or after the name of a command."""

from __future__ import annotations

import getpass
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from agent_memory._json import parse_json
from agent_memory.backend import AnyBackend
from agent_memory.cli.arguments import complete_agents
from agent_memory.cli.auditing import ChangeRecorder
from agent_memory.cli.output import note, printable, show_json
from agent_memory.cli.presence import refuse_inside_a_store, require_agent, require_store, suggested
from agent_memory.core.limits.settings import Limits
from agent_memory.core.switches import LOAD_VARIABLE, loads_plugins
from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError
from agent_memory.hookspecs import Operation, Outcome, hookimpl
from agent_memory.memory import AgentMemory
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.plugins.checkpoints import CheckpointFile
from agent_memory.plugins.configuration import (
    CHECKPOINT_FILE,
    CONFIG_VARIABLE,
    checkpoint_file,
    close,
    configuration,
    limits_from,
    plugins_of,
)
from agent_memory.registry import open_backend
from agent_memory.service import AgentMemoryService

DEFAULT_URL = "./.agent-memory"
DEFAULT_AGENT = "default"
NO_AUDIT_VARIABLE = "AGENT_MEMORY_NO_AUDIT"
OPTIONS_VARIABLE = "AGENT_MEMORY_STORAGE_OPTIONS"
READING: Final = frozenset(
    {
        "agents", "audit", "audit blame", "audit show", "audit verify", "connect", "conversation",
        "conversation search", "conversation show", "diff", "du", "limits", "ls", "plugins", "read", "s3-policy",
        "search", "tree", "versions", "web",
    }
)  # fmt: skip
"""The commands that change nothing as they stand. Of a mistyped one no changing command is suggested."""
_NEAR: Final = 0.6
_SURELY_NEAR: Final = 0.7
_ALMOST_THE_SAME: Final = 0.85


class SkippedNames:
    """An observer that counts the names in storage, and the records of versions, that listings left out."""

    def __init__(self) -> None:
        self.count = 0

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:  # noqa: ARG002 - the hook's
        """Add what the operation left out."""
        self.count += outcome.skipped


class OpenStore(NamedTuple):
    """An open store: its service, and its backend for commands that inspect the storage itself."""

    service: AgentMemoryService
    backend: AnyBackend


class Access(Enum):
    """How a command uses its store.

    ``READ`` changes nothing, and needs a store that exists. ``CHANGE`` changes existing files, and needs an agent that
    has something in the store. ``MAKE`` may create the store by its first write.
    """

    READ = "read"
    CHANGE = "change"
    MAKE = "make"


@contextmanager
def usage_errors() -> Iterator[None]:
    """Report a wrong value, for example of a configuration, as a wrong use of the command."""
    try:
        yield
    except AgentMemoryError:
        raise
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@contextmanager
def opening_errors() -> Iterator[None]:
    """Report an invalid URL or option of a store as a wrong use of the command."""
    try:
        yield
    except AgentMemoryError:
        raise
    except (TypeError, ValueError) as error:
        raise click.UsageError(f"the store does not open: {error}") from error


@dataclass
class Settings:
    """The values of the global options."""

    chosen_url: str | None = None
    chosen_agent: str | None = None
    actor: str | None = None
    json: bool = False
    no_audit: bool = False
    verbose: bool = False
    config: str | None = None
    options: dict[str, object] = field(default_factory=dict)
    skipped: SkippedNames = field(default_factory=SkippedNames)
    in_services: list[object] = field(default_factory=list)
    """The plugins that a service was opened with: the service closes them."""

    @property
    def url(self) -> str:
        """The path or URL of the store; raises `click.UsageError` if the default one is inside a store."""
        if self.chosen_url is None:
            refuse_inside_a_store(Path(DEFAULT_URL))
            return DEFAULT_URL
        return self.chosen_url

    @property
    def agent(self) -> str:
        """The agent of a command that uses the memory of one agent."""
        return DEFAULT_AGENT if self.chosen_agent is None else self.chosen_agent

    @contextmanager
    def store(self, access: Access, agent: str | None = None) -> Iterator[OpenStore]:
        """Open the store of ``--url``, with the configured plugins; with ``agent``, for that agent only.

        Changes are recorded in the store's audit log, unless ``--no-audit`` is given.

        Raises:
            AgentMemoryFileNotFoundError: the store, or something of the agent in it, must exist, and does not.
            InvalidAgentIdError: ``agent`` is not a valid id.
        """
        with (
            self.recorded(self.url, self.storage_options(), access) as plugins,
            open_store(self.url, self.storage_options(), self, plugins, self.limits()) as store,
        ):
            if agent is not None:
                store.service.agent(agent)
            if access is Access.CHANGE and agent is not None:
                require_agent(store.service, store.backend, self.url, agent)
            elif access is not Access.MAKE:
                require_store(store.backend, self.url, agent)
            try:
                yield store
            except AgentMemoryFileNotFoundError as error:
                suggestion = suggested(error, store.backend, agent, error.path) if agent and error.path else None
                if suggestion is None:
                    raise
                raise suggestion from error

    @contextmanager
    def recorded(self, url: str, options: Mapping[str, object], access: Access) -> Iterator[list[object]]:
        """The plugins for a store: the configured ones, and a recorder of changes if none of them is an audit log."""
        with self.configured() as plugins:
            has_log = any(isinstance(plugin, AuditPlugin) for plugin in plugins)
            if access is Access.READ or self.no_audit or has_log:
                yield plugins
                return
            recorder = ChangeRecorder(url, options, self.checkpoints())
            try:
                yield [*plugins, recorder]
            finally:
                recorder.close()

    @contextmanager
    def configured(self) -> Iterator[list[object]]:
        """The plugins that ``--config`` and the environment enable; afterwards those without a service are closed."""
        if not loads_plugins():
            note(f"{LOAD_VARIABLE}=0: no plugin of the configuration is enabled, also no audit log and no guard of it")
        with usage_errors():
            tables = configuration(self.config)
            if "audit" not in tables:
                tables.pop(CHECKPOINT_FILE, None)
            plugins = plugins_of(tables)
        try:
            yield plugins
        finally:
            close(each for each in plugins if not any(each is other for other in self.in_services))

    def limits(self) -> Limits | None:
        """The limits that ``--config`` or the environment sets for a store without limits."""
        with usage_errors():
            return limits_from(self.config)

    def checkpoints(self) -> CheckpointFile | None:
        """A receiver for the checkpoints of a log that the configuration does not enable, if it names a file."""
        with usage_errors():
            return checkpoint_file(configuration(self.config))

    @contextmanager
    def memory(self, access: Access) -> Iterator[AgentMemory]:
        """Open the memory of ``--agent``; raises as `store` does."""
        with self.store(access, self.agent) as store:
            yield store.service.agent(self.agent)

    def show(self, document: Mapping[str, Any], text: str) -> None:
        """Print a result: the document with ``--json``, otherwise the text."""
        if self.json:
            show_json(document)
        else:
            click.echo(printable(text))

    def storage_options(self) -> dict[str, object]:
        """The options of the store of ``--url``.

        The default store is a name in the current directory, and a cloned repository may contain that name. So it is
        not followed if it is a symbolic link. A store that the user names may be reached through symbolic links.
        """
        default: dict[str, object] = {"within": str(Path.cwd())} if self.chosen_url is None else {}
        return {**default, **self.given_options()}

    def given_options(self) -> dict[str, object]:
        """The options of the environment, overridden by those of the command line."""
        return {**_options_of_environment(), **self.options}


@contextmanager
def open_store(
    url: str,
    options: Mapping[str, object],
    settings: Settings,
    plugins: Iterable[object] = (),
    limits: Limits | None = None,
) -> Iterator[OpenStore]:
    """Open any store; it is closed afterwards.

    Raises:
        click.UsageError: the URL or an option is invalid.
        AgentMemoryError: the store cannot be opened.
    """
    with opening_errors():
        backend = open_backend(url, options)
        actor = settings.actor or login_name()
        used = [*plugins]
        service = AgentMemoryService(backend, plugins=[settings.skipped, *used], actor=actor, limits=limits)
        settings.in_services += used
    with service:
        yield OpenStore(service, backend)


def login_name() -> str | None:
    """The host user that runs the command: the actor if ``--actor`` is not given."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return None


def _options_of_environment() -> dict[str, object]:
    text = os.environ.get(OPTIONS_VARIABLE) or "{}"
    try:
        options = parse_json(text)
    except ValueError:
        options = None
    if not isinstance(options, dict):
        raise click.UsageError(f"{OPTIONS_VARIABLE} is not a JSON object")
    return options


def key_value(text: str) -> tuple[str, object]:
    """Parse ``KEY=VALUE``; the value is parsed as JSON, or is the text itself if that fails."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise click.BadParameter(f"{text!r} is not KEY=VALUE")
    try:
        return key, parse_json(value)
    except ValueError:
        return key, value


class SuggestingGroup(click.Group):
    """A group that suggests a command for an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-") and not ctx.resilient_parsing:
            near = near_command(name, self.list_commands(ctx), ctx.command_path.split()[1:])
            hint = f": did you mean {near}?" if near else ""
            raise click.UsageError(f"No such command {name!r}{hint}", ctx)
        return super().resolve_command(ctx, args)


def near_command(word: str, commands: Collection[str], above: Collection[str] = ()) -> str | None:
    """The command that was probably meant; a changing one only if it is almost the same and no reading one is near.

    Args:
        word: the unknown command.
        commands: the commands of its group.
        above: the names of the groups above, without the program.
    """
    nearness = {name: (SequenceMatcher(None, word, name).ratio(), name[:1] == word[:1]) for name in sorted(commands)}
    reading = [name for name in nearness if " ".join([*above, name]) in READING]
    best = max(reading, key=nearness.__getitem__, default=None)
    if best and nearness[best][0] >= _SURELY_NEAR:
        return best
    changing = max((name for name in nearness if name not in reading), key=nearness.__getitem__, default=None)
    if changing and nearness[changing][0] >= _ALMOST_THE_SAME:
        return changing
    return best if best and nearness[best][0] >= _NEAR else None


class Command(click.Command):
    """A command that accepts the global options after its name too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += global_options(again=True)


class Group(SuggestingGroup):
    """A group of commands that accepts the global options after its name, and after the names of its commands."""

    command_class = Command

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.no_args_is_help = False  # an error line reports the missing command
        self.params += global_options(again=True)


pass_settings = click.make_pass_decorator(Settings, ensure=True)


def global_options(*, again: bool) -> list[click.Parameter]:
    """The global options; with ``again``, inside a command, they are hidden and read no environment variable."""

    def option(*names: str, **details: Any) -> click.Option:
        return click.Option(names, expose_value=False, callback=_remember, hidden=again, **details)

    return [
        option("--url", "chosen_url", envvar=None if again else "AGENT_MEMORY_URL", show_envvar=not again,
               help=f"Path or URL of the store.  [default: {DEFAULT_URL}]"),
        option("--agent", "chosen_agent", shell_complete=complete_agents,
               help=f"The agent that owns the memory.  [default: {DEFAULT_AGENT}]"),
        option("--actor", help="The actor in the audit log.  [default: the user of this host]"),
        option("--config", metavar="FILE", envvar=None if again else CONFIG_VARIABLE, show_envvar=not again,
               help="A TOML file that enables plugins and sets limits."),
        option("--json", is_flag=True, help="Print one JSON document instead of text."),
        option("-o", "--option", "options", multiple=True, type=key_value, metavar="KEY=VALUE",
               help=f"An option of the store, JSON or text; may be repeated.  [env var: {OPTIONS_VARIABLE}, in JSON]"),
        option("--no-audit", is_flag=True, envvar=None if again else NO_AUDIT_VARIABLE, show_envvar=not again,
               help="Do not record changes in the audit log of the store."),
        option("-v", "--verbose", is_flag=True, help="Show the log on stderr, and where an error is documented."),
    ]  # fmt: skip


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    settings = ctx.ensure_object(Settings)
    if value is None or value is False or value == ():
        return
    if param.name == "verbose" and not settings.verbose:
        ctx.find_root().with_resource(_log_shown())
    if param.name == "options":
        settings.options |= dict(value)
    else:
        setattr(settings, str(param.name), value)


class _OneLine(logging.Formatter):
    """Formats a record as one line, with the name of an exception but without its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{record.levelname} {record.getMessage()}"
        if record.exc_info and record.exc_info[1]:
            line += f": {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
        return printable(" ".join(line.split()))


def failures_shown() -> logging.Handler:
    """A handler that shows failures which do not stop a command: an observer without a record, a retried request."""
    return _handler(_is_shown)


def _handler(shows: Callable[[logging.LogRecord], bool]) -> logging.Handler:
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine())
    handler.addFilter(shows)
    return handler


def _is_shown(record: logging.LogRecord) -> bool:
    """Whether a record is shown without ``--verbose``. Warnings of refused operations repeat the error."""
    least = logging.WARNING if record.name == "agent_memory.object_store" else logging.ERROR
    return record.levelno >= least


@contextmanager
def _log_shown() -> Iterator[None]:
    handler = _handler(lambda record: not _is_shown(record))  # the other handler shows those
    with log_to(handler, logging.getLogger("agent_memory"), logging.INFO):
        yield


@contextmanager
def log_to(handler: logging.Handler, logger: logging.Logger, level: int | None = None) -> Iterator[None]:
    """Add a handler to a logger, and set its level, within the context."""
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(before if level is None else level)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
