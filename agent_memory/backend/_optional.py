"""The optional protocols: what a backend may do in a better way than by the five verbs."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol, runtime_checkable

from agent_memory.backend._types import ANY, Appended, AppendWhen, Capabilities, DeletedTree, Version, WriteWhen
from agent_memory.key import Key


@runtime_checkable
class Appends(Protocol):
    """An optional verb: append in one step, for a storage that has a better way than read and write."""

    def append(
        self, key: Key, data: bytes, *, separator: bytes = b"", when: AppendWhen = ANY
    ) -> Appended | Awaitable[Appended]:
        """Append to a file, or create it unless ``when`` is ``PRESENT``, in one atomic step.

        ``separator``, of at most 64 bytes, goes in first iff the file is non-empty and does not already end with it,
        decided in the same step.

        Raises:
            AgentMemoryFileNotFoundError: ``PRESENT`` and no file has this name.
            FileAlreadyExistsError: the name is a directory or lies below a file.
            AppendError: the storage failed; the old state is intact.
        """
        ...


@runtime_checkable
class ChecksCapabilities(Protocol):
    """An optional verb of a backend whose `Capabilities` depend on a server, and are found out by trying."""

    def check_capabilities(self, key: Key) -> Capabilities | Awaitable[Capabilities]:
        """Try what was not tried yet, beside the file of a key, and return what the storage keeps.

        Every verb does so before it relies on a promise; an operation of several steps asks before the first one.

        Raises:
            WriteError: the storage failed.
        """
        ...


@runtime_checkable
class MovesTrees(Protocol):
    """Two optional verbs: a directory moved in one step, and one deleted while nobody changes what is in it."""

    def move_tree(self, source: Key, target: Key) -> int | Awaitable[int | None] | None:
        """Give a directory a name that is free, and return how many files it holds.

        None says that nothing was done because it cannot be done in one step here: the directory holds names that
        no key can name, which would move along. The caller then goes file by file.

        Raises:
            AgentMemoryFileNotFoundError: no files below that name.
            FileAlreadyExistsError: the new name is taken, or lies below a file.
            InvalidPathError: a file's new name would be no name; nothing was done.
            WriteError: the storage failed.
        """
        ...

    def delete_tree(self, prefix: Key) -> DeletedTree | Awaitable[DeletedTree]:
        """Delete every file below a prefix; names that no key can name are left, and counted.

        Raises:
            PartialOperationError: some files could not be deleted; running it again goes on.
            WriteError: the storage failed.
        """
        ...


@runtime_checkable
class MovesFiles(Protocol):
    """An optional verb: a file of any size renamed in one step."""

    def move_file(self, source: Key, target: Key) -> int | Awaitable[int | None] | None:
        """Give a file a name that is free, and return the file's size in bytes.

        None says that nothing was done because it cannot be done in one step here. The caller then copies the file and
        deletes the source.

        Raises:
            AgentMemoryFileNotFoundError: no file has this name (a directory is no file).
            FileAlreadyExistsError: the new name is taken, or lies below a file.
            WriteError: the storage failed; nothing was done.
        """
        ...


class Parts(Protocol):
    """One file that is written in parts; nothing of it is seen under its name until `complete` returns.

    A caller makes one call after the other, and ends with `complete` or `abort`. If the process dies before, the file
    under the name stays as it was.
    """

    part_bytes: int
    """How many bytes each `add` has, except the last one, which may have fewer."""

    def add(self, data: bytes) -> Awaitable[None] | None:
        """Add the next bytes.

        Raises:
            WriteError: the storage failed; the caller aborts.
        """
        ...

    def add_copy(self, source: Key, start: int, end: int, version: Version) -> bool | Awaitable[bool]:
        """Add the bytes ``[start:end]`` of another file of this backend, without reading them here.

        False says that nothing was added: the storage cannot copy, or the source is in another state than ``version``.

        Raises:
            WriteError: the storage failed; the caller aborts.
        """
        ...

    def complete(self) -> Version | Awaitable[Version]:
        """Give the file its name in one atomic step, if the condition still holds; errors as `Backend.write`.

        After an error the caller aborts.
        """
        ...

    def abort(self) -> Awaitable[None] | None:
        """Drop what was added. After `complete` returned it does nothing; it raises nothing."""
        ...


@runtime_checkable
class WritesInParts(Protocol):
    """An optional verb: write a file of any size in bounded memory."""

    def write_in_parts(self, key: Key, size: int, when: WriteWhen = ANY) -> Parts | Awaitable[Parts]:
        """Begin to write a whole file of exactly ``size`` bytes.

        A condition that does not hold now may be refused at once; `Parts.complete` decides.

        Raises:
            FileAlreadyExistsError, ConflictError: as `Backend.write`.
            UnsupportedOperationError: this storage cannot do so on that condition.
            WriteError: the storage failed.
        """
        ...


@runtime_checkable
class Erases(Protocol):
    """An optional verb: nothing is left of a file, nor of what the storage keeps of it besides."""

    def erase(self, prefix: Key) -> DeletedTree | Awaitable[DeletedTree]:
        """Erase the file of this name, and every file below it, with earlier versions and writes that never ended.

        Files that were deleted before count too, where the storage still had something of them. There may be none.

        Raises:
            PartialOperationError: some files could not be deleted; running it again goes on.
            UnsupportedOperationError: this storage does not tell what it keeps.
            WriteError: the storage failed.
        """
        ...
