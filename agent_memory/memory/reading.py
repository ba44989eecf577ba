"""`ReadingCalls`: the calls of `AgentMemory` that change nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from agent_memory.backend import Entry
from agent_memory.core.listed_part import ListedPart
from agent_memory.core.receipts import IdempotencyKey
from agent_memory.core.results import EditResult
from agent_memory.core.tree import Tree
from agent_memory.memory.view import View
from agent_memory.reading.reader import Reader
from agent_memory.runtime.run import step
from agent_memory.runtime.runners import sync_run

T = TypeVar("T")
U = TypeVar("U")


class ReadingCalls(View):
    """The reading part of `agent_memory.AgentMemory`, which documents the errors of all calls."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self._run = sync_run(tree.backend)

    def read(self, path: str) -> str:
        """Read a text file.

        Raises:
            AgentMemoryFileNotFoundError: no such file.
            ReadError: the file is not UTF-8; `read_bytes` can read it.
            FileTooLargeError: larger than the backend's ``max_bytes`` (50 MB by default); `scan` can read it.
        """
        return step(self._tree.read_text(self._run, path))

    def read_bytes(self, path: str) -> bytes:
        """Read a file's bytes; errors as `read`."""
        return step(self._tree.read(self._run, path))

    def read_many(self, paths: Iterable[str], *, missing_ok: bool = False) -> dict[str, str]:
        """Read several text files and return their texts by path; over a network 16 files concurrently.

        Each file is a separate operation. The first error ends the call and is raised; errors as `read`.

        Args:
            paths: the files.
            missing_ok: whether a missing file is left out of the result instead of being an error.
        """
        return step(self._tree.read_many(self._run, paths, self._tree.read_text, missing_ok))

    def read_many_bytes(self, paths: Iterable[str], *, missing_ok: bool = False) -> dict[str, bytes]:
        """Read the bytes of several files; otherwise as `read_many`."""
        return step(self._tree.read_many(self._run, paths, self._tree.read, missing_ok))

    def tail(self, path: str, lines: int) -> str:
        r"""Read the last lines of a text file; on a large file only its end is read.

        Args:
            path: the file.
            lines: how many lines, at least 1; a line ends at ``\n``, the last one may end with the file.

        Raises:
            FileTooLargeError: these lines have more bytes than the backend's ``max_bytes``, or one of them has more
                than 16 MiB.
            ConflictError: the file was rewritten during the call; appends are allowed.
            ValueError: ``lines`` is not a positive whole number.

        Other errors as `read`.
        """
        return step(self._tree.tail(self._run, path, lines))

    def scan(self, path: str, work: Callable[[Reader], Awaitable[T]]) -> T:
        """Read a file in ranges, in bounded memory, within one operation.

        Args:
            path: the file.
            work: an async function that awaits only its argument, the reader; its result is returned.

        Raises:
            AgentMemoryFileNotFoundError: no such file.
            ConflictError: the file was rewritten during the scan; appends are allowed.
        """
        return step(self._tree.scan(self._run, path, work))

    def segment_text(self, segment: str, suffix: str = "") -> str:
        """Return the text of a segment that `encode_segment` or `record_segment` made.

        Raises:
            InvalidPathError: no text has this segment.
            AgentMemoryFileNotFoundError: the segment is hashed, and its text is not recorded in this tree.
        """
        return step(self._tree.segment_text(self._run, segment, suffix))

    def list(
        self,
        path: str = "",
        *,
        recursive: bool = True,
        name_prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
    ) -> tuple[Entry, ...]:
        """List the files below a directory, in the order of their paths' UTF-8 bytes; empty if there are none.

        Names in storage that are not valid keys are skipped, and their number is logged. The storage is asked for the
        whole directory, also if only a part of the names is returned.

        Args:
            path: the directory.
            recursive: if false, the files of this level, and its directories with ``is_directory`` set.
            name_prefix: only names that begin with this text, without ``path``; not only whole segments.
            after: only paths after this one, for example the last path of the previous call.
            limit: the most entries.

        Raises:
            ValueError: ``limit`` is not a positive whole number.
        """
        part = ListedPart(name_prefix, after, limit).checked()
        return step(self._tree.list(self._run, path, recursive, part))

    def stat(self, path: str) -> Entry:
        """Return a file's size in bytes and modification time in POSIX seconds.

        Raises:
            AgentMemoryFileNotFoundError: no such file.
        """
        return step(self._tree.stat(self._run, path))

    def edit_result(self, idempotency_key: str, *, fingerprint: str = "") -> EditResult | None:
        """Return the result of an earlier edit with an idempotency key; None if no edit with this key has finished.

        A caller that repeats a run can ask before it reads the file again. `edit` with the key gives the same answer.

        Args:
            idempotency_key: the key that `AgentMemory.edit` or `AgentMemory.edit_bytes` was given.
            fingerprint: the fingerprint that it was given.

        Raises:
            ConflictError: the key belongs to another call: not an edit in this view, or the fingerprint is different.
        """
        return step(self._tree.edit_result(self._run, IdempotencyKey(idempotency_key, fingerprint)))

    def exists(self, path: str) -> bool:
        """Whether a file has this name; False for a directory."""
        return step(self._tree.exists(self._run, path))

    def is_directory(self, path: str) -> bool:
        """Whether there are files below this name, also files that this view hides; True for ``""``, the whole tree."""
        return step(self._tree.is_directory(self._run, path))

    def _map(self, function: Callable[[T], Coroutine[Any, Any, U]], items: Iterable[T]) -> Sequence[U]:
        """Run a function that never suspends on several files."""
        return step(self._run.map(function, items, self._at_once))
