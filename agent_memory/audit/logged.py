"""`LoggedFile`: what the records of an audit log tell of one file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

SKEW_SECONDS: Final = 2.0
"""The difference between the clocks of writers that is allowed for, in seconds."""
MOVED: Final = "it changed while it was moved"
"""The doubt about the content of a file that certainly exists."""
_IN_ONE_PIECE: Final = 100
_MOST_PLACES: Final = 16
BEGINNING: Final = ""
"""The digest of an empty content that an append certainly followed."""
Place: TypeAlias = tuple[float, float, str]


class Ran(NamedTuple):
    """When an operation ran, in POSIX seconds, and the writer of its record.

    A move of the file takes its place in the order; ``before`` has the earlier places, the newest first.
    """

    start: float
    end: float
    writer: str
    before: tuple[Place, ...] = ()

    def moved(self, move: Ran) -> Ran:
        """The place in the order after a move of the file."""
        return move._replace(before=(self[:3], *self.before)[:_MOST_PLACES])

    def may_follow(self, other: Ran) -> bool:
        """Whether this operation may have happened after another one whose record is in front of it in the order."""
        for own, its in zip((self[:3], *self.before), (other[:3], *other.before), strict=False):
            if own != its:  # after the moves that both files had
                return own[1] + (0.0 if own[2] == its[2] else SKEW_SECONDS) > its[0]
        return True


class Whole(NamedTuple):
    """A whole content that a file may have: its bytes and digest; no size if the file may not exist.

    ``salt`` is the SHA-256 of the salt of the digest; None if the record does not tell.
    """

    when: Ran
    size: int | None
    digest: str | None = None
    salt: str | None = None

    def begun(self) -> Whole:
        """The content if the file exists: after a removal, empty until the append that created it again."""
        return Whole(self.when, 0, BEGINNING) if self.size is None else self


NEVER: Final = Ran(0.0, 0.0, "")
"""The place of the state before all records."""


class LoggedAppend(NamedTuple):
    """An append: the size of the file afterwards, and the digest of the appended bytes."""

    when: Ran
    size: int
    given: int
    digest: str | None
    salt: str | None


class LoggedFile:
    """What the records tell of one file.

    Attributes:
        wholes: the whole contents that it may have had last, in the order of the operations.
        appends: the appends that may have followed.
        doubt: why the records do not tell the content; "" if they do.
    """

    __slots__ = ("_doubted", "appends", "doubt", "wholes")

    def __init__(self) -> None:
        self.wholes: list[Whole] = []
        self.appends: list[LoggedAppend] = []
        self.doubt = ""
        self._doubted: Ran | None = None

    def set(self, whole: Whole) -> None:
        """Take a whole content; earlier ones stay only if they may have been written later."""
        if self._begin_with(whole.when):
            self.wholes.append(whole)

    def take(self, other: LoggedFile, when: Ran, *, existed: bool) -> None:
        """Take the contents of another file that was moved or copied here; ``existed``: that file certainly existed."""
        wholes = other.wholes or ([] if other.doubt else [Whole(NEVER, None)])
        if existed:
            wholes = [each.begun() for each in wholes if each.size is not None or other.appends]
        appends, doubt = other.appends, other.doubt or (MOVED if other.latest > when.start else "")
        if self._begin_with(when) if existed else not self._is_replaced(when):
            self.wholes += [each._replace(when=each.when.moved(when)) for each in wholes]
            self.appends += [each._replace(when=each.when.moved(when)) for each in appends]
            if doubt:
                self.doubt, self._doubted = doubt, when

    def question(self, why: str, when: Ran) -> None:
        """Doubt the content after an operation with an unknown result; a whole content written later is no doubt."""
        if not self._is_replaced(when):
            self.doubt, self._doubted = why, when

    def _begin_with(self, when: Ran) -> bool:
        """Drop what was certainly before an operation; False if a whole content was certainly written after it."""
        if self._is_replaced(when):
            return False
        self.wholes = [each for each in self.wholes if each.when.may_follow(when)]
        self.appends = [each for each in self.appends if each.when.may_follow(when)]
        if self._doubted is None or not self._doubted.may_follow(when):
            self.doubt, self._doubted = "", None
        return True

    def append(self, append: LoggedAppend) -> None:
        """Take an append, unless a whole content was certainly written later."""
        if not self._is_replaced(append.when):
            self.appends.append(append)

    def _is_replaced(self, when: Ran) -> bool:
        """Whether a whole content was certainly written after an operation: its record came late."""
        return any(not when.may_follow(each.when) for each in self.wholes)

    @property
    def latest(self) -> float:
        """When the last operation on it ended, in POSIX seconds."""
        ends = [each.when.end for each in self.wholes] + [each.when.end for each in self.appends]
        return max(ends, default=0.0)

    def encoded(self, *, is_interrupted: bool) -> Iterator[Sequence[Any]]:
        """The state as a base stores it, in pieces, because a record of a base is one line."""
        doubt = self.doubt or ("an operation on it was interrupted" if is_interrupted else "")
        yield doubt, self.wholes, self.appends[:_IN_ONE_PIECE]
        for at in range(_IN_ONE_PIECE, len(self.appends), _IN_ONE_PIECE):
            yield doubt, [], self.appends[at : at + _IN_ONE_PIECE]

    @property
    def exists(self) -> bool:
        """Whether the file must exist."""
        is_known = self.doubt in ("", MOVED) and bool(self.appends or self.wholes)
        return is_known and all(each.size is not None for each in self.wholes)

    @property
    def may_exist(self) -> bool:
        """Whether the file may exist."""
        return bool(self.doubt or self.appends) or any(each.size is not None for each in self.wholes)
