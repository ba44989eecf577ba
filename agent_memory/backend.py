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
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import pluggy

from agent_memory.errors import FileAlreadyExistsError, FileTooLargeError
from agent_memory.key import RESERVED, TEMPORARY_SUFFIX, Key

PROJECT: Final = "agent_memory"
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a plugin's hooks; a backend's module needs `agent_memory_register_backends` alone."""
DEFAULT_MAX_BYTES: Final = 50_000_000


class When(Enum):
    """The preconditions that need no version."""

    ANY = "any"
    ABSENT = "absent"
    PRESENT = "present"


ANY: Final = When.ANY
ABSENT: Final = When.ABSENT
PRESENT: Final = When.PRESENT


@dataclass(frozen=True)
class Version:
    """An opaque token of one state of one file; only equality means anything.

    A backend may subclass it to carry what it needs along; fields that do not take part in equality are
    declared ``field(compare=False)``.
    """

    token: str


ReadWhen: TypeAlias = Literal[When.ANY] | Version
WriteWhen: TypeAlias = Literal[When.ANY, When.ABSENT] | Version
AppendWhen: TypeAlias = Literal[When.ANY, When.PRESENT]


class Snapshot:
    """What one read saw: ``data``, the whole file's ``size`` in bytes, and its ``version``.

    ``version`` may be given as a function, called once and only if somebody asks.
    """

    __slots__ = ("_version", "data", "size")

    def __init__(self, data: bytes, version: Version | Callable[[], Version], size: int) -> None:
        self.data: Final = data
        self.size: Final = size
        self._version = version

    @property
    def version(self) -> Version:
        """The version of the state this snapshot was taken of."""
        if not isinstance(self._version, Version):
            self._version = self._version()
        return self._version


class Entry(NamedTuple):
    """One file, or with ``is_directory`` one directory name, in a listing; ``str(entry)`` is its path.

    ``size`` is in bytes, ``modified`` in POSIX seconds by the store's clock (0.0 for a directory);
    ``version`` is None where the store does not give it away with a listing. In a listing ``size`` may be of a
    moment within an append; `Backend.stat` and `Backend.read` never are.
    """

    key: Key
    size: int
    modified: float
    version: Version | None = None
    is_directory: bool = False

    @property
    def path(self) -> str:
        """The path within the tree."""
        return self.key.path

    def __str__(self) -> str:
        return self.key.path


class Page(NamedTuple):
    """One page of a listing; ``next`` is the token to go on with, None on the last page.

    ``skipped`` counts names found in storage that the key grammar refuses, or that are no regular files.
    """

    entries: tuple[Entry, ...]
    directories: tuple[Key, ...] = ()
    next: str | None = None
    skipped: int = 0


class Appended(NamedTuple):
    """What an append made: the file's new size in bytes, and its version where that cost nothing."""

    size: int
    version: Version | None = None


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a backend keeps, whoever else writes to the same storage at the same time."""

    atomic_write: bool
    """A reader sees the whole old or the whole new file."""
    atomic_create: bool
    """``write(ABSENT)`` has exactly one winner."""
    compare_and_swap: bool
    """``write(Version)`` and ``delete(Version)`` never overwrite a state they did not name."""
    durability: Literal["none", "process", "full"]
    """A returned write survives: nothing, a crash of this process, a crash of the machine."""
    exclusive_names: bool
    """A name is never a file and a directory at once, even among racing writers."""
    case_sensitive: bool
    """Names that differ only by case are two files."""
    read_after_write: bool
    """A read or listing that starts after a write returned sees it."""


class _Common(ABC):
    max_bytes: int = DEFAULT_MAX_BYTES
    """The most bytes one read or one write carries; a read refuses before it allocates."""
    capabilities: Capabilities
    """What this storage keeps; every backend states it."""


class Backend(_Common):
    """A backend whose storage is asynchronous; its coroutines run on fsspec's I/O loop and nowhere else."""

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
    """An optional verb: append in place, at a cost that does not grow with the file."""

    def append(
        self, key: Key, data: bytes, *, separator: bytes = b"", when: AppendWhen = ANY
    ) -> Appended | Awaitable[Appended]:
        """Append to a file, or create it unless ``when`` is ``PRESENT``, in one atomic step.

        ``separator`` goes in first iff the file is non-empty and does not already end with it, decided in
        the same step.

        Raises:
            AgentMemoryFileNotFoundError: ``PRESENT`` and no file has this name.
            FileAlreadyExistsError: the name is a directory or lies below a file.
            AppendError: the storage failed; the old state is intact.
        """
        ...


def content_version(data: bytes) -> Version:
    """The version of stores that have none of their own: the content's SHA-256."""
    return Version("sha256:" + hashlib.sha256(data).hexdigest())


def refuse_larger(key: Key, size: int, limit: int) -> None:
    """Raise `FileTooLargeError` if ``size`` is over ``limit``, both in bytes."""
    if size > limit:
        raise FileTooLargeError(f"{key.path!r}: {size:,} bytes are more than the {limit:,} one call may carry")


class PageBuilder:
    """Makes a page of the names a backend found below a prefix: parses, skips, counts, orders.

    Names are relative to the prefix, as storage has them. This package's own data and temporary files are
    left out in silence; names the grammar refuses are left out and counted.
    """

    def __init__(self, prefix: Key) -> None:
        self._prefix = prefix
        self._found: list[Entry] = []
        self.skipped = 0

    def file(self, name: str, size: int, modified: float, version: Version | None = None) -> None:
        """Add a file."""
        if key := self._key(name):
            self._found.append(Entry(key, size, modified, version))

    def directory(self, name: str) -> None:
        """Add a directory name (for ``recursive=False``)."""
        if key := self._key(name):
            self._found.append(Entry(key, 0, 0.0, None, True))

    def page(self, after: str | None, limit: int) -> Page:
        """The names after ``after``, cut at ``limit``, of a backend that always finds all of them."""
        found = sorted((e for e in self._found if after is None or e.key.storage > after), key=_order)
        more = len(found) > limit
        if after is not None:
            self.skipped = 0  # counted on the first page
        return self._page(found[:limit], found[limit - 1].key.storage if more else None)

    def whole_page(self, next_token: str | None) -> Page:
        """Everything added, for a storage that pages by itself."""
        return self._page(sorted(self._found, key=_order), next_token)

    def _page(self, found: list[Entry], next_token: str | None) -> Page:
        files = tuple(e for e in found if not e.is_directory)
        return Page(files, tuple(e.key for e in found if e.is_directory), next_token, self.skipped)

    def _key(self, name: str) -> Key | None:
        if name.endswith(TEMPORARY_SUFFIX) or (not self._prefix.storage and name.partition("/")[0] == RESERVED):
            return None
        key = self._prefix.stored(name)
        self.skipped += key is None
        return key


def _order(entry: Entry) -> str:
    return entry.key.storage  # code point order is the order of UTF-8 bytes


def taken_name(key: Key) -> FileAlreadyExistsError:
    """The error for a name that is a directory, or that lies below a file."""
    return FileAlreadyExistsError(f"{key.path!r}: the name is a directory, or lies below a file")
