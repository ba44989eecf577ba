"""A guard that refuses changes of files whose paths match a pattern, for all agents or for some."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import product
from typing import Final

from agent_memory.errors import OperationDenied
from agent_memory.hookspecs import WRITING, Operation, Plugin, hookimpl
from agent_memory.key import Key
from agent_memory.key.patterns import matches, reaches_below, require_possible, segments

_ON_A_FILE: Final = WRITING | {"delete", "redact"}
_ON_ALL_BELOW: Final = frozenset({"delete_tree", "rename", "copy", "forget"})


class ReadOnlyPlugin(Plugin):
    """Refuses operations that would write, move or delete a file whose path matches a pattern.

    A pattern is matched segment by segment: ``*``, ``?`` and ``[...]`` within a segment, as in `fnmatch`, and ``**``
    for any number of segments. Case is ignored (`str.casefold`), also in agent ids, because some filesystems ignore it.
    An operation on a directory is refused if a file below it could match, even if there is no such file: a guard sends
    no request to the storage.

    Args:
        patterns: one or more, relative to the agent's tree: ``policies/**``, ``*.lock``.
        agents: the ids of the agents, one or more; None for all agents, and for trees without agents.

    Raises:
        ValueError: there is no pattern, no path can match a pattern, or an agent id is not valid.
    """

    def __init__(self, *patterns: str, agents: Collection[str] | None = None) -> None:
        if not patterns:
            raise ValueError("without a pattern nothing is read-only: '**' is every path")
        for pattern in patterns:
            require_possible(pattern)
        self._patterns = [segments(text) for pattern in patterns for text in (pattern, pattern.casefold())]
        self._agents = None if agents is None else frozenset(map(_folded, _named(agents)))

    @hookimpl
    def agent_memory_before_operation(self, operation: Operation) -> None:
        """Refuse an operation that changes a protected file."""
        if self._agents is not None and (operation.agent or "").casefold() not in self._agents:
            return
        for path in _changed(operation):
            if self._protects(path, below=operation.kind in _ON_ALL_BELOW):
                raise OperationDenied("it is read-only here", path=path)

    def _protects(self, path: str, *, below: bool) -> bool:
        spellings = [tuple(text.split("/")) if text else () for text in (path, path.casefold())]
        return any(
            matches(pattern, path_segments) or (below and reaches_below(pattern, path_segments))
            for pattern, path_segments in product(self._patterns, spellings)
        )


def from_configuration(patterns: Sequence[str], agents: Collection[str] | None = None) -> ReadOnlyPlugin:
    """Make the plugin from a configuration: ``patterns`` and ``agents`` are lists.

    Raises:
        ValueError: a value is not a list of strings, or as `ReadOnlyPlugin`.
    """
    for name, texts in (("patterns", patterns), ("agents", [] if agents is None else agents)):
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{name} must be a list of strings")
    return ReadOnlyPlugin(*patterns, agents=agents)


def _named(agents: Collection[str]) -> Collection[str]:
    if isinstance(agents, str) or not agents:
        raise ValueError(f"agents must be a collection of one or more agent ids, or omitted for all, not {agents!r}")
    return agents


def _folded(agent: str) -> str:
    Key.agent(agent)  # raises an error unless the text is a valid agent id
    return agent.casefold()


def _changed(operation: Operation) -> list[str]:
    """The paths at or below which an operation changes files."""
    if operation.kind not in _ON_A_FILE | _ON_ALL_BELOW:
        return []
    source = [] if operation.kind == "copy" else [operation.path]
    return source + ([] if operation.target is None else [operation.target])
