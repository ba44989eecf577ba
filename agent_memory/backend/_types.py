"""The values that backends and flows hand each other; `agent_memory.backend` is where to import them from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, NamedTuple, TypeAlias

from agent_memory.key import Key


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

    ``skipped`` counts names found in storage that the key grammar refuses, that are no regular files, or that are
    directories which may not be opened.
    """

    entries: tuple[Entry, ...]
    directories: tuple[Key, ...] = ()
    next: str | None = None
    skipped: int = 0


class Appended(NamedTuple):
    """What an append made: the file's new size in bytes, and its version where that cost nothing."""

    size: int
    version: Version | None = None


class DeletedTree(NamedTuple):
    """How many files were deleted, and how many names were left because no key can name them."""

    files: int
    skipped: int


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a backend keeps, whoever else writes to the same storage at the same time."""

    atomic_write: bool
    """A reader sees the whole old or the whole new file."""
    atomic_create: bool
    """``write(ABSENT)`` has exactly one winner."""
    compare_and_swap: bool
    """``write(Version)`` never overwrites a state it did not name."""
    conditional_delete: bool
    """``delete(Version)`` never deletes a state it did not name; a rename of a file needs it."""
    durability: Literal["none", "process", "full"]
    """A returned write survives: nothing, a crash of this process, a crash of the machine."""
    exclusive_names: bool
    """A name is never a file and a directory at once, even among racing writers."""
    case_sensitive: bool
    """Names that differ only by case are two files."""
    read_after_write: bool
    """A read or listing that starts after a write returned sees it."""
