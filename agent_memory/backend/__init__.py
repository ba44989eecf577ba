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
from collections.abc import Callable, Mapping
from typing import TypeAlias

import pluggy

from agent_memory.backend._optional import (
    ORIGIN_BYTES,
    ActsAsAnotherProcess,
    Appends,
    ChecksCapabilities,
    Erases,
    MovesFiles,
    MovesTrees,
    NewOrigin,
    Parts,
    WritesCopies,
    WritesInParts,
)
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
    When,
    WriteWhen,
)
from agent_memory.backend._uncopied import Uncopied
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
