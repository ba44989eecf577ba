"""The calls of memories on earlier versions of files."""

from __future__ import annotations

import difflib

from agent_memory.core.results import WriteResult
from agent_memory.core.versions.history import FileVersion
from agent_memory.core.versions.settings import Versions
from agent_memory.memory.reading import ReadingCalls
from agent_memory.runtime.run import step


class VersionCalls(ReadingCalls):
    """The part of `agent_memory.AgentMemory` for earlier versions, which the store keeps after `keep_versions`."""

    def versions(self, path: str, *, limit: int | None = None) -> tuple[FileVersion, ...]:
        """Return the versions of a file, newest first; empty if there is no file and none is kept.

        The first one is the present file, unless it is deleted. Appends make no new version.

        Args:
            path: the file; it may be deleted.
            limit: the maximum number of versions. Over a network each one costs a request.

        Raises:
            ValueError: ``limit`` is not a positive whole number.
        """
        return step(self._tree.file_versions(self._run, path, limit))

    def read_version(self, path: str, version: str) -> str:
        """Read an earlier version of a text file.

        Args:
            path: the file's name now, or when it was deleted.
            version: the id of the version, from `versions`.

        Raises:
            AgentMemoryFileNotFoundError: this file has no earlier version with this id.
            ReadError: the version is not UTF-8; `read_version_bytes` can read it.
        """
        return step(self._tree.read_version_text(self._run, path, version))

    def read_version_bytes(self, path: str, version: str) -> bytes:
        """Read the bytes of an earlier version; otherwise as `read_version`."""
        return step(self._tree.read_version(self._run, path, version))

    def diff(self, path: str, old: str, new: str | None = None) -> str:
        """Compare two versions of a text file, as a unified diff; empty if they are equal.

        Args:
            path: the file.
            old: the id of the old version.
            new: the id of the new version; None for the present file.

        Raises:
            AgentMemoryFileNotFoundError: there is no such version, or no such file.
            ReadError: one of them is not UTF-8.
        """
        before = self.read_version(path, old)
        after = self.read(path) if new is None else self.read_version(path, new)
        return unified_diff(path, old, before, new or "now", after)

    def restore(self, path: str, version: str) -> WriteResult:
        """Write the content of an earlier version as the present file, which becomes an earlier version itself.

        A deleted file exists again. Plugins see the content as they see that of an edit.

        Raises:
            AgentMemoryFileNotFoundError: this file has no earlier version with this id.
            FileAlreadyExistsError: the name is a directory now, or lies below a file.
        """
        return step(self._tree.restore(self._run, path, version))

    def prune_versions(self) -> int:
        """Delete the versions of this agent that the limits of `keep_versions` no longer keep; return their number.

        A change does the same for a few of them, so a call is needed only to free space at once. The newest version of
        each file stays, and every one that ended less than an hour ago.
        """
        return step(self._tree.prune_versions(self._run))

    def keep_versions(self, limits: Versions | None) -> None:
        """Turn on that the store keeps an earlier version of each file that is replaced or deleted; None turns it off.

        The setting is stored for the whole store, for all agents. Other processes follow it within a minute. Versions
        that were kept stay.

        Raises:
            UnsupportedOperationError: the storage has no conditional write or delete, or stores no attributes.
        """
        step(self._tree.turn_versions(self._run, limits))


def unified_diff(path: str, old: str, before: str, new: str, after: str) -> str:
    """The differences of two texts; a line without an end gets one."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"{path}@{old}", f"{path}@{new}"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
