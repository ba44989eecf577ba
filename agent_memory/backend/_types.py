"""The values that backends and flows exchange, exported by `agent_memory.backend`, and `Uncopied`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, NoReturn, SupportsIndex, TypeAlias

from agent_memory.key import Key


class When(Enum):
    """The preconditions without an etag."""

    ANY = "any"
    ABSENT = "absent"
    PRESENT = "present"


ANY: Final = When.ANY
ABSENT: Final = When.ABSENT
PRESENT: Final = When.PRESENT


@dataclass(frozen=True, eq=False)
class ETag:
    """An opaque token of one state of one file; two etags are equal if their tokens are.

    A backend may add fields in a subclass, declared with ``@dataclass(frozen=True, eq=False)``.
    """

    token: str

    def __post_init__(self) -> None:
        if not isinstance(self.token, str):
            raise TypeError(f"the token of an etag is a str, not {type(self.token).__name__}")

    def __eq__(self, other: object) -> bool:
        return self.token == other.token if isinstance(other, ETag) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.token)


ReadWhen: TypeAlias = Literal[When.ANY] | ETag
WriteWhen: TypeAlias = When | ETag
AppendWhen: TypeAlias = Literal[When.ANY, When.PRESENT]


class Snapshot:
    """The result of one read: ``data``, the whole file's ``size`` in bytes, its ``etag`` and its ``origin``.

    ``etag`` may be given as a function; it is called at most once, when the etag is first read. ``origin`` is None if
    the state has none, or if the backend keeps none (`Backend.keeps_origins`).
    """

    __slots__ = ("_etag", "data", "origin", "size")

    def __init__(self, data: bytes, etag: ETag | Callable[[], ETag], size: int, origin: str | None = None) -> None:
        self.data: Final = data
        self.size: Final = size
        self.origin: Final = origin
        self._etag = etag

    @property
    def etag(self) -> ETag:
        """The etag of the state that was read."""
        if not isinstance(self._etag, ETag):
            self._etag = self._etag()
        return self._etag


@dataclass(frozen=True, slots=True)
class Entry:
    """One file in a listing, or one directory name if ``is_directory``; ``str(entry)`` is its path.

    ``size`` is in bytes, ``modified`` in POSIX seconds by the store's clock (0.0 for a directory);
    ``etag`` is None if the store's listings do not include it. In a listing, ``size`` may be that of an unfinished
    append; in `Backend.stat` and `Backend.read` it never is.
    """

    key: Key
    size: int
    modified: float
    etag: ETag | None = None
    is_directory: bool = False

    @property
    def path(self) -> str:
        """The path within the tree."""
        return self.key.path

    def __str__(self) -> str:
        return self.key.path


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing; ``next`` is the token of the next page, None on the last page.

    ``skipped`` is the number of names in storage that are not valid keys, not regular files, or directories without
    permission to open them.
    """

    entries: tuple[Entry, ...]
    directories: tuple[Key, ...] = ()
    next: str | None = None
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class Appended:
    """The result of an append: the file's new size in bytes, and its etag if known without extra cost.

    ``origin`` is the one that the file has now, if the append was given an origin; None if it has none, or if that is
    unknown.
    """

    size: int
    etag: ETag | None = None
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class DeletedTree:
    """The number of deleted files, and of names left in place because they are not valid keys.

    ``versions_searched``: False if an erasing did not look for earlier versions, because the storage says it has none.
    """

    files: int
    skipped: int
    versions_searched: bool = True


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """The guarantees of a backend, also while other processes write to the same storage."""

    atomic_write: bool
    """A reader sees the whole old or the whole new file."""
    atomic_create: bool
    """``write(ABSENT)`` has exactly one winner."""
    compare_and_swap: bool
    """``write(ETag)`` never overwrites another state than this etag."""
    conditional_delete: bool
    """``delete(ETag)`` never deletes another state than this etag; renaming a file needs it."""
    durability: Literal["none", "process", "full"]
    """A returned write survives no crash ("none"), a crash of this process ("process"), or of the machine ("full")."""
    exclusive_names: bool
    """A name is never a file and a directory at once, even with concurrent writers."""
    case_sensitive: bool
    """Names that differ only by case are two files."""
    read_after_write: bool
    """A read or listing that starts after a write has returned sees that write."""


class Uncopied:
    """Base of classes whose instances cannot be copied or pickled.

    A copy would own the same descriptor a second time: when one of the two is closed, the descriptor of the other is
    closed too. A class that only leads to such an instance does not need this base, because a deep copy or a pickle
    ends at that instance, unless the class has a finaliser.
    """

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:  # copy, deepcopy and pickle all call it
        kind = type(self).__name__
        raise TypeError(f"{kind} cannot be pickled or copied, because it holds open storage: create a new one instead")
