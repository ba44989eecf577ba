"""A guard that caps the bytes of a file, and the files and bytes of an agent."""

from __future__ import annotations

import os
from collections.abc import Mapping

from agent_memory.backend import AnyBackend, Uncopied
from agent_memory.errors import OperationDenied
from agent_memory.hookspecs import Operation, Outcome, Plugin, hookimpl
from agent_memory.plugins._checking import require_whole
from agent_memory.plugins._sizes import FileSizes
from agent_memory.plugins._usage import Usage
from agent_memory.registry import open_backend
from agent_memory.runtime.fork import renewed_in_child
from agent_memory.runtime.runners import close_backend


class LimitsPlugin(Plugin, Uncopied):
    """Refuses content that would make a file, or an agent's memory, larger than it may be.

    ``max_file_bytes`` costs no request: an append is added to the largest size that the file can have by what this
    service did and saw. A change that is under way or was cancelled counts as made: for a minute whatever is seen of
    the file, then until this service reads, stats or writes it. So a bound is at times too large, and never smaller
    than what this service made of a file. A file that others grow, or that this service has not touched yet, can
    exceed the limit by one append; one that others shrink counts as it was until this service reads, stats or writes
    it. Of a directory that is moved or copied, the 10,000 files that were touched last are followed.

    ``max_files`` and ``max_bytes`` of an agent are counted by a listing when the service first changes something of the
    agent, and followed from then on; anew every five minutes, and before anything is refused, but not more than once in
    five seconds. So no write of this service exceeds them, but for the separators of appends (at most 64 bytes each);
    all services together can, by what the others wrote since.

    Args:
        max_file_bytes: the most bytes of one file.
        max_files: the most files of one agent; needs ``root``.
        max_bytes: the most bytes of all files of one agent; needs ``root``.
        root: the storage of the service, as the service is given it, to count in.
        storage_options: for a URL's backend.

    Raises:
        ValueError: no limit, one that is negative or no whole number, or one of an agent without ``root``.
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
            raise ValueError("nothing is limited: say max_file_bytes, max_files or max_bytes")
        if not of_agents and (root is not None or storage_options is not None):
            raise ValueError("root and storage_options are for max_files and max_bytes, and neither is given")
        if of_agents:
            if root is None:
                raise ValueError("max_files and max_bytes are counted in the storage: say which by root=")
            backend = open_backend(root, storage_options)
            self._opened = None if backend is root else backend
            self._usage = Usage(backend, max_files, max_bytes)

    @hookimpl
    def agent_memory_before_operation(self, operation: Operation) -> None:
        """Refuse a copy that is over the limits of the agent, or a rename of what is changed at the same time."""
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
        """Refuse what is over the limits."""
        self.agent_memory_check_size(operation, len(content))

    @hookimpl
    def agent_memory_check_size(self, operation: Operation, size: int) -> None:
        """The same for a content that is written in parts."""
        if self._sizes and (most := self._sizes.excess(operation, size)) is not None:
            raise OperationDenied(f"{most:,} bytes; a file may have {self.max_file_bytes:,}", path=operation.path)
        if self._usage:
            self._usage.permit(operation, size)

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:
        """Keep the sizes of files as they are known now."""
        if self._usage:
            self._usage.follow(operation, outcome)
        if self._sizes:
            self._sizes.follow(operation, outcome)

    def close(self) -> None:
        """Release what ``root`` was opened with."""
        opened, self._opened = self._opened, None
        if opened is not None:
            close_backend(opened)

    def _begin_in_child(self) -> None:
        if self._sizes:
            self._sizes.begin_in_child()
        if self._usage:
            self._usage.forget()


_all = renewed_in_child(LimitsPlugin._begin_in_child)
