"""`expire`: the deletion of one agent's files that did not change for some time."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, cast

from agent_memory.backend import Backend, Entry, ETag
from agent_memory.backend._pages import by_path
from agent_memory.core.call import Call
from agent_memory.core.flows import Effect
from agent_memory.core.results import checked_count
from agent_memory.core.tree import Tree
from agent_memory.core.tree_flows import AT_ONCE, pages
from agent_memory.errors import (
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileOperationError,
    OperationDenied,
    PartialOperationError,
)
from agent_memory.key import Key
from agent_memory.key.patterns import Segments, matches, require_possible, segments
from agent_memory.runtime.run import Run

MOST_EXPIRED: Final = 10_000
"""The maximum number of files that one call deletes, by default."""


@dataclass(frozen=True, slots=True)
class ExpiredFile:
    """A file that was deleted because of its age, or would be.

    Attributes:
        agent: the agent.
        path: the file.
        size: its bytes.
        modified: when it was changed last, in POSIX seconds by the storage's clock.
    """

    agent: str
    path: str
    size: int
    modified: float


@dataclass(frozen=True)
class Expiry:
    """Which files expire.

    Attributes:
        pattern: the files.
        keep: patterns of files that stay.
        before: the files that were last changed before this time expire, in POSIX seconds.
        limit: the maximum number of files.
    """

    pattern: Segments
    keep: tuple[Segments, ...]
    before: float
    limit: int

    @staticmethod
    def of(pattern: str, older_than: timedelta, keep: Collection[str], limit: int) -> Expiry:
        """Check the arguments of a call.

        Raises:
            ValueError: no path can match a pattern, or the age is not positive.
            TypeError: an argument has another type.
        """
        if not isinstance(older_than, timedelta):
            raise TypeError(f"older_than must be a timedelta, not {type(older_than).__name__}")
        if older_than <= timedelta(0):
            raise ValueError(f"older_than must be positive, not {older_than}")
        if isinstance(keep, str):
            raise TypeError("keep must be a collection of patterns, not a str")
        for each in (pattern, *keep):
            require_possible(each)
        checked_count("limit", limit)
        return Expiry(segments(pattern), tuple(map(segments, keep)), time.time() - older_than.total_seconds(), limit)

    def includes(self, entry: Entry) -> bool:
        """Whether a file expires."""
        path = segments(entry.path)
        return (
            entry.modified < self.before
            and matches(self.pattern, path)
            and not any(matches(pattern, path) for pattern in self.keep)
        )


async def expire(run: Run, tree: Tree, expiry: Expiry, *, dry_run: bool) -> list[Entry]:  # noqa: C901 - nested steps
    """Delete an agent's expired files, each on the condition that it did not change since it was listed.

    A file that changed, is gone, or is protected by a guard stays, and is left out of the result.

    Raises:
        PartialOperationError: the storage failed to delete a file; the others are deleted.
    """
    tried: set[Key] = set()
    ended: list[Entry] = []
    failures: list[FileOperationError] = []

    async def listed(store: Backend, run: Run, c: Call) -> tuple[list[Entry], Effect]:
        found: list[Entry] = []
        async for page in pages(store, run, c.key):
            found += (each for each in page.entries if expiry.includes(each) and each.key not in tried)
            if len(found) >= expiry.limit - len(ended):
                break
        return found[: expiry.limit - len(ended)], Effect(files=len(found))

    async def one(entry: Entry) -> None:
        try:
            if await _deleted(run, tree, entry, expiry):
                ended.append(entry)
        except FileOperationError as error:
            failures.append(error)

    while (wanted := expiry.limit - len(ended)) > 0:
        found = await tree.find(run, "list", "", listed, directory=True)
        if dry_run:
            return found
        tried.update(entry.key for entry in found)
        await run.map(one, found, AT_ONCE)
        if len(found) < wanted:
            break  # the listing was not cut
    if failures:
        done, left = tuple(entry.path for entry in ended), tuple(str(each.path) for each in failures)
        raise PartialOperationError(f"{len(left)} of the expired files not deleted: {failures[0]}", done, left)
    return sorted(ended, key=by_path)


async def _deleted(run: Run, tree: Tree, entry: Entry, expiry: Expiry) -> bool:
    """Delete a file if it did not change; where a listing has no etag, its etag is read before its age."""
    try:
        etag = entry.etag
        if etag is None:
            etag = (await tree.stat(run, entry.path, with_etag=True)).etag
            now = await tree.stat(run, entry.path, with_etag=False)
            if now.modified >= expiry.before:
                return False
        await tree.delete(run, entry.path, cast(ETag, etag))
    except (ConflictError, AgentMemoryFileNotFoundError, OperationDenied):
        return False
    return True
