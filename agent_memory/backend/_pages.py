"""Pages of listings: `PageBuilder` makes one, and `Markers` detects a listing whose pages never end."""

from __future__ import annotations

from collections.abc import Hashable
from operator import attrgetter

from agent_memory.backend._types import Entry, ETag, Page
from agent_memory.errors import ReadError, WriteError
from agent_memory.key import RESERVED, TEMPORARY_SUFFIX, Key

by_path = attrgetter("key.storage")
"""The sort key of listings: code point order, the same as the order of UTF-8 bytes."""


class PageBuilder:
    """Makes a page from the names that a backend found below a prefix: parses, skips, counts and sorts them.

    Names are relative to the prefix, as stored. This package's own data and temporary files are skipped without
    counting; names that the grammar refuses are skipped and counted. With ``recursive=False`` a file below this level
    adds its directory.
    """

    def __init__(self, prefix: Key, recursive: bool = True) -> None:
        self._prefix = prefix
        self._recursive = recursive
        self._stored = prefix.stored
        self._directories: set[str] = set()
        self._found: list[Entry] = []
        self._add = self._found.append
        self.skipped = 0

    def file(self, name: str, size: int, modified: float, etag: ETag | None = None) -> None:
        """Add a file."""
        if not self._recursive and "/" in name:
            self.directory(name.partition("/")[0])
        elif key := self._stored(name):
            self._add(Entry(key, size, modified, etag))
        else:
            self._count(name)

    def directory(self, name: str) -> None:
        """Add a directory name (for ``recursive=False``); a repeated name is added once."""
        if name not in self._directories:
            self._directories.add(name)
            if key := self._stored(name):
                self._found.append(Entry(key, 0, 0.0, None, True))
            else:
                self._count(name)

    def page(self, after: str | None, limit: int) -> Page:
        """Return at most ``limit`` names after ``after``, for a backend that always finds all names."""
        found = self._found if after is None else [e for e in self._found if e.key.storage > after]
        found = sorted(found, key=by_path)
        more = len(found) > limit
        if after is not None:
            self.skipped = 0  # counted on the first page
        return self._page(found[:limit], found[limit - 1].key.storage if more else None)

    def whole_page(self, next_token: str | None) -> Page:
        """Return all added names, for a storage that makes pages itself."""
        return self._page(sorted(self._found, key=by_path), next_token)

    def _page(self, found: list[Entry], next_token: str | None) -> Page:
        if not self._directories:
            return Page(tuple(found), (), next_token, self.skipped)
        files = tuple([e for e in found if not e.is_directory])
        return Page(files, tuple([e.key for e in found if e.is_directory]), next_token, self.skipped)

    def _count(self, name: str) -> None:
        ours = name.endswith(TEMPORARY_SUFFIX) or (not self._prefix.storage and name.partition("/")[0] == RESERVED)
        self.skipped += not ours


class Markers:
    """The start markers of one listing's pages.

    Args:
        prefix: the listed prefix, for the message.
        error: the class of the error to raise.
    """

    def __init__(self, prefix: Key, error: type[ReadError | WriteError] = ReadError) -> None:
        self._prefix = prefix
        self._error = error
        self._seen: set[Hashable] = set()

    def go_on(self, marker: Hashable) -> None:
        """Record the start of the next page; raise ``error`` if an earlier page had the same start."""
        if marker in self._seen:
            raise self._error("the storage's listing does not advance", path=self._prefix.path)
        self._seen.add(marker)
