"""`IntegrityPlugin`: refuses to read a file that is not as the last records of an audit log tell."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final, cast

from agent_memory.audit import LogLocation, log_at
from agent_memory.audit.files import FileFinding, FilePart, FileVerifier
from agent_memory.backend.helpers import Uncopied
from agent_memory.errors import OperationDenied
from agent_memory.hookspecs import Operation, Plugin, hookimpl
from agent_memory.key.patterns import matches, require_possible, segments
from agent_memory.reading.reader import Reader

WAIT_SECONDS: Final = 3.0
"""How long a read waits for the record of a change that another writer has just made, in seconds."""
_PAUSE: Final = 0.1
_READS: Final = ("read", "edit")


class IntegrityPlugin(Plugin, Uncopied):
    """Refuses reads and edits of chosen files whose bytes are not those that the audit log tells.

    A file without a record, a changed one and an older state are refused. A read of a part of a file is compared as far
    as the part has whole appends. Bytes about which the records tell too little pass: after a forget, an operation
    without a known outcome, or a change less than two seconds before. Each such read lists the parts of the log and
    reads what is new in it. The log must have all changes: every writer needs a required `AuditPlugin`.

    Args:
        log: a file or URL, as for `agent_memory.plugins.audit.AuditPlugin`; or a result of `agent_memory.audit.log_at`.
        paths: patterns of the files, as of `agent_memory.plugins.readonly.ReadOnlyPlugin`; by default all.
        storage_options: options of the URL's backend.

    Raises:
        ValueError: no path can match a pattern, or there is none; or the log is a directory.
    """

    def __init__(
        self,
        log: str | os.PathLike[str] | LogLocation,
        *paths: str,
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        for pattern in paths:
            require_possible(pattern)
        self._patterns = [segments(pattern) for pattern in paths or ("**",)]
        self._location = log if isinstance(log, LogLocation) else log_at(log, storage_options)
        self._verifier = FileVerifier(self._location, self._location.store)
        self._lock = threading.Lock()

    @hookimpl
    def agent_memory_check_read(self, operation: Operation, content: bytes, start: int, size: int) -> None:
        """Refuse a content that differs from the records, once those that may be on their way have arrived."""
        agent, path = operation.agent, operation.path
        if agent is None or operation.kind not in _READS or not self._is_chosen(path):
            return
        part, deadline = FilePart(content, start, size), time.monotonic() + WAIT_SECONDS
        with self._lock:
            while found := self._found(agent, path, part, operation.time):
                if time.monotonic() > deadline:
                    raise OperationDenied(f"it is not as the audit log tells: {found.detail}", path=path)
                time.sleep(_PAUSE)

    def close(self) -> None:
        """Close the log's backend."""
        self._location.store.close()

    def _is_chosen(self, path: str) -> bool:
        return any(matches(pattern, segments(path)) for pattern in self._patterns)

    def _found(self, agent: str, path: str, part: FilePart, read_at: float) -> FileFinding | None:
        found = self._verifier.judged_now(agent, path, cast(Reader, part), read_at)
        return None if found is None or found.kind == "unvouched" else found


def from_configuration(
    target: str, *, paths: Sequence[str] = (), storage_options: Mapping[str, object] | None = None
) -> IntegrityPlugin:
    """Make the plugin from a configuration: ``target`` is the log, ``paths`` a list of patterns.

    Raises:
        ValueError: ``paths`` is no list of strings, or as `IntegrityPlugin`.
    """
    if not isinstance(paths, list | tuple) or not all(isinstance(path, str) for path in paths):
        raise ValueError("paths must be a list of strings")
    return IntegrityPlugin(target, *paths, storage_options=storage_options)
