"""A guard that limits the bytes of a file, and the files and bytes of an agent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from agent_memory.backend import AnyBackend
from agent_memory.errors import OperationDenied
from agent_memory.hookspecs import Operation, Outcome, Plugin, hookimpl
from agent_memory.plugins._checking import require_whole
from agent_memory.plugins._sizes import FileSizes
from agent_memory.plugins._usage import Usage
from agent_memory.registry import open_backend
from agent_memory.runtime.fork import renewed_in_child
from agent_memory.runtime.runners import close_backend


class LimitsPlugin(Plugin):
    """Refuses content that would make a file, or an agent's memory, larger than its limit.

    ``max_file_bytes`` costs no request: the plugin keeps an upper bound of each file's size from the operations of this
    service, and adds an append to it. A change that is under way or was cancelled counts as made: for one minute
    regardless of later reads, then until this service reads, stats or writes the file. A bound can therefore be too
    large, but never smaller than the file as this service wrote it. A file that other processes grow, or that this
    service has not touched yet, can exceed the limit by one append. A file that other processes shrink counts with its
    old size until this service reads, stats or writes it. If a directory is moved or copied, the bounds of the 10,000
    most recently touched files go with it.

    ``max_files`` and ``max_bytes`` are counted by a listing before the service's first change of an agent's files, and
    updated with each operation. They are counted again after five minutes, and before an operation is refused, but not
    more than once in five seconds. No write of this service exceeds them, except by the separators of appends (at most
    64 bytes each). Several services together can exceed them, by the amount that the others wrote since the last count.

    Args:
        max_file_bytes: the most bytes of one file.
        max_files: the most files of one agent; needs ``root``.
        max_bytes: the most bytes of all files of one agent; needs ``root``.
        root: the storage in which files are counted, the same value that the service is opened with.
        storage_options: options of the URL's backend.

    Raises:
        ValueError: no limit is given, a limit is negative or not a whole number, or a limit of an agent lacks ``root``.
    """

    def __init__(
        self,
        max_file_bytes: int | None = None,
        *,
        max_files: int | None = None,
        max_bytes: int | None = None,
        root: str | os.PathLike[str] | AnyBackend | None = None,
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        limits = {"max_file_bytes": max_file_bytes, "max_files": max_files, "max_bytes": max_bytes}
        for name, limit in limits.items():
            if limit is not None:
                require_whole(name, limit, least=0)
        self.max_file_bytes = max_file_bytes
        self._sizes = None if max_file_bytes is None else FileSizes(max_file_bytes)
        _all.add(self)
        self._usage: Usage | None = None
        self._opened: AnyBackend | None = None
        of_agents = max_files is not None or max_bytes is not None
        if max_file_bytes is None and not of_agents:
            raise ValueError("no limit is given: set max_file_bytes, max_files or max_bytes")
        if not of_agents and (root is not None or storage_options is not None):
            raise ValueError("root and storage_options are only for max_files and max_bytes, and neither is given")
        if of_agents:
            if root is None:
                raise ValueError("max_files and max_bytes need the storage to count in: set root=")
            backend = open_backend(root, storage_options)
            self._opened = None if backend is root else backend
            self._usage = Usage(backend, max_files, max_bytes)

    @hookimpl
    def agent_memory_before_operation(self, operation: Operation) -> None:
        """Refuse a copy that exceeds a limit of the agent, or a rename that does with concurrent changes."""
        if self._sizes:
            self._sizes.begin(operation)
        if self._usage and operation.kind == "copy":
            self._usage.permit_copy(operation)
        elif self._usage and operation.kind == "delete":
            self._usage.note(operation)
        elif self._usage and operation.kind == "rename":
            self._usage.permit_rename(operation)

    @hookimpl
    def agent_memory_check_content(self, operation: Operation, content: bytes) -> None:
        """Refuse content that exceeds a limit."""
        self.agent_memory_check_size(operation, len(content))

    @hookimpl
    def agent_memory_check_size(self, operation: Operation, size: int) -> None:
        """Refuse content of this size, for example one written in parts, that exceeds a limit."""
        if self._sizes and (most := self._sizes.excess(operation, size)) is not None:
            raise OperationDenied(f"{most:,} bytes; a file may have {self.max_file_bytes:,}", path=operation.path)
        if self._usage:
            self._usage.permit(operation, size)

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:
        """Update the known sizes of files."""
        if outcome.replayed:
            outcome = replace(outcome, status="denied")  # nothing was changed
        if self._usage:
            self._usage.follow(operation, outcome)
        if self._sizes:
            self._sizes.follow(operation, outcome)

    def close(self) -> None:
        """Close the backend if this plugin opened it from ``root``."""
        opened, self._opened = self._opened, None
        if opened is not None:
            close_backend(opened)

    def _begin_in_child(self) -> None:
        if self._sizes:
            self._sizes.begin_in_child()
        if self._usage:
            self._usage.forget()


_all = renewed_in_child(LimitsPlugin._begin_in_child)
