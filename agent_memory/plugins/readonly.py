"""A guard that keeps files from being changed: those whose names match, of all agents or of some."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from itertools import product
from typing import Final, TypeAlias

from agent_memory.errors import OperationDenied
from agent_memory.hookspecs import Operation, hookimpl

_ON_A_FILE: Final = frozenset({"write", "create", "append", "edit", "delete"})
_ON_ALL_BELOW: Final = frozenset({"delete_tree", "rename", "copy", "forget"})
Segments: TypeAlias = tuple[str, ...]


class ReadOnlyPlugin:
    """Refuses operations that would write, move or delete a file whose path matches a pattern.

    A pattern is matched segment by segment: ``*``, ``?`` and ``[...]`` within a segment, as `fnmatch` has them, ``**``
    for any number of segments. Upper and lower case are the same, agents' ids included, because some filesystems have
    it so. An operation on a directory is refused if a file below it could match, whether or not there is one, because
    a guard asks the storage nothing.

    Args:
        patterns: relative to the agent's tree: ``policies/**``, ``*.lock``.
        agents: whose; None for all, and for trees without agents.

    Raises:
        ValueError: a pattern that no path matches.
    """

    def __init__(self, *patterns: str, agents: Collection[str] | None = None) -> None:
        self._patterns = [_segments(text) for pattern in patterns for text in (pattern, pattern.casefold())]
        self._agents = None if agents is None else frozenset(agent.casefold() for agent in agents)

    @hookimpl
    def agent_memory_before_operation(self, operation: Operation) -> None:
        """Refuse a change."""
        if self._agents is not None and (operation.agent or "").casefold() not in self._agents:
            return
        for path in _changed(operation):
            if self._protects(path, below=operation.kind in _ON_ALL_BELOW):
                raise OperationDenied(f"{path!r} is read-only here")

    def _protects(self, path: str, *, below: bool) -> bool:
        spellings = [tuple(text.split("/")) if text else () for text in (path, path.casefold())]
        return any(
            _matches(pattern, segments) or (below and _reaches_below(pattern, segments))
            for pattern, segments in product(self._patterns, spellings)
        )


def from_configuration(patterns: Sequence[str], agents: Collection[str] | None = None) -> ReadOnlyPlugin:
    """The plugin as a configuration has it: ``patterns`` and ``agents`` are lists.

    Raises:
        ValueError: no list of texts.
    """
    for name, texts in (("patterns", patterns), ("agents", agents or [])):
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{name} is a list of texts")
    return ReadOnlyPlugin(*patterns, agents=agents)


def _segments(pattern: str) -> Segments:
    segments = tuple(pattern.split("/"))
    if any(segment in ("", ".", "..") for segment in segments):
        raise ValueError(f"{pattern!r} matches no path: paths are relative, without '.', '..' and empty segments")
    return segments


def _changed(operation: Operation) -> list[str]:
    """The paths at or below which an operation changes files."""
    if operation.kind not in _ON_A_FILE | _ON_ALL_BELOW:
        return []
    source = [] if operation.kind == "copy" else [operation.path]
    return source + ([] if operation.target is None else [operation.target])


def _matches(pattern: Segments, path: Segments) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_matches(pattern[1:], path[skipped:]) for skipped in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and _matches(pattern[1:], path[1:])


def _reaches_below(pattern: Segments, directory: Segments) -> bool:
    """Whether the path of a file below a directory could match."""
    if not pattern or not directory:
        return bool(pattern)
    return pattern[0] == "**" or (fnmatchcase(directory[0], pattern[0]) and _reaches_below(pattern[1:], directory[1:]))
