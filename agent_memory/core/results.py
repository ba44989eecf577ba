"""The results of the calls that change files, and the part of a listing that a call returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from agent_memory.backend import Entry, ETag


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a writing call.

    Attributes:
        path: the file, relative to its tree.
        size: the file's new size in bytes.
        sha256: the digest of the written bytes, hexadecimal: of the whole file, or of an append the appended bytes;
            "" if an edit deleted the file.
        etag: the file's new etag, for ``when``; None if the storage does not tell it, as local disk after an append.
    """

    path: str
    size: int
    sha256: str
    etag: ETag | None = None


@dataclass(frozen=True, slots=True)
class RecordedResult:
    """The result of an earlier call, as recorded with its idempotency key.

    Attributes:
        path: the file or directory that the call named, relative to the tree.
        existed: whether the file existed before the call; None if the call did not find out, as a write.
        size: the size in bytes that the file had after the call; 0 if the call deleted it.
        sha256: as of `WriteResult`.
        etag: the file's etag after the call; None if the storage did not tell it.
    """

    path: str
    existed: bool | None
    size: int
    sha256: str
    etag: ETag | None


@dataclass(frozen=True, slots=True)
class TreeResult:
    """The result of an operation on one file, or on all files of a directory.

    Attributes:
        path: the file or directory, relative to its tree; for rename and copy the new name.
        files: the number of files.
        skipped: the number of names in storage that were left unchanged because they are not valid keys.
        versions_searched: False if a forget did not look for the storage's own earlier versions, because the storage
            has none: a server that neither lists versions nor keeps them in this bucket.
        versions: the number of earlier versions that a forget erased.
        other_names: those of them that ended under other names of the same files, or of their copies: each name with
            its number.
    """

    path: str
    files: int
    skipped: int
    versions_searched: bool = True
    versions: int = 0
    other_names: tuple[tuple[str, int], ...] = ()


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
