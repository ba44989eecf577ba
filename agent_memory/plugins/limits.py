"""A guard that caps the bytes of a file."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TypeAlias

from agent_memory.errors import OperationDenied
from agent_memory.hookspecs import Operation, Outcome, hookimpl

_REMEMBERED = 10_000
_OF_ONE_FILE = ("read", "stat", "edit", "delete")
_HALF_DONE = ("partial_operation",)
File: TypeAlias = tuple[str | None, str]


class LimitsPlugin:
    """Refuses content that would make a file larger than ``max_file_bytes``.

    An append is added to the size this service last saw of the file, because a hook costs no request. A file
    that others grow, or that this service has not touched yet, can exceed the limit by one append; one that
    others shrink counts as it was until this service reads, stats or writes it.
    """

    def __init__(self, max_file_bytes: int) -> None:
        if max_file_bytes < 0:
            raise ValueError("max_file_bytes is not negative")
        self.max_file_bytes = max_file_bytes
        self._sizes: OrderedDict[File, int] = OrderedDict()
        self._lock = threading.Lock()

    @hookimpl
    def agent_memory_check_content(self, operation: Operation, content: bytes) -> None:
        """Refuse what is over the limit."""
        known = self._sizes.get((operation.agent, operation.path), 0) if operation.kind == "append" else 0
        if known + len(content) > self.max_file_bytes:
            size = known + len(content)
            raise OperationDenied(f"{operation.path!r}: {size:,} bytes; a file may have {self.max_file_bytes:,}")

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:
        """Keep the sizes of files as they are known now."""
        with self._lock:
            if operation.kind in ("rename", "copy"):
                self._transfer(operation, outcome)
            elif outcome.status == "ok" and outcome.size is not None:
                self._remember((operation.agent, operation.path), outcome.size)
            elif _is_gone(operation, outcome):
                self._forget(operation.agent, operation.path)

    def _transfer(self, operation: Operation, outcome: Outcome) -> None:
        agent, source, target = operation.agent, operation.path, operation.target or ""
        if outcome.status == "ok":
            for file in self._at_or_below(agent, source):
                self._remember((agent, target + file[1][len(source) :]), self._sizes[file])
        if operation.kind == "rename" and (outcome.status != "error" or outcome.error in _HALF_DONE):
            self._forget(agent, source)

    def _remember(self, file: File, size: int) -> None:
        self._sizes[file] = size
        self._sizes.move_to_end(file)
        if len(self._sizes) > _REMEMBERED:
            self._sizes.popitem(last=False)

    def _forget(self, agent: str | None, path: str) -> None:
        for file in self._at_or_below(agent, path):
            del self._sizes[file]

    def _at_or_below(self, agent: str | None, path: str) -> list[File]:
        if (agent, path) in self._sizes:
            return [(agent, path)]
        below = path + "/" if path else ""
        return [file for file in self._sizes if file[0] == agent and file[1].startswith(below)]


def _is_gone(operation: Operation, outcome: Outcome) -> bool:
    removed = operation.kind in ("delete", "delete_tree", "forget") and (
        outcome.status == "ok" or outcome.error in _HALF_DONE
    )
    missing = outcome.error == "file_not_found" and operation.kind in _OF_ONE_FILE
    return removed or missing or outcome.status == "unknown"
