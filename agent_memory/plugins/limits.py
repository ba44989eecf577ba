"""A guard that caps the bytes of a file."""

from __future__ import annotations

import threading
from collections import OrderedDict

from agent_memory.errors import OperationDenied
from agent_memory.hookspecs import Operation, Outcome, hookimpl

_REMEMBERED = 10_000
_OF_MANY = ("delete_tree", "rename", "copy")


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
        self._sizes: OrderedDict[tuple[str | None, str], int] = OrderedDict()
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
        """Remember the file's size."""
        with self._lock:
            if operation.kind in _OF_MANY:
                self._sizes.clear()
            elif outcome.status == "ok" and outcome.size is not None:
                self._remember((operation.agent, operation.path), outcome.size)
            elif outcome.status == "unknown" or outcome.error == "file_not_found" or operation.kind == "delete":
                self._sizes.pop((operation.agent, operation.path), None)

    def _remember(self, file: tuple[str | None, str], size: int) -> None:
        self._sizes[file] = size
        self._sizes.move_to_end(file)
        if len(self._sizes) > _REMEMBERED:
            self._sizes.popitem(last=False)
