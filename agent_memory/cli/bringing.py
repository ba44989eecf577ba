"""`import --from`: shows the files that other programs left on this host, and with ``--yes`` imports them."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

import click

from agent_memory._json import parse_json
from agent_memory.cli.folder import Blocks, Folder
from agent_memory.cli.leaving_out import Sieve, in_form_c
from agent_memory.cli.output import Exit, argument, counted, reported_progress, row, show_json
from agent_memory.cli.settings import Access, Settings
from agent_memory.cli.sources import FoundFiles, Source, is_history
from agent_memory.cli.target import Target
from agent_memory.cli.transfer import (
    Put,
    TransferResult,
    Untransferred,
    print_result,
    result_document,
    transfer_all,
)
from agent_memory.conversation.messages import Skipped
from agent_memory.errors import AgentMemoryError, FileAlreadyExistsError, InvalidContentError
from agent_memory.key.quoting import field
from agent_memory.plugins.redaction import RedactionPlugin
from agent_memory.reading.lines import MAX_LINE

_NO_MESSAGE: Final = "no message"


@dataclass(frozen=True)
class PlannedFile:
    """A file of a source, and what an import would make of it.

    Attributes:
        source: the path below the source's root.
        name: the path in the memory.
        renamed: whether the grammar refuses the name that the file has.
        size: its bytes.
        secrets: the number of likely secrets by kind.
        messages: the number of its messages; None if it is no conversation.
        skipped: the number of its lines without a message.
    """

    source: str
    name: str
    renamed: bool
    size: int
    secrets: dict[str, int]
    messages: int | None
    skipped: int

    def line(self) -> str:
        """The file as a row for the user."""
        facts = [f"{self.size:>11,}", field(self.source), f"as {field(self.name)}"]
        if self.renamed:
            facts.append("name made valid")
        if self.messages is not None:
            skipped = f", {counted(self.skipped, 'other line')}" if self.skipped else ""
            facts.append(counted(self.messages, "message") + skipped)
        if self.secrets:
            facts.append(f"{counted(sum(self.secrets.values()), 'likely secret')}: {', '.join(sorted(self.secrets))}")
        return row(*facts)


class ImportPlan:
    """The files of a source that an import takes.

    Args:
        source: the source.
        folder: its root.

    Attributes:
        files: the files to take, by their paths.
        left: the files that cannot be taken.
        left_out: the files that are not taken, each with the reason.
    """

    def __init__(self, source: Source, folder: Folder) -> None:
        self._source = source
        self._folder = folder
        self._redaction = RedactionPlugin()
        self._names = dict[str, str]()
        self.files = dict[str, PlannedFile]()
        self.left = list[Untransferred]()
        self.left_out = dict[str, str]()

    def add(self, path: str) -> None:
        """Read a file, and decide about it."""
        try:
            with self._folder.reading(path) as (size, blocks):
                self._add(path, size, blocks)
        except (AgentMemoryError, OSError) as error:
            self.left.append(Untransferred(path, error))

    def _add(self, path: str, size: int, blocks: Blocks) -> None:
        secrets, lines, text = Counter[str](), _HistoryLines(), codecs.getincrementaldecoder("utf-8")()
        try:
            for piece in _pieces(blocks()):
                secrets += self._redaction.count_secrets(piece)
                if is_history(path):
                    lines.add(piece)
                else:
                    text.decode(piece)
            text.decode(b"", final=True)
        except UnicodeDecodeError:
            raise InvalidContentError("not UTF-8 text", path=path) from None
        if is_history(path) and not lines.messages:
            if size and not lines.has_object:
                raise InvalidContentError("no line is a JSON object", path=path)
            self.left_out[path] = _NO_MESSAGE
            return
        name, plain = self._source.name_of(path), self._source.plain_name(path)
        if (other := self._names.setdefault(name, path)) != path:
            raise FileAlreadyExistsError(f"another file gets the same name in the memory, {other!a}", path=ascii(path))
        messages = lines.messages if is_history(path) else None
        self.files[path] = PlannedFile(path, name, name != plain, size, dict(secrets), messages, lines.skipped.count)


class _HistoryLines:
    """Counts the messages in the pieces of a file, and the lines without one."""

    def __init__(self) -> None:
        self.messages = 0
        self.skipped = Skipped()
        self.has_object = False
        self._is_torn = False

    def add(self, piece: bytes) -> None:
        """Count the lines of the next piece; a line that is torn over pieces is too long, and counts once."""
        lines = piece.split(b"\n")
        if self._is_torn:
            lines[0] = b""
        self._is_torn = not piece.endswith(b"\n")
        for line in lines:
            if len(line) > MAX_LINE:
                self.skipped.add(line)
            elif self.skipped.parse(line):
                self.messages += 1
            elif not (self.messages or self.has_object):
                self.has_object = _is_object(line)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(parse_json(line), dict)
    except ValueError:
        return False


def _pieces(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes in pieces of whole lines; a line that is too long is torn."""
    rest = b""
    for block in blocks:
        rest += block
        end = rest.rfind(b"\n") + 1 or (len(rest) if len(rest) > MAX_LINE else 0)
        if end:
            yield rest[:end]
            rest = rest[end:]
    if rest:
        yield rest


