"""The contract for backend authors: five verbs, each atomic; `agent_memory.core.flows` builds all operations on them.

A backend author implements `BlockingBackend` or `Backend`, depending on whether the storage's calls block, and
runs `agent_memory.testing.BackendContract` against it. Users never call a backend. Keys are already parsed and
confined; a backend does not validate names again.

Every backend promises:

- A reader sees the whole old or the whole new file, never a mixture and never a missing file.
- A write that returned is durable as stated by `Capabilities.durability`.
- A write that raised did not happen, unless it raised `OutcomeUnknownError`.
- `Capabilities` states the limits of the storage. A backend refuses other operations with
  `UnsupportedOperationError`; it never imitates them with steps that another writer can interrupt.

`agent_memory.backend.helpers` has functions that most backends use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol, TypeAlias, runtime_checkable

import pluggy

from agent_memory.backend._types import (
    ABSENT,
    ANY,
    PRESENT,
    Appended,
    AppendWhen,
    Capabilities,
    DeletedTree,
    Entry,
    ETag,
    Page,
    ReadWhen,
    Snapshot,
    Uncopied,
    When,
    WriteWhen,
)
from agent_memory.key import Key

__all__ = [
    "ABSENT",
    "ANY",
    "ORIGIN_BYTES",
    "PRESENT",
    "ActsAsAnotherProcess",
    "AnyBackend",
    "AppendWhen",
    "Appended",
    "Appends",
    "Backend",
    "BackendFactory",
    "BlockingBackend",
    "Capabilities",
    "ChecksCapabilities",
    "DeletedTree",
    "ETag",
    "Entry",
    "Erases",
    "Key",
    "MovesFiles",
    "MovesTrees",
    "NewOrigin",
    "Page",
    "Parts",
    "ReadWhen",
    "Snapshot",
    "When",
    "WriteWhen",
    "WritesCopies",
    "WritesInParts",
    "hookimpl",
]

hookimpl = pluggy.HookimplMarker("agent_memory")
"""Marks a plugin's hooks; a backend's module implements only `agent_memory_register_backends`."""


ORIGIN_BYTES: Final = 800
"""The maximum length of an origin: printable ASCII characters, none of them a space."""

NewOrigin: TypeAlias = Callable[[float], str]
"""Makes the text of an origin (`Backend.keeps_origins`) from the storage's time, in POSIX seconds.

A backend calls it for each request that carries the origin, also for a repeated one: if another writer deleted the file
in between, a repeated create makes another state, which then has another origin. For a file that is written in parts it
is called once. A caller that names the origin elsewhere gives the same text each time.
"""


class _Common(Uncopied, ABC):
    max_bytes: int = 50_000_000
    """The maximum bytes of one read or one write; a larger read is refused before memory is allocated."""
    part_bytes: int = 5 << 20
    """The bytes of each part of a file that is written in parts (`WritesInParts`)."""
    timeout: float | None = None
    """The default timeout of an operation on one file, in seconds; None: no limit."""
    capabilities: Capabilities
    """The guarantees of this storage; every backend sets it."""
    keeps_origins: bool = False
    """Whether the storage keeps a short text, the origin, with each state of a file, in the same atomic step.

    If true, `Snapshot.origin` and `Appended.origin` are set, and `write`, `append` (`Appends`) and `write_in_parts`
    (`WritesInParts`) take one more argument, ``origin: NewOrigin | None = None``. They raise
    `UnsupportedOperationError` if an origin is given and the storage of this root cannot keep it. A state that is
    written without an origin has none. An append to a file that exists does not call ``origin`` and leaves the file's
    origin as it is; a moved file keeps its origin.
    """


class Backend(_Common):
    """A backend whose storage is asynchronous; its coroutines run on fsspec's I/O loop."""

    @abstractmethod
    async def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        """Read a file, or its bytes ``[start:end]`` as in a slice.

        ``start`` may be negative (the last bytes) if ``end`` is None; a range past the end is empty. The etag of a
        partial read may be the precondition of further partial reads; for a conditional write read the whole file.

        Raises:
            AgentMemoryFileNotFoundError: no file has this name (it may be a directory).
            ConflictError: ``when`` is an etag and the file is in another state.
            FileTooLargeError: more than ``max_bytes`` would have to be read.
            ReadError: the storage failed.
        """

    @abstractmethod
    async def stat(self, key: Key) -> Entry:
        """Return the size and time of a file, without its content.

        Raises:
            AgentMemoryFileNotFoundError: no file has this name.
            ReadError: the storage failed.
        """

    @abstractmethod
    async def write(self, key: Key, data: bytes, when: WriteWhen = ANY) -> ETag:
        """Replace or create a whole file, with the directories above it, in one atomic step.

        Raises:
            FileAlreadyExistsError: ``ABSENT`` and the file exists; or the name is a directory, or lies
                below a file.
            AgentMemoryFileNotFoundError: ``PRESENT``, and no file has this name.
            ConflictError: ``when`` is an etag and the file is in another state or is gone.
            WriteError: the storage failed; the old state is intact.
            OutcomeUnknownError: the reply was lost, and the outcome could not be determined.
        """

    @abstractmethod
    async def delete(self, key: Key, when: ReadWhen = ANY) -> None:
        """Delete a file, and each directory that becomes empty.

        Raises:
            AgentMemoryFileNotFoundError: no file has this name.
            ConflictError: ``when`` is an etag and the file is in another state.
            WriteError: the storage failed.
        """

    @abstractmethod
    async def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        """Return one page, of at most ``limit`` names, of the names below a prefix (by whole segments).

        A prefix that does not exist gives an empty page. Within a page entries are in the order of their paths' UTF-8
        bytes. With ``recursive=False``: the files of this level, and the directory names. ``after`` is ``next`` of the
        previous page, or None. The pages are not one snapshot; no page comes from a stale cache.

        Raises:
            ReadError: the storage failed.
        """

    async def aclose(self) -> None:
        """Release connections; the backend cannot be used afterwards."""
        return


