"""Transfer many files, several at a time, and record each file that could not be transferred."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from agent_memory.backend import ABSENT, ANY
from agent_memory.cli.folder import Blocks
from agent_memory.cli.output import Exit, code_of, document_of, message_of, progress
from agent_memory.core.one_file import fails_alone
from agent_memory.errors import AgentMemoryError, FileAlreadyExistsError, FileOperationError
from agent_memory.key import Key
from agent_memory.memory import AgentMemory
from agent_memory.reading.reader import Reader

T = TypeVar("T")
_AT_ONCE = 8
_MOST_FAILURES = 20
_LARGE = 5 << 20
_REFUSALS: Final = (Exit.UNSUPPORTED, Exit.REFUSED, Exit.CONFLICT)
"""The exit codes of files that the storage did not fail on, by precedence."""


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


def move_all(title: str, items: Sequence[T], move: Callable[[T], bool], name: Callable[[T], str]) -> TransferResult:
    """Transfer every item with ``move``, which returns False if the same content existed, and raises if it fails.

    After 20 failures of the storage that are not about one file, the remaining items are not tried.

    Raises:
        UnsupportedOperationError: no file was transferred, because the store supports this for none of them.
    """
    moved = TransferResult()
    failed = threading.Semaphore(_MOST_FAILURES)

    def attempt(item: T) -> bool | Untransferred | None:
        if not _any_left(failed):
            return None
        try:
            return move(item)
        except (AgentMemoryError, OSError) as error:
            if code_of(error) is Exit.FAILED and not fails_alone(error):
                failed.acquire(blocking=False)
            return Untransferred(name(item), error)

    with ThreadPoolExecutor(_AT_ONCE, "agent-memory-move") as pool, progress(title, len(items)) as advance:
        try:
            for item, result in zip(items, pool.map(attempt, items), strict=True):
                _account(moved, name(item), result)
                advance()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if {each.code for each in moved.left} == {Exit.UNSUPPORTED} and not (moved.written or moved.equal):
        raise moved.left[0].error
    return moved


def _any_left(semaphore: threading.Semaphore) -> bool:
    if semaphore.acquire(blocking=False):
        semaphore.release()
        return True
    return False


def _account(moved: TransferResult, name: str, result: bool | Untransferred | None) -> None:
    if result is None:
        moved.untried += 1
    elif isinstance(result, Untransferred):
        moved.left.append(result)
    elif result:
        moved.written.append(name)
    else:
        moved.equal += 1


class Target:
    """A memory that receives files; files with equal content are not written again. In a dry run nothing is written."""

    def __init__(self, memory: AgentMemory, *, overwrite: bool, dry_run: bool) -> None:
        self._memory = memory
        self._overwrite = overwrite
        self._dry_run = dry_run
        self._large = threading.Lock()
        self._sizes = {entry.path: entry.size for entry in memory.list()}

    def put(self, path: str, size: int, blocks: Blocks) -> bool:
        """Write a file of ``size`` bytes, or in a dry run nothing; False if it exists with the same content.

        ``blocks`` is called to compare and to write; each call gives the content from the beginning. Only one large
        file is written at a time, so that the use of RAM does not grow with the number of threads.

        Raises:
            FileAlreadyExistsError: the file exists with other content, and ``overwrite`` is not set.
        """
        with self._large if size > _LARGE else nullcontext():
            known = self._sizes.get(path)
            if known == size and self._is_there(path, blocks):
                return False
            if known is not None and not self._overwrite:
                raise FileAlreadyExistsError("a file with other content exists", path=path)
            if self._dry_run:
                Key.tree().join(path)  # refuses an invalid name
            else:
                self._memory.write_blocks(path, blocks(), size, when=ANY if self._overwrite else ABSENT)
            return True

    def _is_there(self, path: str, blocks: Blocks) -> bool:
        async def same(reader: Reader) -> bool:
            at = 0
            for block in blocks():
                if await reader.read(at, at + len(block)) != block:
                    return False
                at += len(block)
            return at == reader.size

        return self._memory.scan(path, same)


def failure(path: str, reason: str) -> Untransferred:
    """An `Untransferred` for a file of the host that could not be examined."""
    return Untransferred(path, FileOperationError(reason, path=path))


def line_of(left: Untransferred) -> str:
    """The message to the user about a file that was not transferred; names are escaped."""
    message = message_of(left.error)
    has_path = any(name[1:-1] in message for name in (repr(left.path), ascii(left.path)))
    return message if has_path else f"{left.path!r}: {message}"
