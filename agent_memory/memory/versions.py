"""`FileVersions` and `AsyncFileVersions`: the earlier versions of the files of a memory."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from agent_memory.backend import PRESENT
from agent_memory.core.precondition import RestoreCondition, state_of_restore
from agent_memory.core.results import WriteResult
from agent_memory.core.tree import Tree
from agent_memory.core.undoing import undo
from agent_memory.core.versions.redact import RedactResult
from agent_memory.core.versions.settings import VersionLimits
from agent_memory.core.versions.states import Cursor, FileVersion
from agent_memory.core.versions.undo import Undone, UndoResult, checked_selection
from agent_memory.errors import AgentMemoryFileNotFoundError
from agent_memory.runtime.run import Run, step
from agent_memory.runtime.runners import run_async
from agent_memory.runtime.threads import in_thread

if TYPE_CHECKING:
    from agent_memory.audit import LogLocation
    from agent_memory.core.versions.undo import RecordedAppends

T = TypeVar("T")
VersionId: TypeAlias = str
"""The id of a version: `FileVersion.id`."""


class FileVersions:
    """The earlier versions of the files of a memory, which its store keeps after `set_limits`.

    A version is given as a `FileVersion` or as its id. Other errors as `agent_memory.AgentMemory`.
    """

    def __init__(self, tree: Tree, run: Run) -> None:
        self._tree = tree
        self._run = run

    def list(
        self, path: str = "", *, limit: int | None = None, after: FileVersion | VersionId | None = None
    ) -> tuple[FileVersion, ...]:
        """Return the versions of a file, newest first; empty if there is no file and none is kept.

        The first one is the current file, unless it is deleted. Appends make no new version. Without ``path`` the
        earlier versions of all files are returned, the latest ended first by the storage's clock, without the present
        files.

        Args:
            path: the file; it may be deleted. "" is all files.
            limit: the maximum number of versions. Over a network each one costs a request.
            after: the last version of the previous page, or its id. Copies of a file share ids: in the list of all
                files, ``path@id`` tells which one is meant.

        Raises:
            AgentMemoryFileNotFoundError: there is no version ``after``.
            ValueError: ``limit`` is not a positive whole number.
        """
        return step(self._tree.file_versions(self._run, path, limit, _cursor(after)))

    def read(self, path: str, version: FileVersion | VersionId) -> str:
        """Read an earlier version of a text file.

        Args:
            path: the file's name now, or when it was deleted.
            version: a version from `list`, or its id.

        Raises:
            AgentMemoryFileNotFoundError: this file has no earlier version with this id.
            ReadError: the version is not UTF-8; `read_bytes` can read it.
        """
        return step(self._tree.read_version_text(self._run, path, version_id(version)))

    def read_bytes(self, path: str, version: FileVersion | VersionId) -> bytes:
        """Read the bytes of an earlier version; otherwise as `read`."""
        return step(self._tree.read_version(self._run, path, version_id(version)))

    def diff(self, path: str, old: FileVersion | VersionId, new: FileVersion | VersionId | None = None) -> str:
        """Compare two versions of a text file, as a unified diff; empty if they are equal.

        Args:
            path: the file.
            old: the old version, or its id.
            new: the new version, or its id; None for the current file.

        Raises:
            AgentMemoryFileNotFoundError: there is no such version, or no such file.
            ReadError: one of them is not UTF-8.
        """
        before = self.read(path, old)
        after = step(self._tree.read_text(self._run, path)) if new is None else self.read(path, new)
        return _diff(path, old, before, new, after)

    def restore(self, path: str, version: FileVersion | VersionId, *, when: RestoreCondition = PRESENT) -> WriteResult:
        """Write the content of an earlier version as the current file, which becomes an earlier version itself.

        A deleted file exists again. Plugins see the content as they see that of an edit.

        Args:
            path: the file.
            version: a version from `list`, or its id.
            when: the etag that the current file must have; ``ABSENT`` requires that it is deleted, and ``PRESENT`` only
                that the version is there.

        Raises:
            AgentMemoryFileNotFoundError: this file has no earlier version with this id.
            FileAlreadyExistsError: the name is a directory now, or lies below a file; with ``ABSENT``, it is a file.
            ConflictError: the current file has another state than expected, or is gone.
        """
        return step(self._tree.restore(self._run, path, version_id(version), state_of_restore(when)))

    def undo(
        self,
        *,
        actor: str | None = None,
        tool_call_id: str | None = None,
        since: float | None = None,
        audit: str | os.PathLike[str] | LogLocation | None = None,
        dry_run: bool = False,
        shown: Iterable[Undone] | None = None,
    ) -> UndoResult:
        """Take back the changes of one actor, of one tool call, or since a time, file by file.

        The last changes of a file are taken back as far as all of them are selected: an earlier version is restored, a
        file that did not exist is deleted, a deleted file is restored, and a renamed one keeps its new name. Each
        step is an operation of its own, with its hooks, and becomes a version itself. A file that another operation
        replaced afterwards is left. Appends are taken out of a file, also from among the appends of others, if an audit
        log proves by its digests which bytes they are; without a log, files with appends are left.

        Args:
            actor: only operations for this actor.
            tool_call_id: only operations of this tool call.
            since: only operations that began at or after this time, in POSIX seconds by the caller's clock.
            audit: the audit log, as for `agent_memory.plugins.audit.AuditPlugin`: a file, or the URL of a root for the
                log below it. Its plugin must have written its records (``flush``). None uses no log, even if the store
                has one.
            dry_run: plan the steps, and make none.
            shown: the steps of an earlier dry run: only if the same steps are planned now, for the same states of the
                files, they are made.

        Returns:
            the steps that were made, and the files that were left with the reasons.

        Raises:
            ConflictError: the steps are others than ``shown``, or a file changed since then; nothing was changed.
            TypeError: ``actor`` or ``tool_call_id`` is neither a str nor None.
            ValueError: nothing is selected, or ``since`` is not a finite number.
        """
        selection = checked_selection(actor, tool_call_id, since)
        appends = None if audit is None else _recorded_appends(audit, self._tree.agent)
        return step(undo(self._tree, self._run, selection, appends, dry_run, shown))

    def redact(self, path: str, version: FileVersion | VersionId, *, reason: str) -> RedactResult:
        """Erase the content of an earlier version; a tombstone without content and digest stays.

        On S3 the bucket's own earlier versions of the file go too, and incomplete uploads. An `AuditPlugin` of the
        service destroys the salt of the agent's digests, as for `agent_memory.AgentMemory.forget`; without one, a log
        that other programs write still proves a guess of the content. The current file is never redacted. Copies
        in other files, and other stores, are not searched. If the call fails or its process ends, a repeated call
        finishes the work.

        Args:
            path: the file's name now, or when it was deleted.
            version: a version from `list`, or its id.
            reason: stored in the tombstone: 1 to 500 printable characters.

        Returns:
            the other versions of this file, and the current one, that contain the whole content.

        Raises:
            AgentMemoryFileNotFoundError: this file has no earlier version with this id.
            ConflictError: the version is the current file.
            InvalidContentError: ``reason`` is empty, too long or not printable.
            UnsupportedOperationError: the storage does not promise that it keeps nothing of a deleted file.
            WriteError: a part could not be erased; there is no tombstone.
        """
        return step(self._tree.redact(self._run, path, version_id(version), reason))

    def prune(self) -> int:
        """Delete the versions of this agent that the limits of `set_limits` no longer keep; return their number.

        A change does the same for a few of them, so a call is needed only to free space at once. The newest version of
        each file stays, and every one that ended less than an hour ago.
        """
        return step(self._tree.prune_versions(self._run))

    def limits(self) -> VersionLimits | None:
        """Return how many versions the store keeps; None if it keeps none."""
        return step(self._tree.version_limits(self._run))

    def set_limits(self, limits: VersionLimits | None) -> None:
        """Turn on that the store keeps an earlier version of each file that is replaced or deleted; None turns it off.

        The setting is stored for the whole store, for all agents. Other processes follow it within a minute. Versions
        that were kept stay.

        Raises:
            UnsupportedOperationError: the storage has no conditional write or delete, or stores no attributes.
        """
        step(self._tree.set_version_limits(self._run, limits))


class AsyncFileVersions:
    """`FileVersions` for async callers: the same methods, awaited."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    async def list(
        self, path: str = "", *, limit: int | None = None, after: FileVersion | VersionId | None = None
    ) -> tuple[FileVersion, ...]:
        """See `FileVersions.list`."""
        return await self._do(lambda run: self._tree.file_versions(run, path, limit, _cursor(after)))

    async def read(self, path: str, version: FileVersion | VersionId) -> str:
        """See `FileVersions.read`."""
        return await self._do(lambda run: self._tree.read_version_text(run, path, version_id(version)))

    async def read_bytes(self, path: str, version: FileVersion | VersionId) -> bytes:
        """See `FileVersions.read_bytes`."""
        return await self._do(lambda run: self._tree.read_version(run, path, version_id(version)))

    async def diff(self, path: str, old: FileVersion | VersionId, new: FileVersion | VersionId | None = None) -> str:
        """See `FileVersions.diff`."""
        before = await self.read(path, old)
        present = self._do(lambda run: self._tree.read_text(run, path)) if new is None else self.read(path, new)
        return _diff(path, old, before, new, await present)

    async def restore(
        self, path: str, version: FileVersion | VersionId, *, when: RestoreCondition = PRESENT
    ) -> WriteResult:
        """See `FileVersions.restore`."""
        return await self._do(lambda run: self._tree.restore(run, path, version_id(version), state_of_restore(when)))

    async def undo(
        self,
        *,
        actor: str | None = None,
        tool_call_id: str | None = None,
        since: float | None = None,
        audit: str | os.PathLike[str] | LogLocation | None = None,
        dry_run: bool = False,
        shown: Iterable[Undone] | None = None,
    ) -> UndoResult:
        """See `FileVersions.undo`."""
        selection = checked_selection(actor, tool_call_id, since)
        agent = self._tree.agent
        appends = None if audit is None else await in_thread(lambda: _recorded_appends(audit, agent))
        return await self._do(lambda run: undo(self._tree, run, selection, appends, dry_run, shown))

    async def redact(self, path: str, version: FileVersion | VersionId, *, reason: str) -> RedactResult:
        """See `FileVersions.redact`."""
        return await self._do(lambda run: self._tree.redact(run, path, version_id(version), reason))

    async def prune(self) -> int:
        """See `FileVersions.prune`."""
        return await self._do(lambda run: self._tree.prune_versions(run))

    async def limits(self) -> VersionLimits | None:
        """See `FileVersions.limits`."""
        return await self._do(lambda run: self._tree.version_limits(run))

    async def set_limits(self, limits: VersionLimits | None) -> None:
        """See `FileVersions.set_limits`."""
        await self._do(lambda run: self._tree.set_version_limits(run, limits))

    def _do(self, start: Callable[[Run], Coroutine[Any, Any, T]]) -> Awaitable[T]:
        return run_async(self._tree.backend, start)


