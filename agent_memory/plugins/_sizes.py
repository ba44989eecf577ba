"""An upper bound of the size of each file, from the operations of a service, without requests of its own.

The rule: a bound may be too large, never too small. Concurrent changes of one file can take effect in any order, so the
bound is the largest size that any order can produce. A change without a known result stays in the bound: its request
may still take effect. Only an observation (a read, a stat, a delete) that began after the last change ended lowers a
bound.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from agent_memory.backend.helpers import Uncopied
from agent_memory.hookspecs import WRITING, Operation, Outcome
from agent_memory.key import is_at_or_below

LATE_SECONDS: Final = 60.0
"""The time in which a change can still take effect after its caller gave up: a sent request cannot be revoked."""
_REMEMBERED = 10_000
_BUCKETS: Final = 1 << 16
_SEEING: Final = frozenset({"read", "stat", "exists"})
_MOVING: Final = frozenset({"rename", "copy"})
_REMOVING: Final = frozenset({"delete", "delete_tree", "forget"})
_NOTHING_MADE: Final = frozenset({"file_not_found", "file_exists", "invalid_path", "interrupted"})
File: TypeAlias = tuple[str | None, str]


class Known(NamedTuple):
    """The largest size of a file without the changes under way; ``changed``: when its last change ended."""

    size: int
    changed: float


@dataclass(slots=True)
class SizeChange:
    """A change under way: the file gets this size, or grows by it if ``added``.

    ``alone``: no other change or transfer of the file was under way at the same time. ``left``: when the caller gave up
    without a known result (`time.monotonic`); None while the caller waits.
    """

    size: int
    added: bool
    alone: bool
    left: float | None = None


class FileSizes(Uncopied):
    """The bounds of all files of a service; thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: OrderedDict[File, Known] = OrderedDict()
        self._changes: dict[File, dict[str, SizeChange]] = {}
        self._began: dict[str, float] = {}
        self._transfers: dict[str, tuple[File, File]] = {}
        self._lowered: dict[str, dict[File, int]] = {}  # by transfer: sources whose bounds fell while it was under way
        self._evicted: dict[int, int] = {}  # the largest evicted bound of each hash bucket: bounded in size
        self._last_evicted = 0.0
        self._lock = threading.RLock()  # reentrant: a signal handler may change files too

    def begin_in_child(self) -> None:
        """Reset after a fork: changes under way belong to the parent, and count as made."""
        self._lock = threading.RLock()
        transferred = [new for files in self._transfers.values() for _, new in self._images(*files)]
        for file in [*self._changes, *transferred]:
            self._known[file] = Known(self._largest(file), time.monotonic())
        self._changes, self._transfers, self._lowered, self._began = {}, {}, {}, {}

    def begin(self, operation: Operation) -> None:
        """Note an operation that is now under way."""
        with self._lock:
            self._began.setdefault(operation.id, time.monotonic())  # an edit that deletes its file begins twice
            if operation.kind in _MOVING:
                agent = operation.agent
                source, target = (agent, operation.path), (agent, operation.target or "")
                for file, changes in self._changes.items():
                    if _is_at_or_below(file, source) or _is_at_or_below(file, target):
                        _set_not_alone(changes)
                self._transfers[operation.id] = source, target

    def excess(self, operation: Operation, size: int) -> int | None:
        """The largest possible size after a change if it exceeds the limit; else None, and the change is under way."""
        file, added = (operation.agent, operation.path), operation.kind == "append"
        with self._lock:
            self._withdraw(file, operation.id)  # an earlier attempt of the same edit
            self._settle(file)
            changes = self._changes.get(file, {})
            most = size + (self._largest(file) if added else _sum_added(changes.values()))
            if most > self._limit:
                return most
            _set_not_alone(changes)
            alone = not changes and not any(
                _is_at_or_below(file, name) for names in self._transfers.values() for name in names
            )
            self._changes.setdefault(file, {})[operation.id] = SizeChange(size, added, alone)
        return None

    def follow(self, operation: Operation, outcome: Outcome) -> None:
        """Update the bounds after an operation."""
        file = operation.agent, operation.path
        with self._lock:
            began = self._began.get(operation.id, 0.0)
            if operation.kind in _MOVING:
                self._transfer(operation, outcome, began)
            elif change := self._changes.get(file, {}).get(operation.id):
                self._end(file, operation.id, change, outcome)
            elif operation.kind in _REMOVING and outcome.status == "ok":
                self._observe([file] if operation.kind == "delete" else self._at_or_below(*file), 0, began)
            elif operation.kind in _SEEING | WRITING and outcome.status == "ok" and outcome.size is not None:
                self._observe([file], outcome.size, began)
            elif operation.kind in _SEEING | {"edit", "delete"} and _is_missing(operation, outcome):
                self._observe([file], 0, began)
            self._lowered.pop(operation.id, None)
            self._transfers.pop(operation.id, None)  # last, so that an interrupt only leaves bounds too large
            self._began.pop(operation.id, None)

    def _end(self, file: File, operation: str, change: SizeChange, outcome: Outcome) -> None:
        if unknown(outcome):
            change.left = time.monotonic()
            return
        if outcome.status == "ok" and outcome.size is not None:
            whole = outcome.size if change.alone else self._after(file, change)
            self._keep_for_transfers(file)
            self._learn(file, whole, time.monotonic())
        self._withdraw(file, operation)

    def _after(self, file: File, change: SizeChange) -> int:
        wholes = [each.size for each in self._changes[file].values() if not each.added]
        wholes += self._transferred(file, frozenset({file}))
        return max(self._floor(file), *wholes, 0) + (change.size if change.added else 0)

    def _observe(self, files: Iterable[File], size: int, began: float) -> None:
        for file in files:
            changed = self._changed(file)
            if began <= changed:
                continue
            self._keep_for_transfers(file)
            self._settle(file, began)
            self._learn(file, size, changed)

    def _keep_for_transfers(self, file: File) -> None:
        """Save a bound before it falls: a transfer under way may have read the file while it was larger."""
        for name, (source, _) in self._transfers.items():
            if _is_at_or_below(file, source):
                lowered = self._lowered.setdefault(name, {})
                lowered[file] = max(self._largest(file), lowered.get(file, 0))

    def _settle(self, file: File, now: float | None = None) -> None:
        """Count abandoned changes as made once they can no longer take effect."""
        limit = (time.monotonic() if now is None else now) - LATE_SECONDS
        for name, change in list(self._changes.get(file, {}).items()):
            if change.left is not None and change.left < limit:
                self._learn(file, self._after(file, change), max(self._changed(file), change.left + LATE_SECONDS))
                self._withdraw(file, name)

    def _transfer(self, operation: Operation, outcome: Outcome, began: float) -> None:
        if outcome.status == "denied" or (outcome.status == "error" and outcome.error in _NOTHING_MADE):
            return
        done = outcome.status == "ok"
        agent, target = operation.agent, operation.target or ""
        for file, new in self._images((agent, operation.path), (agent, target)):
            size = max(self._moved_size(file, outcome, began), self._lowered_by(operation.id, file))
            fresh = done and began > self._changed(new)
            self._learn(new, size if fresh else max(size, self._floor(new)), time.monotonic())
            if not done:
                late = SizeChange(size, added=False, alone=False, left=time.monotonic())
                self._changes.setdefault(new, {})[operation.id] = late
            elif operation.kind == "rename":
                self._observe([file], 0, began)

    def _lowered_by(self, transfer: str, file: File) -> int:
        return self._lowered.get(transfer, {}).get(file, 0)

    def _moved_size(self, file: File, outcome: Outcome, began: float) -> int:
        """The largest size that a file can have had while it was moved or copied."""
        if outcome.status == "ok" and outcome.size is not None:
            return outcome.size
        size = self._largest(file)
        return size if began > self._changed(file) else max(size, self._limit)

    def _images(self, source: File, target: File) -> list[tuple[File, File]]:
        """The files that can be at and below a path, each with its path after a transfer."""
        names = {*self._known, *self._changes}
        for _ in self._transfers:  # each takes effect at most once, in any order
            for old, new in self._transfers.values():
                names |= {_image(file, old, new) for file in names if _is_at_or_below(file, old)}
        names.add(source)
        return [(file, _image(file, source, target)) for file in names if _is_at_or_below(file, source)]

    def _largest(self, file: File, seen: frozenset[File] = frozenset()) -> int:
        if file in seen:
            return self._limit  # the transfers form a cycle
        changes = self._changes.get(file, {}).values()
        wholes = [each.size for each in changes if not each.added]
        wholes += self._transferred(file, seen | {file})
        return max(self._floor(file), *wholes, 0) + _sum_added(changes)

    def _transferred(self, file: File, seen: frozenset[File]) -> Iterator[int]:
        """The sizes that transfers under way can give a file."""
        for name, (source, target) in self._transfers.items():
            if _is_at_or_below(file, target):
                original = _image(file, target, source)
                size = max(self._largest(original, seen), self._lowered_by(name, original))
                yield size if self._began.get(name, 0.0) > self._changed(original) else max(size, self._limit)

    def _floor(self, file: File) -> int:
        known = self._known.get(file)
        return self._evicted.get(hash(file) % _BUCKETS, 0) if known is None else known.size

    def _changed(self, file: File) -> float:
        known = self._known.get(file)
        return self._last_evicted if known is None else known.changed

    def _learn(self, file: File, size: int, changed: float) -> None:
        self._known[file] = Known(size, changed)
        self._known.move_to_end(file)
        if len(self._known) > _REMEMBERED:
            oldest, known = next(iter(self._known.items()))
            bucket = hash(oldest) % _BUCKETS
            self._evicted[bucket] = max(known.size, self._evicted.get(bucket, 0))
            self._last_evicted = max(known.changed, self._last_evicted)
            self._known.pop(oldest, None)

    def _withdraw(self, file: File, operation: str) -> None:
        changes = self._changes.get(file, {})
        changes.pop(operation, None)
        if not changes:
            self._changes.pop(file, None)

    def _at_or_below(self, agent: str | None, path: str) -> list[File]:
        below = path + "/" if path else ""
        files = {**self._known, **self._changes}
        found = [file for file in files if file[0] == agent and file[1].startswith(below)]
        return [(agent, path), *found] if path else found


def unknown(outcome: Outcome) -> bool:
    """Whether the outcome leaves open that the change took effect.

    Exceptions of other packages leave it open too: for them ``error`` is a class name, for those of this package it
    is a kind in lower case.
    """
    return outcome.status == "unknown" or (outcome.status == "error" and not (outcome.error or "").islower())


def _set_not_alone(changes: Mapping[str, SizeChange]) -> None:
    for each in changes.values():
        each.alone = False


def _is_at_or_below(file: File, directory: File) -> bool:
    return file[0] == directory[0] and is_at_or_below(file[1], directory[1])


def _image(file: File, source: File, target: File) -> File:
    """The name of a file at or below ``source`` after a transfer to ``target``."""
    return target[0], target[1] + file[1][len(source[1]) :]


def _is_missing(operation: Operation, outcome: Outcome) -> bool:
    seen_by_exists = operation.kind == "exists" and outcome.status == "ok" and outcome.size is None
    return seen_by_exists or (outcome.status == "error" and outcome.error == "file_not_found")


def _sum_added(changes: Iterable[SizeChange]) -> int:
    return sum(each.size for each in changes if each.added)
