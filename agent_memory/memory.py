"""`AgentMemory` and `AsyncAgentMemory`: one confined tree of text files.

Both have the same names; ``await`` is the only difference. What a method promises is written once, on
`AgentMemory`.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from agent_memory.backend import AnyBackend, BlockingBackend, Capabilities, Entry, Uncopied
from agent_memory.core.actor import Actor
from agent_memory.core.flows import raw_bytes, text_bytes
from agent_memory.core.hooks import Hooks
from agent_memory.core.part_flows import Blocks
from agent_memory.core.protected_names import ProtectedNames
from agent_memory.core.tree import Tree, TreeResult, WriteResult, checked_timeout
from agent_memory.core.tree_flows import AT_ONCE
from agent_memory.key import Key
from agent_memory.plugins.logging import LoggingPlugin
from agent_memory.reading.reader import Reader
from agent_memory.registry import open_backend
from agent_memory.runtime.io_loop import AsyncIORun
from agent_memory.runtime.run import Run, step
from agent_memory.runtime.runners import run_async, sync_run

if TYPE_CHECKING:
    from agent_memory.filesystem import AgentMemoryFileSystem

__all__ = ["AgentMemory", "AsyncAgentMemory", "TreeResult", "WriteResult"]

T = TypeVar("T")
U = TypeVar("U")


class _View(Uncopied):
    """What the sync and the async class share: the tree seen, and narrower views of it."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    @classmethod
    def open(
        cls,
        root: str | os.PathLike[str] | AnyBackend,
        *,
        storage_options: Mapping[str, object] | None = None,
        plugins: Iterable[object] = (),
        actor: str | None = None,
        timeout: float | None = None,
    ) -> Self:
        """Open one tree without agents: a project's ``.claude/memories``, say.

        Args:
            root: a path, a URL or a backend; nothing is created before the first write.
            storage_options: what the URL's backend takes; an unknown option is refused.
            plugins: guards and observers, called last first; logging is always on.
            actor: who acts, for the hooks.
            timeout: see `with_timeout`.

        Raises:
            BackendNotAvailableError: nothing installed opens the URL.
            TypeError: ``actor`` is neither a str nor None.
            ValueError: ``timeout`` is not a positive number.
        """
        who = Actor.of(actor)
        hooks = Hooks([LoggingPlugin(), *plugins])
        backend = open_backend(root, storage_options, hooks)
        return cls(Tree(backend, hooks, Key.tree(), actor=who, timeout=checked_timeout(timeout, backend)))

    def subtree(self, path: str) -> Self:
        """A view confined to a directory; its paths are relative to it."""
        return type(self)(self._tree.subtree(path))

    def read_only(self) -> Self:
        """A view whose writing calls raise `OperationDenied`; the views made of it are read-only too."""
        return type(self)(replace(self._tree, writable=False))

    def _protecting(self, names: Iterable[str], *, readable: bool) -> Self:
        """A view that never changes these names, nor reads them unless ``readable``; see `ProtectedNames`."""
        protected = ProtectedNames(map(self._tree.top.join, names), readable)
        return type(self)(replace(self._tree, protected=(*self._tree.protected, protected)))

    def acting_as(self, actor: str | None, tool_call_id: str | None = None) -> Self:
        """A view that tells the hooks who acts, and in which tool call, whatever `agent_memory.acting_as` says.

        Raises:
            TypeError: an argument is neither a str nor None.
        """
        return type(self)(replace(self._tree, actor=Actor.of(actor, tool_call_id), bound=True))

    def with_timeout(self, seconds: float | None) -> Self:
        """A view whose calls give up after so many seconds, waits for other writers and retries included.

        An operation on many files, or on ranges of one, has them for each file, page of a listing and range. None is
        the backend's own: 60 on S3; on local disk only a lock that stays taken for 60 ends a call.

        Raises:
            ValueError: not a positive number.
        """
        return type(self)(replace(self._tree, timeout=checked_timeout(seconds, self._tree.backend)))

    @property
    def capabilities(self) -> Capabilities:
        """What the storage below keeps."""
        return self._tree.backend.capabilities

    @property
    def _at_once(self) -> int:
        """On how many files it pays to work at once."""
        return 1 if isinstance(self._tree.backend, BlockingBackend) else AT_ONCE

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._tree.top.storage or '.'!r}>"