def _recorded_appends(audit: str | os.PathLike[str] | LogLocation, agent: str | None) -> RecordedAppends:
    """See `agent_memory.audit.records.recorded_appends`."""
    from agent_memory.audit.records import recorded_appends  # here, because most programs need no audit log

    return recorded_appends(audit, agent)


def version_id(version: FileVersion | VersionId) -> VersionId:
    """Return the id of a version.

    Raises:
        AgentMemoryFileNotFoundError: a current file that was written while no versions were kept: it has no id.
        TypeError: ``version`` is neither a `FileVersion` nor a str.
    """
    if isinstance(version, FileVersion):
        if not version.id:
            raise AgentMemoryFileNotFoundError("the current file has no version id; read() reads it", path=version.path)
        return version.id
    if not isinstance(version, str):
        raise TypeError(f"version must be a FileVersion or its id, a str, not {type(version).__name__}")
    return version


def _cursor(after: FileVersion | VersionId | None) -> Cursor | None:
    if after is None:
        return None
    if isinstance(after, FileVersion):
        return Cursor(after.id, after.path)
    path, _, id_ = version_id(after).rpartition("@")
    return Cursor(id_, path or None)


def _diff(path: str, old: FileVersion | VersionId, before: str, new: FileVersion | VersionId | None, after: str) -> str:
    return unified_diff(path, version_id(old), before, "now" if new is None else version_id(new), after)


def unified_diff(path: str, old: str, before: str, new: str, after: str) -> str:
    """The differences of two texts, line by line; a line ends with a line feed, and a line without an end gets one."""
    lines = difflib.unified_diff(_lines(before), _lines(after), f"{path}@{old}", f"{path}@{new}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)
