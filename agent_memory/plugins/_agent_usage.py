"""An upper bound of one agent's files and bytes, from a listing and the operations under way.

The rule: the bound may be too large, never too small. Concurrent operations can take effect in any order. A write, an
append and a copy create files. A rename creates none, but frees its source: an operation that changes a file of the
source may then create a second file.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from agent_memory.backend.helpers import Uncopied
from agent_memory.key import is_at_or_below
from agent_memory.plugins._sizes import LATE_SECONDS


class Planned(NamedTuple):
    """A possible result of an operation under way: the file gets this size, or grows by it if ``added``."""

    path: str
    size: int
    added: bool = False


@dataclass(slots=True)
class PlannedChange:
    """An operation under way.

    ``planned``: the result of a write or an append at ``path``. ``target``, ``copies``: set for a rename or a copy.
    ``seen``: the files below the source at any time since a transfer (rename or copy) began, with their largest sizes.
    ``left``: when the caller gave up without a known result (`time.monotonic`); None while the caller waits.
    """

    path: str
    planned: Planned | None = None
    target: str | None = None
    copies: bool = False
    seen: dict[str, int] = field(default_factory=dict)
    left: float | None = None

    def results(self) -> Iterator[Planned]:
        """The files that this change can create, under their new names."""
        if self.planned is not None:
            yield self.planned
        if self.target is not None:
            for path, size in self.seen.items():
                yield Planned(self.target + path[len(self.path) :], size)

    def touches(self, other: PlannedChange) -> bool:
        """Whether both changes can affect the same file."""
        mine, others = ([name for name in (each.path, each.target) if name is not None] for each in (self, other))
        return any(is_at_or_below(one, two) or is_at_or_below(two, one) for one in mine for two in others)


class AgentUsage(Uncopied):
    """One agent's files with their sizes, and the operations under way that change them."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # reentrant: a signal handler may change files too
        self.users = 0
        self.counted: float | None = None
        self.was_counted = False
        self._sizes: dict[str, int] = {}
        self._uncertain: set[str] = set()  # files that may be smaller or missing
        self._total = 0
        self._under_way: dict[str, PlannedChange] = {}
        self._overlapping: set[str] = set()

    @property
    def is_idle(self) -> bool:
        """Whether a new listing is enough: no operation is under way or can still take effect."""
        latest = time.monotonic() - LATE_SECONDS
        return not self.users and all(each.left is not None and each.left < latest for each in self._under_way.values())

    @property
    def is_changing(self) -> bool:
        """Whether an operation is under way."""
        return bool(self._under_way)

    def count(self, listed: Mapping[str, int], began: float) -> None:
        """Replace the sizes by those of a listing; ``began``: its start (`time.monotonic`).

        A listing can miss a file that is renamed during it, so a file in a transfer keeps at least its known size.
        """
        self._settle(began)
        sizes = dict(listed)
        names = [name for each in self._transfers(self._under_way) for name in (each.path, each.target or "")]
        moving = {path for path in self._sizes if any(is_at_or_below(path, name) for name in names)}
        for path in moving:
            sizes[path] = max(self._sizes[path], sizes.get(path, 0))
        self._sizes, self._total, self._uncertain = sizes, sum(sizes.values()), moving
        self.counted, self.was_counted = time.monotonic(), True

    def _settle(self, now: float) -> None:
        late = [name for name, each in self._under_way.items() if each.left and each.left + LATE_SECONDS < now]
        for name in late:
            self.cancel(name)

    def usage_with(self, change: PlannedChange) -> tuple[int, int]:
        """The most files and bytes after this change and all operations under way."""
        return self._usage(self._with("", change))

    def grows(self, change: PlannedChange, *, by_files: bool) -> bool:
        """Whether a change can create a file (``by_files``) or add bytes; False only if that is certain."""
        others = [each for each in self._under_way.values() if each.touches(change)]
        if change.planned is None or any(each.target is not None for each in others):
            return change.copies or bool(others)
        path, size, added = change.planned
        if path not in self._sizes or path in self._uncertain:
            return by_files or size > 0
        return not by_files and size > (0 if added else self._sizes[path])

    def begin(self, operation: str, change: PlannedChange) -> None:
        """Add an operation that is now under way."""
        for other, each in self._under_way.items():
            if each.touches(change):
                self._overlapping |= {operation, other}
        self._under_way = self._with(operation, change)

    def leave(self, operation: str) -> None:
        """Mark an operation that its caller gave up: it counts until a listing that began `LATE_SECONDS` later."""
        if each := self._under_way.get(operation):
            each.left = time.monotonic()

    def withdraw(self, operation: str) -> None:
        """Remove the change of an operation that will announce a new one."""
        self._under_way.pop(operation, None)

    def cancel(self, operation: str) -> None:
        """Remove an operation that did nothing."""
        self._under_way.pop(operation, None)
        self._overlapping.discard(operation)

    def end(self, operation: str) -> bool:
        """Remove an operation that ended; return whether it was the only one on its files from its begin to its end.

        If another operation touched them, the order is unknown, and until a listing the results count with their
        largest size.
        """
        alone = operation not in self._overlapping
        change = self._under_way.get(operation)
        if change is not None and not alone:
            for plan in list(change.results()):
                self.put(plan.path, _largest(self._sizes.get(plan.path, 0), [plan]))
                self._uncertain.add(plan.path)
        self.cancel(operation)
        return alone

    def put(self, path: str, size: int) -> None:
        """Set the size of a file."""
        self.drop(path)
        self._sizes[path] = size
        self._total += size

    def drop(self, path: str) -> None:
        """Remove a file."""
        self._total -= self._sizes.pop(path, 0)
        self._uncertain.discard(path)

    def rename(self, path: str, target: str) -> None:
        """Rename a file, or all files below a directory."""
        for name in [name for name in self._sizes if is_at_or_below(name, path)]:
            self.put(target + name[len(path) :], self._sizes[name])
            self.drop(name)

    def _usage(self, changes: Mapping[str, PlannedChange]) -> tuple[int, int]:
        files, total = len(self._sizes), self._total
        by_path: dict[str, list[Planned]] = {}
        for change in changes.values():
            for plan in change.results() if change.planned or change.copies else ():
                by_path.setdefault(plan.path, []).append(plan)
        left_free = [each.path for each in self._transfers(changes) if not each.copies]
        for path, plans in by_path.items():
            if any(is_at_or_below(path, source) for source in left_free):
                files += len(plans)
                total += sum(plan.size for plan in plans)
            else:
                known = self._sizes.get(path)
                files += known is None
                total += _largest(known or 0, plans) - (known or 0)
        return files, total

    def _with(self, operation: str, change: PlannedChange) -> dict[str, PlannedChange]:
        """The operations under way and this change; ``seen`` of each transfer includes the results of the others."""
        changes = {name: replace(each, seen=dict(each.seen)) for name, each in self._under_way.items()}
        changes[operation] = change = replace(change)
        transfers = list(self._transfers(changes))
        for _ in transfers:  # one file can pass through all transfers
            for each in transfers:
                others = [other for other in changes.values() if other is not each]
                for path, size in self._below(each.path, others).items():
                    each.seen[path] = max(size, each.seen.get(path, 0))
        return changes

    def _below(self, source: str, changes: Iterable[PlannedChange]) -> dict[str, int]:
        """The files at and below a path, with the largest size that these changes can give them."""
        plans: dict[str, list[Planned]] = {name: [] for name in self._sizes if is_at_or_below(name, source)}
        for change in changes:
            for plan in change.results():
                if is_at_or_below(plan.path, source):
                    plans.setdefault(plan.path, []).append(plan)
        return {path: _largest(self._sizes.get(path, 0), found) for path, found in plans.items()}

    @staticmethod
    def _transfers(changes: Mapping[str, PlannedChange]) -> Iterator[PlannedChange]:
        return (each for each in changes.values() if each.target is not None)


def _largest(known: int, plans: Iterable[Planned]) -> int:
    """The largest size of a file of a known size after these plans, in any order."""
    whole, added = known, 0
    for plan in plans:
        whole, added = (whole, added + plan.size) if plan.added else (max(whole, plan.size), added)
    return whole + added
