"""Gives files a time to live by pattern: an expired file is deleted by an operation, with its hooks and versions."""

from __future__ import annotations

import hashlib
import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from agent_memory.backend import Entry
from agent_memory.backend.helpers import Uncopied
from agent_memory.core.precondition import SHA256
from agent_memory.errors import AgentMemoryError
from agent_memory.hookspecs import Operation, Outcome, Plugin, hookimpl
from agent_memory.key.patterns import Segments, matches, require_possible, segments
from agent_memory.runtime.fork import renewed_in_child

ACTOR: Final = "expiry"
"""The actor of the deletions."""
_LIST_SECONDS: Final = 3600.0
_MOST_AGENTS: Final = 1000
_DELETED_PER_CALL: Final = 2
_DAY: Final = 86_400.0
_log = logging.getLogger("agent_memory")


class ExpiryPlugin(Plugin, Uncopied):
    """Deletes files that did not change for longer than the time to live of their pattern.

    A change of an agent deletes at most two of the agent's expired files; a listing finds them, once an hour. A file
    over the size of one call stays. A plugin belongs to one service.

    Args:
        rules: the days to live, by pattern: ``*``, ``?`` and ``[...]`` within a segment, as in `fnmatch`, and ``**``
            for any number of segments. If several patterns match a path, the longest time applies.
        pinned: patterns of files that stay.
        dry_run: whether the plugin only logs what it would delete.

    Raises:
        ValueError: there is no rule, a pattern matches no path, or a time is not a positive number of days.
    """

    def __init__(self, rules: Mapping[str, float], pinned: Collection[str] = (), dry_run: bool = True) -> None:
        self._rules = [(_checked(pattern), _seconds(pattern, days)) for pattern, days in _mapping(rules).items()]
        if isinstance(pinned, str) or not isinstance(pinned, Collection):
            raise ValueError(f"pinned must be a collection of patterns, not {pinned!r}")
        self._pinned = [_checked(pattern) for pattern in pinned]
        if not isinstance(dry_run, bool):
            raise ValueError(f"dry_run must be true or false, not {dry_run!r}")
        self._dry_run = dry_run
        self._memory_of: Callable[[str | None], Any] | None = None
        self._listed: dict[str | None, float] = {}
        self._found: dict[str | None, list[str]] = {}
        self._lock = threading.Lock()
        _all.add(self)

    def use_memories(self, memory_of: Callable[[str | None], Any]) -> None:
        """Use the memories of a service, until it is closed.

        Raises:
            ValueError: the plugin is in use by another service.
        """
        if self._memory_of is not None:
            raise ValueError("an ExpiryPlugin belongs to one open service: give each its own, or close the other first")
        self._memory_of = memory_of

    def close(self) -> None:
        """Delete nothing more; the plugin may be given to another service."""
        self._memory_of = None
        self._listed, self._found = {}, {}

    def expired(self, memory: Any) -> tuple[Entry, ...]:
        """Return the files of an `agent_memory.AgentMemory` that are expired now; nothing is deleted."""
        now = time.time()
        return tuple(entry for entry in memory.list() if self._is_expired(entry, now))

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:
        """After a change, delete a few expired files of its agent."""
        memory_of = self._memory_of
        if not operation.changes or outcome.status != "ok" or memory_of is None:
            return
        if self._lock.acquire(blocking=False):  # another thread is at work, or this is a deletion of this plugin
            try:
                self._delete_some(operation.agent, memory_of(operation.agent).acting_as(ACTOR))
            except AgentMemoryError as error:
                _log.warning("expired files were not deleted: %s", error)
            finally:
                self._lock.release()

    def _delete_some(self, agent: str | None, memory: Any) -> None:
        now = time.monotonic()
        if now >= self._listed.get(agent, -math.inf) + _LIST_SECONDS:
            if len(self._listed) >= _MOST_AGENTS:
                self._listed, self._found = {}, {}
            self._listed[agent] = now
            self._found[agent] = [entry.path for entry in self.expired(memory)]
            if self._dry_run and self._found[agent]:
                _log.info("expiry, dry run: would delete %a of %a", self._found[agent], agent)
        paths = self._found.get(agent, [])
        for _ in range(0 if self._dry_run else _DELETED_PER_CALL):
            if paths:
                self._delete(memory, paths.pop())

    def _delete(self, memory: Any, path: str) -> None:
        """Delete a file if it did not change since it was found: its content is read first, and its age tested last."""
        try:
            content = memory.read_bytes(path)
            if self._is_expired(memory.stat(path), time.time()):
                memory.delete(path, when=SHA256(hashlib.sha256(content).hexdigest()))
        except AgentMemoryError as error:
            _log.info("the expired file %a was not deleted: %s", path, error)

    def _is_expired(self, entry: Entry, now: float) -> bool:
        path = segments(entry.path)
        if any(matches(pattern, path) for pattern in self._pinned):
            return False
        times = [seconds for pattern, seconds in self._rules if matches(pattern, path)]
        return bool(times) and entry.modified + max(times) <= now

    def _begin_in_child(self) -> None:
        self._lock = threading.Lock()  # the child does not have the thread that may have held the old one


_all = renewed_in_child(ExpiryPlugin._begin_in_child)


def _mapping(rules: object) -> Mapping[str, float]:
    if not isinstance(rules, Mapping) or not rules:
        raise ValueError("rules must map patterns to days, at least one: {'scratch/**': 7}")
    return rules


def _checked(pattern: str) -> Segments:
    require_possible(pattern)
    return segments(pattern)


def _seconds(pattern: str, days: object) -> float:
    if isinstance(days, bool) or not isinstance(days, int | float) or not 0 < days < math.inf:
        raise ValueError(f"{pattern!r}: the time to live must be a positive number of days, not {days!r}")
    return days * _DAY
