"""`ListedPart`: the part of a listing that a caller asks for."""

from __future__ import annotations

from typing import Final, NamedTuple

from agent_memory.backend import Entry


class ListedPart(NamedTuple):
    """The entries of a listing whose names begin with a text, that come after a path, and their maximum number."""

    name_prefix: str = ""
    after: str | None = None
    limit: int | None = None

    def checked(self) -> ListedPart:
        """Return it.

        Raises:
            TypeError: a text is no str.
            ValueError: ``limit`` is not a positive whole number.
        """
        for name, text in (("name_prefix", self.name_prefix), ("after", "" if self.after is None else self.after)):
            if not isinstance(text, str):
                raise TypeError(f"{name} must be a str, not {type(text).__name__}")
        if self.limit is not None:
            checked_count("limit", self.limit)
        return self

    def of(self, entries: tuple[Entry, ...], directory: str) -> tuple[Entry, ...]:
        """Return this part of the entries below a directory; they are in the order of their paths."""
        if self == WHOLE:
            return entries
        begin = f"{directory}/{self.name_prefix}" if directory else self.name_prefix
        found = [e for e in entries if e.path.startswith(begin) and (self.after is None or e.path > self.after)]
        return tuple(found[: self.limit])


def checked_count(name: str, value: object) -> None:
    """Raise `ValueError` unless a value is a positive whole number."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a positive whole number, not {value!r}")


WHOLE: Final = ListedPart()
