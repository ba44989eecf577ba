"""The contract for implementers: five verbs, each atomic on its own; `flows` derives everything else.

A backend author implements `BlockingBackend` or `Backend`, whichever is the storage's honest colour, and
runs `agent_memory.testing.BackendContract` against it. A user never calls a backend. Keys arrive parsed and
confined; nothing here or below validates a name again.

What every backend promises: a reader sees the whole old or the whole new file, never a mixture and never a
gap; a write that returned is durable to the level `Capabilities.durability` states; a write that raised did
not happen, except `OutcomeUnknownError`, which says so. What a storage cannot do is stated in
`Capabilities` and refused with `UnsupportedOperationError`, never imitated by a race.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar, Final, Literal, Protocol, TypeAlias, runtime_checkable

import pluggy

from agent_memory._deadline import Deadline, current_deadline, deadline
from agent_memory._pages import PageBuilder, by_path
from agent_memory._turns import Turns
from agent_memory._uncopied import Uncopied
from agent_memory._values import (
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
from agent_memory._waiting import TryLater, may_try_later, trying_later
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileAlreadyExistsError,
    FileOperationError,
    FileTooLargeError,
    PartialOperationError,
)
from agent_memory.key import Key

__all__ = [
    "ABSENT",
    "ANY",
    "DEFAULT_MAX_BYTES",
    "DEFAULT_PART_BYTES",
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
    "Deadline",
    "DeletedTree",
    "Entry",
    "Erases",
    "Key",
    "MovesFiles",
    "MovesTrees",
    "Page",
    "PageBuilder",
    "Parts",
    "ReadWhen",
    "Snapshot",
    "TryLater",
    "Turns",
    "Uncopied",
    "Version",
    "When",
    "WriteWhen",
    "WritesInParts",
    "by_path",
    "content_sha256",
    "content_version",
    "current_deadline",
    "deadline",
    "digest_version",
    "hookimpl",
    "joined",
    "may_try_later",
    "named",
    "not_found",
    "raise_failures",
    "refuse_larger",
    "refuse_larger_read",
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

    colour: ClassVar[Literal["async"]] = "async"

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

    colour: ClassVar[Literal["blocking"]] = "blocking"

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


_CONTENT = "sha256:"


class ContentVersion(Version):
    """A version that is the content's SHA-256; made by `content_version`."""


def content_version(data: bytes) -> ContentVersion:
    """The version of stores that have none of their own: the content's SHA-256."""
    return digest_version(hashlib.sha256(data).hexdigest())


def digest_version(sha256: str) -> ContentVersion:
    """The `content_version` of the content with this digest, as hexadecimal digits."""
    return ContentVersion(_CONTENT + sha256)


def content_sha256(data: bytes, version: Version) -> str:
    """The digest of what was written, as hexadecimal digits; a `content_version` has it already."""
    if isinstance(version, ContentVersion):
        return version.token.removeprefix(_CONTENT)
    return hashlib.sha256(data).hexdigest()


@contextmanager
def translating(key: Key, error: type[FileOperationError], *foreign: type[Exception]) -> Iterator[None]:
    """Raise a storage's own exceptions as ours; ours pass; see `storage_failure`."""
    try:
        yield
    except AgentMemoryError:
        raise
    except foreign as cause:
        raise storage_failure(key, error, cause) from cause


def storage_failure(key: Key, error: type[FileOperationError], cause: Exception) -> FileOperationError:
    """The error for a storage's own exception, to be raised from it.

    Of a cause only an `OSError`'s ``strerror``, else its type, is told: a message may carry host paths.
    """
    detail = getattr(cause, "strerror", None) or type(cause).__name__
    return error(f"{named(key)}: the storage failed: {detail}")


def raise_failures(entries: Sequence[Entry], errors: Sequence[AgentMemoryError | None]) -> None:
    """Raise for the files of an operation on many that failed, if any: the error itself if no file was done.

    Raises:
        PartialOperationError: some files are done and some are left.
    """
    first = next(filter(None, errors), None)
    if first is None:
        return
    done = tuple(e.path for e, error in zip(entries, errors, strict=True) if error is None)
    left = tuple(e.path for e, error in zip(entries, errors, strict=True) if error is not None)
    if not done:
        raise first
    raise PartialOperationError(f"{len(left)} of {len(entries)} files are left: {first}", done, left) from first


def refuse_larger(key: Key, size: int, limit: int) -> None:
    """Raise `FileTooLargeError` if ``size`` is over ``limit``, both in bytes."""
    if size > limit:
        raise FileTooLargeError(_too_large(key, size, limit))


def refuse_larger_read(key: Key, size: int, limit: int) -> None:
    """The same for a read; the error says what reads a large file."""
    if size > limit:
        raise FileTooLargeError(f"{_too_large(key, size, limit)}; scan(), view and export read a file in parts")


def _too_large(key: Key, size: int, limit: int) -> str:
    return f"{key.path!r}: {size:,} bytes are more than the {limit:,} one call may carry"


def joined(old: bytes, separator: bytes, data: bytes) -> bytes:
    """A file's whole content after an append; ``separator`` goes between, unless it is there or nothing precedes it."""
    return b"".join((old, separator if old and not old.endswith(separator) else b"", data))


def require(key: Key, state: Version | Callable[[], Version] | None, *conditions: When | Version) -> None:
    """Raise unless a file's state meets every precondition; the caller holds whatever keeps that state.

    ``state`` is the file's version, or a function called only to compare it, or None if there is no such file.

    Raises:
        FileAlreadyExistsError: ``ABSENT``, and there is a file.
        AgentMemoryFileNotFoundError: ``PRESENT``, and there is none.
        ConflictError: a version, and the file is in another state or is gone.
    """
    for when in conditions:
        if when is ABSENT and state:
            raise FileAlreadyExistsError(f"{key.path!r}: the file exists")
        if when is PRESENT and not state:
            raise not_found(key)
        if isinstance(when, Version):
            if state is None:
                raise ConflictError(f"{key.path!r}: the file is gone")
            if when != (state if isinstance(state, Version) else state()):
                raise ConflictError(f"{key.path!r}: the file changed since it was read")


def named(key: Key) -> str:
    """What messages call a key: its path, or the tree where it is the root of one."""
    return repr(key.path) if key.path else "the whole tree"


def not_found(key: Key) -> AgentMemoryFileNotFoundError:
    """The error for a name that is no file."""
    return AgentMemoryFileNotFoundError(f"{key.path!r}: no such file")


def taken_name(key: Key) -> FileAlreadyExistsError:
    """The error for a name that is a directory, or that lies below a file."""
    return FileAlreadyExistsError(f"{key.path!r}: the name is a directory, or lies below a file")
