"""`AgentMemory`: one confined tree of text files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Literal, Self, TypeVar, overload

from agent_memory.backend import ABSENT, ANY, PRESENT, Entry
from agent_memory.core.budgets import NearlyFull, nearly_full
from agent_memory.core.limits.count import Usage
from agent_memory.core.part_flows import Blocks
from agent_memory.core.precondition import (
    BY_MISSING,
    DefaultCondition,
    DeleteCondition,
    EditCondition,
    SourceCondition,
    WriteCondition,
)
from agent_memory.core.results import ListedPart, RecordedResult, TreeResult, WriteResult
from agent_memory.core.tree import Tree
from agent_memory.memory.versions import FileVersions
from agent_memory.memory.view import View, content_of, of_bytes, of_text, text_of
from agent_memory.reading.reader import Reader
from agent_memory.runtime.run import step
from agent_memory.runtime.runners import sync_run

T = TypeVar("T")
U = TypeVar("U")


class AgentMemory(View):
    """One confined tree of text files.

    Text is UTF-8, stored byte for byte. Every path is relative to the tree and parsed by one grammar
    (`InvalidPathError` has the rule and a suggestion). Reading never creates anything. Sizes are in
    bytes. Instances are immutable and may be shared between threads.

    ``when`` is a precondition, checked in the same atomic step as the change: ``ANY`` (none), ``ABSENT`` (there is no
    file), ``PRESENT`` (there is one), an `ETag` (the file is in exactly this state: `WriteResult.etag`, or
    `Entry.etag`), or a `SHA256` (the file has this content; it is read to compare it). Local disk and memory have no
    etags of their own: there an etag is the digest of the content, so a file that was changed and changed back has it
    again.

    Every method may raise `InvalidPathError` (a bad name), `OperationDenied` (a guard's veto), `FileOperationError`
    (the storage failed; `OutcomeUnknownError` if it is unknown whether a change took effect),
    `UnsupportedOperationError` (the backend does not promise the operation), `FileTooLargeError` (more bytes than the
    backend's ``max_bytes``), and `TypeError` (``when`` is a value that the call does not take, such as None). Apart
    from these, a method raises only the errors it lists.
    """

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self._run = sync_run(tree.backend)

    @property
    def versions(self) -> FileVersions:
        """The earlier versions of the files, in a store that keeps them."""
        return FileVersions(self._tree, self._run)

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

    @overload
    def read_many(
        self, paths: Iterable[str], *, missing_ok: bool = False, bytes: Literal[False] = False
    ) -> dict[str, str]: ...

    @overload
    def read_many(
        self, paths: Iterable[str], *, missing_ok: bool = False, bytes: Literal[True]
    ) -> dict[str, bytes]: ...

    def read_many(
        self,
        paths: Iterable[str],
        *,
        missing_ok: bool = False,
        bytes: bool = False,  # noqa: A002 - what it returns
    ) -> dict[str, str] | dict[str, bytes]:
        """Read several files and return their contents by path; over a network 16 files concurrently.

        Each file is a separate operation. All files are tried, unless the storage itself fails; errors as `read`.

        Args:
            paths: the files.
            missing_ok: whether a missing file is left out of the result instead of being an error.
            bytes: whether to return bytes instead of text.

        Raises:
            PartialOperationError: several files could not be read; ``left`` names them.
        """
        if bytes:
            return step(self._tree.read_many(self._run, paths, self._tree.read, missing_ok))
        return step(self._tree.read_many(self._run, paths, self._tree.read_text, missing_ok))

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
        """Return a file's size in bytes, its modification time in POSIX seconds, and its etag.

        On local disk and in memory this reads the file, because its etag is the digest of its content.

        Raises:
            AgentMemoryFileNotFoundError: no such file.
        """
        return step(self._tree.stat(self._run, path, with_etag=True))

    def _entry(self, path: str) -> Entry:
        """As `stat`, but the etag may be None; never reads the content."""
        return step(self._tree.stat(self._run, path, with_etag=False))

    def _nearly_full(self, path: str | None, size: int | None, text: str | None) -> NearlyFull | None:
        """See `agent_memory.core.budgets.nearly_full`."""
        return step(nearly_full(self._run, self._tree, path, size, text))

    def usage(self) -> Usage:
        """Count the files and their bytes, and the kept versions of the agent's files; a listing of both.

        In a view of a directory only its files are counted.
        """
        return step(self._tree.usage(self._run))

    def exists(self, path: str) -> bool:
        """Whether a file has this name; False for a directory."""
        return step(self._tree.exists(self._run, path))

    def is_directory(self, path: str) -> bool:
        """Whether there are files below this name, also files that this view hides; True for ``""``, the whole tree."""
        return step(self._tree.is_directory(self._run, path))

    def write(self, path: str, content: str | bytes, *, when: WriteCondition = ANY) -> WriteResult:
        """Replace or create a file, and the directories above it, in one atomic step.

        The last writer wins. For files with several writers use `edit`, `append` or a precondition.

        Args:
            path: the file.
            content: its whole new content: a text, or bytes.
            when: ``ANY``, ``ABSENT``, ``PRESENT``, an etag or a `SHA256`.

        Raises:
            InvalidContentError: ``content`` is neither a str nor bytes, or not valid Unicode; raised before any I/O.
            AgentMemoryFileNotFoundError: ``PRESENT``, and there is no file; nothing was written.
            ConflictError: an etag or a `SHA256`, and the file has another state, or is gone; nothing was written.
            FileAlreadyExistsError: ``ABSENT``, and there is a file; or the name is a directory, or lies below a file.
            FileTooLargeError: more bytes than the backend's ``max_bytes``.
        """
        return step(self._tree.write(self._run, path, content_of(content), when))

    def write_blocks(self, path: str, blocks: Iterable[bytes], size: int, *, when: WriteCondition = ANY) -> WriteResult:
        """Replace or create a file of any size in one atomic step, in bounded memory; otherwise as `write`.

        Content larger than 5 MiB (the backend's ``part_bytes``) is written in parts if the backend can do so and no
        plugin has to see the content. Content larger than ``max_bytes`` is always written in parts.

        Args:
            path: the file.
            blocks: its content, in blocks of any size. They are read once; the async twin reads them in a thread.
            size: the total number of bytes.
            when: as in `write`.

        Raises:
            InvalidContentError: the blocks are not bytes, or not ``size`` bytes in all; nothing was written.
            OperationDenied: more than ``max_bytes``, and a plugin has to see the content.
            UnsupportedOperationError: more than ``max_bytes``, and the backend cannot write in parts.
        """
        return step(self._tree.write_blocks(self._run, path, Blocks(blocks, size), when))

    def append(
        self, path: str, content: str | bytes, *, separator: str | bytes = "", when: EditCondition = ANY
    ) -> WriteResult:
        """Append to a file, or create the file; concurrent appends all take effect, each whole.

        Args:
            path: the file.
            content: the text or bytes to append.
            separator: inserted before ``content``, unless the file is empty or already ends with it; checked in the
                same atomic step. At most 64 bytes; plugins do not see it.
            when: ``ANY``, ``PRESENT``, an etag or a `SHA256`; with one of the last two the file is read.

        The result's ``sha256`` is the digest of ``content``; other errors as `write`.

        Raises:
            AgentMemoryFileNotFoundError: ``PRESENT``, and no such file.
            AppendError: the storage failed; the old content is intact.
            ConflictError: the file has another state than expected, or other writers were faster until the timeout
                (see `with_timeout`); nothing was written.
        """
        return step(self._tree.append(self._run, path, content_of(content), content_of(separator), when))

    def create(self, path: str, content: str | bytes) -> WriteResult:
        """Write a file that does not exist yet: `write` with ``ABSENT``. Of concurrent creators exactly one succeeds.

        Raises:
            FileAlreadyExistsError: the name is taken; nothing was written.
        """
        return self.write(path, content, when=ABSENT)

    def edit(
        self,
        path: str,
        change: Callable[[str], str | None],
        *,
        missing: str | None = None,
        when: EditCondition | DefaultCondition = BY_MISSING,
    ) -> WriteResult:
        """Replace a file's text by a function of it, without losing the changes of concurrent writers.

        Args:
            path: the file.
            change: a pure function from the old text to the new text. If another writer was faster, it is called
                again with the newer text. If it returns equal text, nothing is written; if it returns None, the file
                is deleted. Its exceptions propagate.
            missing: the old text if there is no file; then the result of ``change`` creates the file.
            when: ``PRESENT``, an etag or a `SHA256`; with one of the last two, a conflict is not retried. With
                ``missing`` only ``ANY``. The default is ``ANY`` with ``missing``, and ``PRESENT`` without it.

        Raises:
            AgentMemoryFileNotFoundError: no such file, and no ``missing``.
            FileAlreadyExistsError: the name is a directory, or lies below a file.
            ConflictError: the file has another state than expected, or other writers were faster until the timeout;
                nothing was written.
            TypeError: ``ANY`` without ``missing``, or another precondition with it.
        """
        old = None if missing is None else text_of(missing)
        return step(self._tree.edit(self._run, path, of_text(change), old, when))

    def edit_bytes(
        self,
        path: str,
        change: Callable[[bytes], bytes | None],
        *,
        missing: bytes | None = None,
        when: EditCondition | DefaultCondition = BY_MISSING,
    ) -> WriteResult:
        """Replace a file's bytes by a function of them; otherwise as `edit`."""
        old = None if missing is None else content_of(missing)
        return step(self._tree.edit(self._run, path, of_bytes(change), old, when))

    def delete(self, path: str, *, when: DeleteCondition = ANY) -> None:
        """Delete a file, and each directory that becomes empty.

        Args:
            path: the file.
            when: ``ANY``, an etag or a `SHA256`.

        Raises:
            AgentMemoryFileNotFoundError: no such file.
            ConflictError: the file has another state than expected; nothing was deleted.
        """
        step(self._tree.delete(self._run, path, when))

    def delete_tree(self, path: str) -> TreeResult:
        """Delete every file below a directory; ``""`` is the whole tree, which may be empty.

        Names in storage that are not valid keys are not deleted, only counted.

        Raises:
            AgentMemoryFileNotFoundError: no files below that name.
            PartialOperationError: some files could not be deleted; call it again to continue.
        """
        return step(self._tree.delete_tree(self._run, path))

    def forget(self, path: str, *, dry_run: bool = False) -> TreeResult:
        """Erase a file, or all files below a directory, with every copy the storage keeps; ``""`` is the whole tree.

        On S3 this includes earlier versions, delete markers and incomplete uploads, also those of files deleted
        earlier; the result counts such files too. On local disk it includes the temporary files of crashed writers.
        A missing file is no error. The versions that the store keeps of the files go first, also those that ended under
        other names of the same files, and those of copies by other programs, which share a history; the result counts
        them. With ``dry_run`` nothing is erased, and the result counts the current files and these versions. Receipts
        of idempotency keys that name the files are erased too. An `AuditPlugin` of the service destroys the salt of the
        agent, so that its log no longer proves any content; without one, the salt in a log that other programs write
        stays. Names in storage that are not valid keys are not erased, only counted.

        Raises:
            PartialOperationError: some files could not be deleted; call it again to continue.
            UnsupportedOperationError: the backend cannot promise that nothing of a deleted file is kept.
        """
        return step(self._tree.forget(self._run, path, dry_run))

    def rename(self, path: str, new_path: str, *, when: SourceCondition = PRESENT) -> TreeResult:
        """Move a file or a directory to a free name; never overwrites.

        On local disk and in memory this is one atomic step, whatever the size. Elsewhere a file is copied and then
        deleted at its old name, so a crash may leave both names but never neither; a directory moves file by file.

        Args:
            path: the file or directory.
            new_path: the new name.
            when: ``PRESENT``, or the etag of the file to move; a directory has no etag.

        Raises:
            AgentMemoryFileNotFoundError: no such file or directory.
            FileAlreadyExistsError: the new name is taken.
            ConflictError: the file has another state than expected, or changed during the move; it stays at its old
                name.
            PartialOperationError: only a part of the directory was moved. The new name is taken now, so move the
                files in ``left`` one by one.
        """
        return step(self._tree.rename(self._run, path, new_path, when))

    def copy(self, path: str, new_path: str, *, when: SourceCondition = PRESENT) -> TreeResult:
        """Copy a file or a directory to a free name; never overwrites; arguments and errors as `rename`."""
        return step(self._tree.copy(self._run, path, new_path, when))

    def once(self, key: str, *, of: str = "", window: float | None = None) -> OnceMemory:
        """Return a view whose next change is made at most once, also if other processes repeat it with the same key.

        A repeated call waits for the first one if that is under way, changes nothing, and returns its result. A call
        that was refused or failed does not use the key. Take a new key for each change.

        Args:
            key: 1 to 128 characters that name the change, in this agent's tree.
            of: the caller's fingerprint of the change, up to 4,096 characters, where its path and content do not tell
                it from others, as for an edit.
            window: how long the key stays used after the call has ended, in seconds by the clocks of the processes; one
                day by default. Then a repeated call is made again. A call under way keeps its key.

        The change raises `ConflictError` if the key belongs to another call: its kind, path, content, other arguments
        or ``of`` are different. It raises `OutcomeUnknownError` also if an earlier call with the key ended without
        telling how, and `UnsupportedOperationError` for `forget` and the calls of `versions` but ``restore``.

        Raises:
            InvalidContentError: ``key`` or ``of`` is too long, empty or not valid Unicode.
            ValueError: ``window`` is not a positive number.
        """
        return OnceMemory(self._tree.with_once(key, of, window))

    def close(self) -> None:
        """Flush and close the plugins, and release the backend's resources; all views are closed too.

        A plugin stays open while another open service uses it, or if it is shared: see
        `agent_memory.hookspecs.Plugin`.
        """
        self._tree.close()

    def _map(self, function: Callable[[T], Coroutine[Any, Any, U]], items: Iterable[T]) -> Sequence[U]:
        """Run a function that never suspends on several files."""
        return step(self._run.map(function, items, self._at_once))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class OnceMemory(AgentMemory):
    """A view whose next change is made at most once; see `AgentMemory.once`."""

    def result(self) -> RecordedResult | None:
        """Return the recorded result of the change with this key; None if none was made, or it changed nothing.

        Raises:
            ConflictError: the key belongs to a call with another fingerprint, or outside this view.
            OutcomeUnknownError: the call is under way, or ended without telling how.
        """
        return step(self._tree.recorded_result(self._run))
