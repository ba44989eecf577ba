"""The command transfer, and the transfer of many files between two opened ends, several at a time.

Each file that could not be transferred is reported. An end is the memory of an agent, or a folder of this host: one
function reads a file of it, another one writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import click

from agent_memory.cli.folder import BLOCK, Blocks
from agent_memory.cli.inspection import agents_of
from agent_memory.cli.output import (
    Exit,
    code_of,
    counted,
    document_of,
    message_of,
    note,
    printable,
    progress,
    show_json,
)
from agent_memory.cli.presence import lists_everything, local_root, require_agent, require_store
from agent_memory.cli.settings import (
    Access,
    Command,
    OpenStore,
    Settings,
    SkippedNames,
    key_value,
    open_store,
    pass_settings,
)
from agent_memory.cli.target import Target
from agent_memory.core.one_file import fails_alone
from agent_memory.errors import (
    AgentMemoryError,
    FileAlreadyExistsError,
    FileOperationError,
    InvalidAgentIdError,
    InvalidPathError,
)
from agent_memory.memory import AgentMemory
from agent_memory.reading.reader import Reader
from agent_memory.runtime.run import step
from agent_memory.service import AgentMemoryService

Put: TypeAlias = Callable[[int, Blocks], bool]
"""Takes the size and the content of a file; False if the other end has the same content."""
F = TypeVar("F", bound=Callable[..., Any])
_AT_ONCE = 8
_MOST_FAILURES = 20
_MOST_LINES = 100
_REFUSALS: Final = (Exit.UNSUPPORTED, Exit.REFUSED, Exit.CONFLICT)
"""The exit codes of files that the storage did not fail on, by precedence."""


overwrite_option = click.option("--overwrite", is_flag=True, help="Replace files that have other content.")
dry_run_option = click.option(
    "--dry-run",
    is_flag=True,
    help="Write nothing, and ask no plugin whether it may be written; print the files that would be written.",
)


@dataclass(frozen=True)
class Untransferred:
    """A file that was not transferred, and the error."""

    path: str
    error: Exception

    @property
    def code(self) -> Exit:
        """The exit code of the error."""
        return code_of(self.error)

    def document(self) -> dict[str, Any]:
        """The path and the error as a JSON object."""
        return {"path": self.path, **document_of(self.error)}


@dataclass
class TransferResult:
    """The result of a transfer of many files.

    Attributes:
        written: the files that were written, or in a dry run would be.
        equal: the number of files that existed with the same content.
        left: the files that were not transferred.
        left_out: the paths that an option, or its absence, leaves out, each with that option.
        untried: the number of files that were not tried, after too many failures.
        notes: further messages for the user.
    """

    written: list[str] = field(default_factory=list)
    equal: int = 0
    left: list[Untransferred] = field(default_factory=list)
    untried: int = 0
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def code(self) -> Exit:
        """The exit code: that of a failure, else of what the store does not support, of a refusal, of a difference."""
        codes = {each.code for each in self.left}
        if not codes <= {*_REFUSALS}:
            return Exit.FAILED
        return next((code for code in _REFUSALS if code in codes), Exit.OK)


def transfer_all(
    title: str, names: Sequence[str], read: Callable[[str, Put], bool], write: Callable[[str, int, Blocks], bool]
) -> TransferResult:
    """Transfer files: ``read`` passes the size and the content of a file on, and ``write`` stores them.

    After 20 failures of the storage that are not about one file, the remaining files are not tried.

    Raises:
        UnsupportedOperationError: no file was transferred, because the store supports this for none of them.
    """
    result = TransferResult()
    failed: list[str] = []

    def attempt(name: str) -> bool | Untransferred | None:
        if len(failed) >= _MOST_FAILURES:
            return None
        try:
            return read(name, partial(write, name))
        except (AgentMemoryError, OSError) as error:
            if code_of(error) is Exit.FAILED and not fails_alone(error):
                failed.append(name)
            return Untransferred(name, error)

    with ThreadPoolExecutor(_AT_ONCE, "agent-memory-transfer") as pool, progress(title, len(names)) as advance:
        try:
            for name, outcome in zip(names, pool.map(attempt, names), strict=True):
                _account(result, name, outcome)
                advance()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if {each.code for each in result.left} == {Exit.UNSUPPORTED} and not (result.written or result.equal):
        raise result.left[0].error
    return result


def _account(result: TransferResult, name: str, outcome: bool | Untransferred | None) -> None:
    if outcome is None:
        result.untried += 1
    elif isinstance(outcome, Untransferred):
        result.left.append(outcome)
    elif outcome:
        result.written.append(name)
    else:
        result.equal += 1


def read_file(memory: AgentMemory, path: str, put: Put) -> bool:
    """Pass on a file of a memory, in blocks of one version of the file."""

    async def passed_on(reader: Reader) -> bool:
        first = await reader.read(0, BLOCK)
        return put(reader.size, lambda: _blocks(reader, first))

    return memory.scan(path, passed_on)


def _blocks(reader: Reader, first: bytes) -> Iterator[bytes]:
    yield first
    for start in range(len(first), reader.size, BLOCK):
        yield step(reader.read(start, start + BLOCK))


def line_of(left: Untransferred) -> str:
    """The message to the user about a file that was not transferred; names are escaped."""
    message = message_of(left.error)
    has_path = any(name[1:-1] in message for name in (repr(left.path), ascii(left.path)))
    return message if has_path else f"{left.path!r}: {message}"


def unnameable(settings: Settings) -> list[Untransferred]:
    if not (count := settings.skipped.count):
        return []
    text = f"{counted(count, 'name')} in storage left out: not a valid path, or no access; doctor counts them"
    return [Untransferred("", InvalidPathError(text, "unnameable"))]


def finish(settings: Settings, done: str, result: TransferResult, *, dry_run: bool = False) -> None:
    if settings.json:
        show_json({**result_document(result), **({"would_write": sorted(result.written)} if dry_run else {})})
    else:
        for name in sorted(result.written) if dry_run else ():
            click.echo(printable(f"would write {name}"))
        print_result(done, result)
    click.get_current_context().exit(result.code)


def result_document(result: TransferResult) -> dict[str, Any]:
    """The result as a JSON object."""
    return {
        "written": len(result.written),
        "equal": result.equal,
        "left": [left.document() for left in result.left],
        "left_out": result.left_out,
        "untried": result.untried,
        "notes": result.notes,
        "exit_code": int(result.code),
    }


def print_result(done: str, result: TransferResult) -> None:
    """Print the files that were not transferred and the notes on stderr, and a summary on stdout."""
    _print_some([f"{_verdict(left)}: {line_of(left)}" for left in result.left])
    _print_some([printable(f"Left out ({by}): {path!r}") for path, by in result.left_out.items()])
    for text in result.notes:
        note(text)
    untried = f", {result.untried:,} not tried after too many failures" if result.untried else ""
    out = len(result.left) + len(result.left_out)
    left_out = f", {out:,} left out" if out else ""
    click.echo(f"{done} {counted(len(result.written), 'file')}, {result.equal:,} were there already{left_out}{untried}")


def _print_some(lines: Sequence[str]) -> None:
    for line in lines[:_MOST_LINES]:
        click.echo(line, err=True)
    if (more := len(lines) - _MOST_LINES) > 0:
        click.echo(f"... and {more:,} more; --json lists all", err=True)


def _verdict(left: Untransferred) -> str:
    if isinstance(left.error, FileAlreadyExistsError):
        return "Different"
    return "Failed" if isinstance(left.error, FileOperationError) or left.code is Exit.FAILED else "Refused"


def _option_for(name: str, store: str) -> Callable[[F], F]:
    help_ = f"An option for {store} only; may be repeated."
    return click.option(name, multiple=True, type=key_value, metavar="KEY=VALUE", help=help_)


@click.command(cls=Command)
@click.argument("source")
@click.argument("target")
@overwrite_option
@_option_for("--from-option", "SOURCE")
@_option_for("--to-option", "TARGET")
@dry_run_option
@pass_settings
def transfer(
    settings: Settings,
    source: str,
    target: str,
    overwrite: bool,
    from_option: tuple[tuple[str, object], ...],
    to_option: tuple[tuple[str, object], ...],
    dry_run: bool,
) -> None:
    """Transfer the files of all agents of one store to another, or only those of --agent.

    SOURCE and TARGET are paths or URLs. Files that exist with the same content are not written again. -o and its
    environment variable apply to a SOURCE or TARGET that is neither on the local disk nor in memory. With --dry-run,
    the files of both stores are compared, and nothing is written.
    """
    settings.no_audit |= dry_run
    target_options = _options_for(target, settings, to_option)
    with (
        settings.configured() as reading,
        settings.recorded(target, target_options, Access.MAKE) as writing,
        open_store(source, _options_for(source, settings, from_option), settings, reading) as here,
        open_store(target, target_options, replace(settings, skipped=SkippedNames()), writing) as there,
    ):
        if settings.chosen_agent is None:
            require_store(here.backend, source)
        else:
            require_agent(here.service, here.backend, source, settings.chosen_agent)
        agents = here.service.agent_ids() if settings.chosen_agent is None else (settings.chosen_agent,)
        result = _transferred(
            here.service, agents, lambda agent: Target(there.service.agent(agent), overwrite=overwrite, dry_run=dry_run)
        )
        if settings.chosen_agent is None:
            result.left += _no_agents(here)
            if result == TransferResult() and not settings.skipped.count:
                hint = "; 'import' copies a tree without agents" if local_root(source) else ""
                raise click.ClickException(f"no agent has files in {source!r}{hint}")
    result.left += unnameable(settings)
    finish(settings, "would transfer" if dry_run else "transferred", result, dry_run=dry_run)


def _transferred(
    source: AgentMemoryService, agents: Iterable[str], target_of: Callable[[str], Target]
) -> TransferResult:
    """Transfer all files of these agents; an agent whose files cannot be listed is left out."""
    files: list[str] = []
    targets: dict[str, Target] = {}
    left: list[Untransferred] = []
    for agent in agents:
        try:
            targets[agent] = target_of(agent)
            files += [f"{agent}/{entry.path}" for entry in source.agent(agent).list()]
        except AgentMemoryError as error:
            if not fails_alone(error):
                raise
            left.append(Untransferred(agent, error))

    def read(name: str, put: Put) -> bool:
        agent, _, path = name.partition("/")
        return read_file(source.agent(agent), path, put)

    def write(name: str, size: int, blocks: Blocks) -> bool:
        agent, _, path = name.partition("/")
        return targets[agent].put(path, size, blocks)

    result = transfer_all("Transferring", files, read, write)
    result.left += left
    return result


def _no_agents(store: OpenStore) -> list[Untransferred]:
    left = []
    for name in agents_of(store.backend).strays:
        try:
            store.service.agent(name)
        except InvalidAgentIdError as error:
            left.append(Untransferred(name, error))
        else:
            left.append(Untransferred(name, FileOperationError("a file, not the directory of an agent", path=name)))
    return left


def _options_for(url: str, settings: Settings, own: tuple[tuple[str, object], ...]) -> dict[str, object]:
    given = {} if lists_everything(url) else settings.given_options()
    return {**given, **dict(own)}
