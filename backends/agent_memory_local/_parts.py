"""`LocalParts`: a file that is written in parts and gets its name when it is complete."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from agent_memory.backend import ETag, Key
from agent_memory.backend.helpers import translating
from agent_memory.errors import WriteError
from agent_memory_local._files import StagedFile


class LocalParts:
    """See `agent_memory.backend.Parts`; a killed process leaves no file behind if the system supports unnamed files.

    Args:
        key: the key of the file.
        new: the staged file.
        part_bytes: the number of bytes of a part.
        complete: gives the file its name; called with the SHA-256 of the content in hexadecimal.
        tidy: removes the directories that were created for the file.
    """

    def __init__(
        self,
        key: Key,
        new: StagedFile,
        part_bytes: int,
        complete: Callable[[StagedFile, str], ETag],
        tidy: Callable[[], None],
    ) -> None:
        self.part_bytes = part_bytes
        self._key = key
        self._new: StagedFile | None = new
        self._complete = complete
        self._tidy = tidy
        self._digest = hashlib.sha256()

    def add(self, data: bytes) -> None:
        with translating(self._key, WriteError, OSError):
            self._open.write(data)
        self._digest.update(data)

    def add_copy(self, source: Key, start: int, end: int, etag: ETag) -> bool:  # noqa: ARG002
        return False

    def complete(self) -> ETag:
        etag = self._complete(self._open, self._digest.hexdigest())
        self._close()
        return etag

    def abort(self) -> None:
        if self._new is not None:
            self._close()
            self._tidy()

    @property
    def _open(self) -> StagedFile:
        if self._new is None:
            raise WriteError("the write in parts is already completed or aborted", path=self._key.path)
        return self._new

    def _close(self) -> None:
        if self._new is not None:
            self._new.close()
            self._new = None
