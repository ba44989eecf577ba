"""`LoggedFile`: what the records of an audit log tell of one file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

SKEW_SECONDS: Final = 2.0
"""The difference between the clocks of writers that is allowed for, in seconds."""
_IN_ONE_PIECE: Final = 100


class Ran(NamedTuple):
    """When an operation ran, in POSIX seconds, and the writer of its record."""

    start: float
    end: float
    writer: str

    def may_follow(self, other: Ran) -> bool:
        """Whether this operation may have happened after another one whose record is in front of it in the order."""
        return self.end + (0.0 if self.writer == other.writer else SKEW_SECONDS) > other.start


class Whole(NamedTuple):
    """A whole content that a file may have: its bytes and digest; no size if the file may not exist.

    ``salt`` is the SHA-256 of the salt of the digest; None if the record does not tell.
    """

    when: Ran
    size: int | None
    digest: str | None = None
    salt: str | None = None


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

    __slots__ = ("appends", "doubt", "wholes")

    def __init__(self) -> None:
        self.wholes: list[Whole] = []
        self.appends: list[LoggedAppend] = []
        self.doubt = ""

    def set(self, whole: Whole) -> None:
        """Take a whole content; earlier ones stay only if they may have been written later."""
        if self._is_replaced(whole.when):
            return
        self.wholes = [each for each in self.wholes if each.when.may_follow(whole.when)] + [whole]
        self.appends = [each for each in self.appends if each.when.may_follow(whole.when)]
        self.doubt = ""

    def append(self, append: LoggedAppend) -> None:
        """Take an append, unless a whole content was certainly written later."""
        if not self._is_replaced(append.when):
            self.appends.append(append)

    def _is_replaced(self, when: Ran) -> bool:
        """Whether a whole content was certainly written after an operation: its record came late."""
        return any(not when.may_follow(each.when) for each in self.wholes)

    def copied(self, when: Ran) -> LoggedFile:
        """The state of a copy, or of the file under a new name."""
        state = LoggedFile()
        state.wholes = [each._replace(when=when) for each in self.wholes]
        state.appends = [each._replace(when=when) for each in self.appends]
        state.doubt = self.doubt or ("it changed while it was moved" if self.latest > when.start else "")
        return state

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
        return (
            not self.doubt and bool(self.appends or self.wholes) and all(each.size is not None for each in self.wholes)
        )

    @property
    def may_exist(self) -> bool:
        """Whether the file may exist."""
        return bool(self.doubt or self.appends) or any(each.size is not None for each in self.wholes)