class BlockingBackend(_Common):
    """The same contract for a storage whose calls block; `Backend` documents each verb.

    Methods are called from any thread, several concurrently.
    """

    @abstractmethod
    def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        """See `Backend.read`."""

    @abstractmethod
    def stat(self, key: Key) -> Entry:
        """See `Backend.stat`."""

    @abstractmethod
    def write(self, key: Key, data: bytes, when: WriteWhen = ANY) -> ETag:
        """See `Backend.write`."""

    @abstractmethod
    def delete(self, key: Key, when: ReadWhen = ANY) -> None:
        """See `Backend.delete`."""

    @abstractmethod
    def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        """See `Backend.list`."""

    def close(self) -> None:
        """Release resources; the backend cannot be used afterwards."""
        return


AnyBackend: TypeAlias = Backend | BlockingBackend
BackendFactory: TypeAlias = Callable[[str, Mapping[str, object]], AnyBackend]
"""Opens a URL with its storage options; refuses unknown options."""


@runtime_checkable
class Appends(Protocol):
    """An optional verb: append in one step, for a storage that needs no read and write of the whole file."""

    def append(
        self, key: Key, data: bytes, *, separator: bytes = b"", when: AppendWhen = ANY, most: int | None = None
    ) -> Appended | Awaitable[Appended]:
        """Append to a file, or create it unless ``when`` is ``PRESENT``, in one atomic step.

        ``separator``, of at most 64 bytes, is inserted before ``data`` if the file is not empty and does not end with
        it; ``most`` is the maximum size of the new file in bytes. Both are checked in the same atomic step.

        Raises:
            AgentMemoryFileNotFoundError: ``PRESENT`` and no file has this name.
            FileAlreadyExistsError: the name is a directory or lies below a file.
            FileTooLargeError: the new file would have more than ``most`` bytes; the old state is intact.
            AppendError: the storage failed; the old state is intact.
        """
        ...


@runtime_checkable
class ChecksCapabilities(Protocol):
    """An optional verb of a backend that must test its server to know its `Capabilities`."""

    def check_capabilities(self, key: Key) -> Capabilities | Awaitable[Capabilities]:
        """Run the tests that were not run yet, with objects beside the key's file, and return the capabilities.

        Every verb does this before it relies on a capability; an operation of several steps does it before the first.

        Raises:
            WriteError: the storage failed.
        """
        ...


@runtime_checkable
class MovesTrees(Protocol):
    """Two optional verbs: move a directory in one step, and delete a directory while no other writer changes it."""

    def move_tree(self, source: Key, target: Key) -> int | Awaitable[int | None] | None:
        """Move a directory to a free name, and return its number of files.

        None means that nothing was done, because one step is not possible here: the directory contains names that are
        not valid keys, and they would be moved too. The caller then moves file by file.

        Raises:
            AgentMemoryFileNotFoundError: no files below that name.
            FileAlreadyExistsError: the new name is taken, or lies below a file.
            InvalidPathError: a file's new name would be invalid; nothing was done.
            WriteError: the storage failed.
        """
        ...

    def delete_tree(self, prefix: Key) -> DeletedTree | Awaitable[DeletedTree]:
        """Delete every file below a prefix; names that are not valid keys are not deleted, only counted.

        Raises:
            PartialOperationError: some files could not be deleted; call it again to continue.
            WriteError: the storage failed.
        """
        ...