def bring(settings: Settings, source: Source, *, patterns: tuple[str, ...], overwrite: bool, yes: bool) -> None:
    """Run ``import --from``: print the plan, and with ``yes`` import its files."""
    settings.no_audit |= not yes
    with _opened(source) as (folder, found), settings.store(Access.MAKE) as store:
        sieve = Sieve(folder, everything=False, patterns=patterns)
        plan = ImportPlan(source, folder)
        paths = [path for path in found.files if sieve.takes(path)]
        with reported_progress("Files read", len(paths)) as advance:
            for path in sorted(paths, key=source.renames):  # a file keeps its own name
                plan.add(path)
                advance()
        plan.files = dict(sorted(plan.files.items()))
        target = Target(store.service.agent(settings.agent), overwrite=overwrite, dry_run=not yes)

        def read(path: str, put: Put) -> bool:
            with folder.reading(path) as (size, blocks):
                return put(size, blocks)

        def write(path: str, size: int, blocks: Blocks) -> bool:
            file = plan.files[path]
            return target.put(file.name, size, blocks, grows=file.messages is not None)

        result = transfer_all("Importing", list(plan.files), read, write)
    result.left += plan.left
    result.left += [Untransferred(path, error) for path, error in found.others.items() if sieve.takes(path)]
    result.left_out = sieve.left_out | plan.left_out
    result.notes += [*_notes_of(plan, found, sieve), *_notes_after(plan, result, yes)]
    _finish(settings, source, plan, result, yes)


@contextmanager
def _opened(source: Source) -> Iterator[tuple[Folder, FoundFiles]]:
    """The opened root of a source, with the files in it; raises if there are none."""
    try:
        folder = Folder(str(source.root))
    except (FileNotFoundError, NotADirectoryError):
        raise _nothing_in(source) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise click.ClickException(f"{source.shown} cannot be opened: {reason}") from error
    with folder:
        found = source.find(folder)
        if not (found.files or found.others):
            raise _nothing_in(source)
        yield folder, found


def _nothing_in(source: Source) -> click.ClickException:
    *others, last = source.patterns
    looked = f"{', '.join(others)} or {last}" if others else last
    return click.ClickException(f"found nothing to import in {source.shown}: no {looked}; {source.advice}")


def _notes_of(plan: ImportPlan, found: FoundFiles, sieve: Sieve) -> Iterator[str]:
    if composed := sum(path != in_form_c(path) for path in plan.files):
        yield f"{counted(composed, 'path')} in Unicode form D, as macOS writes it; the memory has form C"
    if found.packed:
        yield f"{counted(found.packed, 'compressed file')} (.zst, .gz) left out: unpack, then use --from PATH"
    if found.ignored:
        yield f"{counted(found.ignored, 'other file')} in these directories left out"
    yield from (f"--exclude {pattern!r} matches nothing" for pattern in sieve.unmatched)


def _notes_after(plan: ImportPlan, result: TransferResult, yes: bool) -> Iterator[str]:
    if secret := sum(bool(file.secrets) for file in plan.files.values()):
        files = counted(secret, "file with likely secrets", "files with likely secrets")
        yield f"{files}: --exclude leaves files out, and the plugin redaction masks secrets"
    written = [plan.files[path] for path in result.written]
    if not yes and written:
        yield "nothing was written; --yes imports these files"
    directories = (argument(file.name.rpartition("/")[0]) for file in written if file.messages)
    if yes and (directory := next(filter(None, directories), None)):
        yield f"to print a conversation: agent-memory conversation show --directory {directory}"


def _finish(settings: Settings, source: Source, plan: ImportPlan, result: TransferResult, yes: bool) -> None:
    """Print the plan and the result; without ``yes`` nothing was to be done, so nothing failed."""
    code = result.code if yes else Exit.OK
    if settings.json:
        files: list[dict[str, Any]] = [asdict(file) for file in plan.files.values()]
        facts = {"from": source.shown, "files": files, "dry_run": not yes, "exit_code": int(code)}
        show_json({**result_document(result), **facts})
    else:
        for file in plan.files.values():
            click.echo(file.line())
        print_result("imported" if yes else "would import", result)
    click.get_current_context().exit(code)