class AgentMemory(_View):
    """One confined tree of text files.

    Text is UTF-8, stored byte for byte. Every path is relative to the tree and parsed by one grammar
    (`InvalidPathError` carries the rule and a suggestion). Reading never creates anything. Sizes are in
    bytes. Instances are immutable and may be shared between threads.

    Every method raises `InvalidPathError` for a bad name, `OperationDenied` for a guard's veto,
    `FileOperationError` if the storage fails (`OutcomeUnknownError` where it stays open whether a change took
    effect), `UnsupportedOperationError` for what the backend does not promise,
    `FileTooLargeError` over its ``max_bytes``, and `InvalidContentError` for a malformed ``expected_sha256``;
    beside them only what it lists.
    """

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self._run = sync_run(tree.backend)

    def read(self, path: str) -> str:
        """Read a text file.

        Raises:
            AgentMemoryFileNotFoundError: no such file.
            ReadError: the file is not UTF-8; `read_bytes` still works.
            FileTooLargeError: over the backend's ``max_bytes`` (50 MB unless configured); `scan` reads it.
        """
        return step(self._tree.read_text(self._run, path))

    def read_bytes(self, path: str) -> bytes:
        """Read a file as it is stored; errors as `read`."""
        return step(self._tree.read(self._run, path))

    def read_many(self, paths: Iterable[str]) -> dict[str, str]:
        """Read several text files, 16 at once where the storage is a network away: their texts by their paths.

        Each is an operation of its own. The first error ends it and is raised: as `read`.
        """
        return step(self._tree.read_many(self._run, paths))

    def scan(self, path: str, work: Callable[[Reader], Awaitable[T]]) -> T:
        """Read a file in ranges, in bounded memory, within one operation.

        Args:
            path: the file.
            work: an async function that awaits nothing but the reader it is given; its result is returned.

        Raises:
            AgentMemoryFileNotFoundError: no such file.
            ConflictError: the file was rewritten meanwhile; appends do not disturb.
        """
        return step(self._tree.scan(self._run, path, work))

    def write(self, path: str, content: str, *, expected_sha256: str | None = None) -> WriteResult:
        """Replace or create a text file, and the directories above it, in one atomic step.

        The last writer wins; what is shared uses `edit`, `append` or a precondition.

        Args:
            path: the file.
            content: its whole new text.
            expected_sha256: the SHA-256 of the content to replace.

        Raises:
            InvalidContentError: not a str, or not valid Unicode; before any I/O.
            ConflictError: the file's content is another, or the file is gone; nothing was written.
            FileAlreadyExistsError: the name is a directory, or lies below a file.
            FileTooLargeError: over the backend's ``max_bytes``.
        """
        return step(self._tree.write(self._run, path, _text(content), expected_sha256))

    def write_bytes(self, path: str, content: bytes, *, expected_sha256: str | None = None) -> WriteResult:
        """Replace or create a file of any bytes; as `write`."""
        return step(self._tree.write(self._run, path, _bytes(content), expected_sha256))

    def write_blocks(self, path: str, blocks: Iterable[bytes], size: int, *, create: bool = False) -> WriteResult:
        """Replace or create a file of any size in one atomic step, in bounded memory; as `write`.

        Over 5 MiB (the backend's ``part_bytes``) the content is written in parts, where the backend can and no plugin
        has to see it; over ``max_bytes`` always.

        Args:
            path: the file.
            blocks: its content, in blocks of any size; read once, by an async twin in a thread.
            size: how many bytes they are in all.
            create: the file must not exist yet: of racing creators exactly one wins.

        Raises:
            FileAlreadyExistsError: ``create``, and the name is taken.
            InvalidContentError: the blocks are not bytes, or not ``size`` bytes in all; nothing was written.
            OperationDenied: over ``max_bytes``, and a plugin has to see the content.
            UnsupportedOperationError: over ``max_bytes``, and the backend writes no file in parts.
        """
        return step(self._tree.write_blocks(self._run, path, Blocks(blocks, size), create))

    def append(
        self,
        path: str,
        content: str,
        *,
        separator: str = "",
        must_exist: bool = False,
        expected_sha256: str | None = None,
    ) -> WriteResult:
        """Append text to a file, or create it; concurrent appends all take effect, each whole.

        Args:
            path: the file.
            content: what goes to its end.
            separator: goes in first if the file is neither empty nor ends with it, decided in the same step; at most
                64 bytes of UTF-8, which plugins do not see.
            must_exist: a missing file is an error, decided in the same step.
            expected_sha256: the SHA-256 of the content to append to; reads the file.

        The result's ``sha256`` is of ``content``; other errors as `write`.

        Raises:
            AgentMemoryFileNotFoundError: ``must_exist`` and no such file.
            AppendError: the storage failed; what was there before is still there.
            ConflictError: another content than expected, or every race lost for
                the seconds it had (see `with_timeout`); nothing was written.
        """
        flow = self._tree.append(self._run, path, _text(content), _text(separator), must_exist, expected_sha256)
        return step(flow)

    def append_bytes(
        self,
        path: str,
        content: bytes,
        *,
        separator: bytes = b"",
        must_exist: bool = False,
        expected_sha256: str | None = None,
    ) -> WriteResult:
        """Append any bytes to a file, or create it; as `append`."""
        flow = self._tree.append(self._run, path, _bytes(content), _bytes(separator), must_exist, expected_sha256)
        return step(flow)

    def create(self, path: str, content: str) -> WriteResult:
        """Write a file that does not exist yet; of racing creators exactly one wins.

        Raises:
            FileAlreadyExistsError: the name is taken; nothing was written.
        """
        return step(self._tree.create(self._run, path, _text(content)))

    def create_bytes(self, path: str, content: bytes) -> WriteResult:
        """Write a file of any bytes that does not exist yet; as `create`."""
        return step(self._tree.create(self._run, path, _bytes(content)))

    def edit(self, path: str, change: Callable[[str], str], *, expected_sha256: str | None = None) -> WriteResult:
        """Replace a file's text by a function of it, without losing what others write meanwhile.

        Args:
            path: the file.
            change: a pure function from the old text to the new one; called again on a newer text when
                somebody else was faster. Equal text writes nothing; what it raises is raised.
            expected_sha256: the SHA-256 the content must have; then a lost race is not tried again.

        Raises:
            AgentMemoryFileNotFoundError: no such file.
            ConflictError: another content than expected, or every race lost; nothing was written.
        """
        return step(self._tree.edit(self._run, path, change, expected_sha256))

    def delete(self, path: str, *, expected_sha256: str | None = None) -> None:
        """Delete a file; a directory emptied by it is gone too.

        Raises:
            AgentMemoryFileNotFoundError: no such file.
            ConflictError: another content than expected; nothing was deleted.
        """
        step(self._tree.delete(self._run, path, expected_sha256))

    def delete_tree(self, path: str) -> TreeResult:
        """Delete every file below a directory; ``""`` is the whole tree, which may be empty.

        Names in storage that no key can name are left alone and counted.

        Raises:
            AgentMemoryFileNotFoundError: no files below that name.
            PartialOperationError: some files could not be deleted; running it again goes on.
        """
        return step(self._tree.delete_tree(self._run, path))

    def forget(self, path: str) -> TreeResult:
        """Erase a file, or all files below a directory, and whatever else the storage keeps of them; ``""`` is all.

        On S3 that is earlier versions, deletion marks and incomplete uploads, also of files that were deleted before,
        which count; on local disk what writers left that died. There may be no such file. Audit logs keep only digests
        that nobody can check any more; see ``docs/audit.md``. Names that no key can name are left alone and counted.

        Raises:
            PartialOperationError: some files could not be deleted; running it again goes on.
            UnsupportedOperationError: the backend does not promise that nothing is kept of what it deletes.
        """
        return step(self._tree.forget(self._run, path))

    def rename(self, path: str, new_path: str) -> TreeResult:
        """Move a file or a directory to a name that is free; never overwrites.

        On local disk and in memory one step, whatever the size. Elsewhere a file is at its new name before it leaves
        the old one, so a crash may leave both, never neither, and a directory goes file by file.

        Raises:
            AgentMemoryFileNotFoundError: no such file or directory.
            FileAlreadyExistsError: the new name is taken.
            ConflictError: the file changed meanwhile; it stays where it was.
            PartialOperationError: a directory moved in part; the new name is taken now, so move the files
                in ``left`` one by one.
        """
        return step(self._tree.rename(self._run, path, new_path))

    def copy(self, path: str, new_path: str) -> TreeResult:
        """Copy a file or a directory to a name that is free; never overwrites; errors as `rename`."""
        return step(self._tree.copy(self._run, path, new_path))

    def list(self, path: str = "", *, recursive: bool = True) -> tuple[Entry, ...]:
        """The files below a directory in the order of their paths' UTF-8 bytes; empty if there are none.

        With ``recursive=False``: this level's files, and its directories with ``is_directory`` set. Names in
        storage that no key can name are skipped, and logged with their count.
        """
        return step(self._tree.list(self._run, path, recursive))

    def stat(self, path: str) -> Entry:
        """A file's size in bytes and time of change in POSIX seconds.

        Raises:
            AgentMemoryFileNotFoundError: no such file.
        """
        return step(self._tree.stat(self._run, path))

    def exists(self, path: str) -> bool:
        """Whether a file has this name; a directory is no file."""
        return step(self._tree.exists(self._run, path))

    def _map(self, function: Callable[[T], Coroutine[Any, Any, U]], items: Iterable[T]) -> Sequence[U]:
        """Work on several files, with what never suspends."""
        return step(self._run.map(function, items, self._at_once))

    def filesystem(self) -> AgentMemoryFileSystem:
        """This view as an fsspec filesystem, confined as it is: for pandas and whatever else speaks fsspec.

        Every call of it passes the hooks. It is closed with the memory. See `agent_memory.filesystem`.
        """
        from agent_memory.filesystem import AgentMemoryFileSystem  # a surface above this module

        return AgentMemoryFileSystem(self)

    def close(self) -> None:
        """Flush and close the plugins, and release what the backend holds; every view is closed with it.

        A plugin stays open while another open service has it, or if it is shared: see `agent_memory.hookspecs.Plugin`.
        """
        self._tree.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class AsyncAgentMemory(_View):
    """`AgentMemory` for async callers: the same methods, awaited; no awaited call blocks the caller's event loop.

    What is not awaited (`open`, `subtree`) does no I/O, except that a bad name is reported to the hooks at once.
    """

    async def read(self, path: str) -> str:
        return await self._do(lambda run: self._tree.read_text(run, path))

    async def read_bytes(self, path: str) -> bytes:
        return await self._do(lambda run: self._tree.read(run, path))

    async def read_many(self, paths: Iterable[str]) -> dict[str, str]:
        return await self._do(lambda run: self._tree.read_many(run, paths))

    async def scan(self, path: str, work: Callable[[Reader], Awaitable[T]]) -> T:
        return await self._do(lambda run: self._tree.scan(run, path, work))

    async def write(self, path: str, content: str, *, expected_sha256: str | None = None) -> WriteResult:
        return await self._do(lambda run: self._tree.write(run, path, _text(content), expected_sha256))

    async def write_bytes(self, path: str, content: bytes, *, expected_sha256: str | None = None) -> WriteResult:
        return await self._do(lambda run: self._tree.write(run, path, _bytes(content), expected_sha256))

    async def write_blocks(self, path: str, blocks: Iterable[bytes], size: int, *, create: bool = False) -> WriteResult:
        return await self._do(lambda run: self._tree.write_blocks(run, path, Blocks(blocks, size), create))

    async def append(
        self,
        path: str,
        content: str,
        *,
        separator: str = "",
        must_exist: bool = False,
        expected_sha256: str | None = None,
    ) -> WriteResult:
        return await self._do(
            lambda run: self._tree.append(run, path, _text(content), _text(separator), must_exist, expected_sha256)
        )

    async def append_bytes(
        self,
        path: str,
        content: bytes,
        *,
        separator: bytes = b"",
        must_exist: bool = False,
        expected_sha256: str | None = None,
    ) -> WriteResult:
        return await self._do(
            lambda run: self._tree.append(run, path, _bytes(content), _bytes(separator), must_exist, expected_sha256)
        )

    async def create(self, path: str, content: str) -> WriteResult:
        return await self._do(lambda run: self._tree.create(run, path, _text(content)))

    async def create_bytes(self, path: str, content: bytes) -> WriteResult:
        return await self._do(lambda run: self._tree.create(run, path, _bytes(content)))

    async def edit(self, path: str, change: Callable[[str], str], *, expected_sha256: str | None = None) -> WriteResult:
        return await self._do(lambda run: self._tree.edit(run, path, change, expected_sha256))

    async def delete(self, path: str, *, expected_sha256: str | None = None) -> None:
        await self._do(lambda run: self._tree.delete(run, path, expected_sha256))

    async def delete_tree(self, path: str) -> TreeResult:
        return await self._do(lambda run: self._tree.delete_tree(run, path))

    async def forget(self, path: str) -> TreeResult:
        return await self._do(lambda run: self._tree.forget(run, path))

    async def rename(self, path: str, new_path: str) -> TreeResult:
        return await self._do(lambda run: self._tree.rename(run, path, new_path))

    async def copy(self, path: str, new_path: str) -> TreeResult:
        return await self._do(lambda run: self._tree.copy(run, path, new_path))

    async def list(self, path: str = "", *, recursive: bool = True) -> tuple[Entry, ...]:
        return await self._do(lambda run: self._tree.list(run, path, recursive))

    async def stat(self, path: str) -> Entry:
        return await self._do(lambda run: self._tree.stat(run, path))

    async def exists(self, path: str) -> bool:
        return await self._do(lambda run: self._tree.exists(run, path))

    def filesystem(self) -> AgentMemoryFileSystem:
        """As `AgentMemory.filesystem`: its calls block, so they belong into a thread (`asyncio.to_thread`)."""
        return AgentMemory(self._tree).filesystem()

    async def aclose(self) -> None:
        """See `AgentMemory.close`."""
        await self._tree.aclose()

    async def _map(self, function: Callable[[T], Coroutine[Any, Any, U]], items: Iterable[T]) -> Sequence[U]:
        return await AsyncIORun().map(function, items, self._at_once)

    def _do(self, start: Callable[[Run], Coroutine[Any, Any, T]]) -> Awaitable[T]:
        return run_async(self._tree.backend, start)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()


def _text(content: str) -> Callable[[], bytes]:
    return partial(text_bytes, content) if content != "" else bytes


def _bytes(content: bytes) -> Callable[[], bytes]:
    return partial(raw_bytes, content)