@runtime_checkable
class MovesFiles(Protocol):
    """An optional verb: rename a file of any size in one step."""

    def move_file(self, source: Key, target: Key, when: ReadWhen = ANY) -> int | Awaitable[int | None] | None:
        """Move a file to a free name, if it is in the given state, and return the file's size in bytes.

        None means that nothing was done, because one step is not possible here. The caller then copies the file and
        deletes the source.

        Raises:
            AgentMemoryFileNotFoundError: no file has this name (it may be a directory).
            ConflictError: the file is in another state.
            FileAlreadyExistsError: the new name is taken, or lies below a file.
            WriteError: the storage failed; nothing was done.
        """
        ...


class Parts(Protocol):
    """One file that is written in parts; its name shows the old file until `complete` gives it the new content.

    The caller makes one call at a time and ends with `complete` or `abort`. If the process dies before that, the old
    file does not change.
    """

    part_bytes: int
    """The bytes of each `add`; only the last one may have fewer."""

    def add(self, data: bytes) -> Awaitable[None] | None:
        """Add the next bytes.

        Raises:
            WriteError: the storage failed; the caller calls `abort`.
        """
        ...

    def add_copy(self, source: Key, start: int, end: int, etag: ETag) -> bool | Awaitable[bool]:
        """Add the bytes ``[start:end]`` of another file of this backend, without reading them here.

        False means that nothing was added: the storage cannot copy, or the source has another etag than ``etag``.

        Raises:
            WriteError: the storage failed; the caller calls `abort`.
        """
        ...

    def complete(self) -> ETag | Awaitable[ETag]:
        """Make the new file visible in one atomic step, if the precondition still holds; errors as `Backend.write`.

        After an error the caller calls `abort`.
        """
        ...

    def abort(self) -> Awaitable[None] | None:
        """Discard the added bytes; after `complete` has returned, do nothing. Never raises."""
        ...


@runtime_checkable
class WritesInParts(Protocol):
    """An optional verb: write a file of any size in bounded memory."""

    def write_in_parts(self, key: Key, size: int, when: WriteWhen = ANY) -> Parts | Awaitable[Parts]:
        """Begin to write a whole file of exactly ``size`` bytes.

        A precondition that does not hold now may be refused at once; `Parts.complete` makes the final check.

        Raises:
            FileAlreadyExistsError, ConflictError: as `Backend.write`.
            UnsupportedOperationError: this storage cannot write in parts with this precondition.
            WriteError: the storage failed.
        """
        ...


@runtime_checkable
class Erases(Protocol):
    """Optional verbs: erase a file together with everything that the storage keeps of it, or only the latter."""

    def erase(self, prefix: Key) -> DeletedTree | Awaitable[DeletedTree]:
        """Erase the file with this name, and every file below it, with earlier versions and unfinished writes.

        The count includes files deleted earlier, if the storage still kept data of them. It is no error if there are
        none. It returns only after a listing that shows no file.

        Raises:
            PartialOperationError: some files could not be deleted; call it again to continue.
            UnsupportedOperationError: this storage does not tell which data it keeps.
            WriteError: the storage failed, or still lists a file.
        """
        ...

    def erase_earlier(
        self, key: Key, is_meant: Callable[[Key], bool] | None = None
    ) -> int | Awaitable[int | None] | None:
        """Erase what the storage keeps of earlier states of a file and of unfinished writes; the file stays.

        With ``is_meant`` that is done for each name below ``key`` for which it is true, also of deleted files.

        Return the number of earlier states; None if the storage says that it has none, and cannot list them. It is no
        error if there is no file, or nothing to erase.

        Raises:
            UnsupportedOperationError, WriteError: as `erase`.
        """
        ...


@runtime_checkable
class ActsAsAnotherProcess(Protocol):
    """An optional verb, for a backend that lets the changes of one file wait for each other inside the process.

    Such changes never meet on the storage, so tests that race writers need another backend for each of them.
    """

    def as_another_process(self) -> AnyBackend:
        """Return a backend on the same storage that does not wait for this one's changes, as that of another process.

        Do not close the returned backend: it uses the connections of this one.
        """
        ...


@runtime_checkable
class WritesCopies(Protocol):
    """Optional verbs: create a file as a copy of another one of this backend.

    For a storage to which a request may arrive late: the copy of a file that comes back to an earlier name may look
    like the file that was there before, and a late request to delete that one must not delete the copy.
    """

    def write_copy(
        self, key: Key, of: Key, snapshot: Snapshot, origin: NewOrigin | None = None
    ) -> ETag | Awaitable[ETag]:
        """Create a file with the content of another one, as `Backend.write` with ``ABSENT``; ``snapshot`` is its read.

        Raises:
            ConflictError: this content had the name so short a time ago that a late request may still delete it.
        """
        ...

    def write_copy_in_parts(
        self, key: Key, size: int, of: Key, etag: ETag, origin: NewOrigin | None = None
    ) -> Parts | Awaitable[Parts]:
        """Begin to create a file of ``size`` bytes, as `WritesInParts.write_in_parts`; errors as `write_copy`."""
        ...
