"""`LocalParts`: a file that is written in parts, without a name until it is complete."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from agent_memory.backend import Key, Uncopied, Version, translating
from agent_memory.errors import WriteError
from agent_memory_local._files import StagedFile


class LocalParts(Uncopied):
    """See `agent_memory.backend.Parts`; a killed process leaves nothing, where the system knows files without a name.

    Args:
        key: the file's.
        new: the file, to be written.
        part_bytes: how many bytes a part has.
        complete: gives the file its name; is told the digest of the content.
        tidy: removes the directories that were made for the file.
    """

    def __init__(
        self,
        key: Key,
        new: StagedFile,
        part_bytes: int,
        complete: Callable[[StagedFile, str], Version],
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

    def add_copy(self, source: Key, start: int, end: int, version: Version) -> bool:  # noqa: ARG002
        return False

    def complete(self) -> Version:
        version = self._complete(self._open, self._digest.hexdigest())
        self._close()
        return version

    def abort(self) -> None:
        if self._new is not None:
            self._close()
            self._tidy()

    @property
    def _open(self) -> StagedFile:
        if self._new is None:
            raise WriteError("the write in parts is over", path=self._key.path)
        return self._new

    def _close(self) -> None:
        if self._new is not None:
            self._new.close()
            self._new = None
