"""The contract for implementers: five verbs, each atomic on its own; `flows` derives everything else.

A backend author implements `BlockingBackend` or `Backend`, as the storage's own calls are, and
runs `agent_memory.testing.BackendContract` against it. A user never calls a backend. Keys arrive parsed and
confined; nothing here or below validates a name again.

What every backend promises: a reader sees the whole old or the whole new file, never a mixture and never a
gap; a write that returned is durable to the level `Capabilities.durability` states; a write that raised did
not happen, except `OutcomeUnknownError`, which says so. What a storage cannot do is stated in
`Capabilities` and refused with `UnsupportedOperationError`, never imitated by a race.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import pluggy

from agent_memory.backend._deadline import (
    DEFAULT_SECONDS,
    Deadline,
    current_deadline,
    deadline_or_default,
    deadline_scope,
    default_seconds,
    renewed_deadline,
)
from agent_memory.backend._helpers import (
    ContentVersion,
    content_sha256,
    content_version,
    digest_version,
    joined,
    named,
    not_found,
    raise_failures,
    refuse_larger,
    refuse_larger_read,
    require,
    storage_failure,
    taken_name,
    translating,
)
from agent_memory.backend._markers import Markers
from agent_memory.backend._optional import (
    Appends,
    ChecksCapabilities,
    Erases,
    MovesFiles,
    MovesTrees,
    Parts,
    WritesInParts,
)
from agent_memory.backend._pages import PageBuilder, by_path
from agent_memory.backend._try_later import TryLater, may_try_later, trying_later
from agent_memory.backend._types import (
    ABSENT,
    ANY,
    PRESENT,
    Appended,
    AppendWhen,
    Capabilities,
    DeletedTree,
    Entry,
    Page,
    ReadWhen,
    Snapshot,
    Version,
    When,
    WriteWhen,
)
from agent_memory.backend._uncopied import Uncopied
from agent_memory.key import Key

__all__ = [
    "ABSENT",
    "ANY",
    "DEFAULT_MAX_BYTES",
    "DEFAULT_PART_BYTES",
    "DEFAULT_SECONDS",
    "PRESENT",
    "PROJECT",
    "AnyBackend",
    "AppendWhen",
    "Appended",
    "Appends",
    "Backend",
    "BackendFactory",
    "BlockingBackend",
    "Capabilities",
    "ChecksCapabilities",
    "ContentVersion",
    "Deadline",
    "DeletedTree",
    "Entry",
    "Erases",
    "Key",
    "Markers",
    "MovesFiles",
    "MovesTrees",
    "Page",
    "PageBuilder",
    "Parts",
    "ReadWhen",
    "Snapshot",
    "TryLater",
    "Uncopied",
    "Version",
    "When",
    "WriteWhen",
    "WritesInParts",
    "by_path",
    "content_sha256",
    "content_version",
    "current_deadline",
    "deadline_or_default",
    "deadline_scope",
    "default_seconds",
    "digest_version",
    "hookimpl",
    "joined",
    "may_try_later",
    "named",
    "not_found",
    "raise_failures",
    "refuse_larger",
    "refuse_larger_read",
    "renewed_deadline",
    "require",
    "storage_failure",
    "taken_name",
    "translating",
    "trying_later",
]

PROJECT: Final = "agent_memory"
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a plugin's hooks; a backend's module needs `agent_memory_register_backends` alone."""
DEFAULT_MAX_BYTES: Final = 50_000_000
DEFAULT_PART_BYTES: Final = 5 << 20


class _Common(Uncopied, ABC):
    max_bytes: int = DEFAULT_MAX_BYTES
    """The most bytes one read or one write carries; a read refuses before it allocates."""
    part_bytes: int = DEFAULT_PART_BYTES
    """How many bytes a part has, where a file is written in parts (`WritesInParts`)."""
    timeout: float | None = None
    """Seconds an operation on one file has if its caller says nothing; None: as many as it takes."""
    capabilities: Capabilities
    """What this storage keeps; every backend states it."""


class Backend(_Common):
    """A backend whose storage is asynchronous; its coroutines run on fsspec's I/O loop."""

    @abstractmethod
    async def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        """Read a file, or the bytes ``[start:end]`` of it as a slice would.

        ``start`` may be negative (the last bytes), then without ``end``; a range past the end is empty. The
        version of a partial read pins further partial reads; to write conditionally, read the whole file.

        Raises:
            AgentMemoryFileNotFoundError: no file has this name (a directory is no file).
            ConflictError: ``when`` is a version and the file is in another state.
            FileTooLargeError: more than ``max_bytes`` would have to be read.
            ReadError: the storage failed.
        """

    @abstractmethod
    async def stat(self, key: Key) -> Entry:
        """Size and time of a file, without its content.

        Raises:
            AgentMemoryFileNotFoundError: no file has this name.
            ReadError: the storage failed.
        """

    @abstractmethod
    async def write(self, key: Key, data: bytes, when: WriteWhen = ANY) -> Version:
        """Replace or create a whole file, with the directories above it, in one atomic step.

        Raises:
            FileAlreadyExistsError: ``ABSENT`` and the file exists; or the name is a directory, or lies
                below a file.
            ConflictError: ``when`` is a version and the file is in another state or is gone.
            WriteError: the storage failed; the old state is intact.
            OutcomeUnknownError: the reply was lost and could not be settled.
        """

    @abstractmethod
    async def delete(self, key: Key, when: ReadWhen = ANY) -> None:
        """Delete a file; a directory emptied by it is gone too.

        Raises:
            AgentMemoryFileNotFoundError: no file has this name.
            ConflictError: ``when`` is a version and the file is in another state.
            WriteError: the storage failed.
        """

    @abstractmethod
    async def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        """One page, of at most ``limit`` names, of what lies below a prefix, by whole segments.

        A prefix that does not exist is empty. Within a page entries are in the order of their paths' UTF-8
        bytes. With ``recursive=False``: this level's files, and the directory names. ``after`` is the
        ``next`` of the page before, or None. Pages are no snapshot and never come from a stale cache.

        Raises:
            ReadError: the storage failed.
        """

    async def aclose(self) -> None:
        """Release connections; the backend is not used again."""
        return


class BlockingBackend(_Common):
    """The same contract for a storage whose calls block; see `Backend` for what each verb promises.

    Methods are called from any thread, several at a time.
    """

    @abstractmethod
    def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot: ...

    @abstractmethod
    def stat(self, key: Key) -> Entry: ...

    @abstractmethod
    def write(self, key: Key, data: bytes, when: WriteWhen = ANY) -> Version: ...

    @abstractmethod
    def delete(self, key: Key, when: ReadWhen = ANY) -> None: ...

    @abstractmethod
    def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page: ...

    def close(self) -> None:
        """Release what is held; the backend is not used again."""
        return


AnyBackend: TypeAlias = Backend | BlockingBackend
BackendFactory: TypeAlias = Callable[[str, Mapping[str, object]], AnyBackend]
"""Opens a URL with its storage options; refuses options it does not know."""
