"""`Compaction`: removes the oldest lines of a history, after it wrote them to an archive.

The history and the archive are two files, so a crash can come between their changes. One write adds to the archive the
lines and a note, which says what the history loses and in which state it was read. As long as the note is there, any
process that compacts with this archive first removes the lines, if the history still begins with that state, and then
the note. So the lines are removed only after they are in the archive, and each line gets there once: a history returns
to an earlier state only if it repeats its lines, with equal times.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, NamedTuple

from agent_memory.backend import ABSENT, ETag
from agent_memory.backend._checks import joined
from agent_memory.conversation.selection import MessageSelection, skipped_lines
from agent_memory.errors import (
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileAlreadyExistsError,
    FileTooLargeError,
    InvalidContentError,
)
from agent_memory.memory import AsyncAgentMemory
from agent_memory.reading.reader import Reader

_MOST_TRIES: Final = 100
_WHOLE: Final = 1 << 40
_NOTE: Final = re.compile(
    rb'^\{"removal": \{"size": (\d{1,15}), "of": (\d{1,15}), "sha256": "([0-9a-f]{64})"\}\}(?:\n|\Z)', re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class CompactResult:
    """The result of `ConversationMemory.compact`.

    Attributes:
        kept: the lines of the history after it.
        removed: the lines that this call removed from the history, those of an interrupted call included.
        archived: how many of them are in the archive.
        skipped: how many of the lines that stay hold no message.
    """

    kept: int
    removed: int
    archived: int
    skipped: int = field(default=0, compare=False)


class _Removal(NamedTuple):
    """What a history loses: its first ``size`` bytes, if it begins with the state of ``of`` bytes and the SHA-256."""

    size: int
    of: int
    sha256: str

    @staticmethod
    def of_note(found: re.Match[bytes]) -> _Removal:
        """Return the removal of a note in an archive."""
        return _Removal(int(found[1]), int(found[2]), found[3].decode())

    @property
    def note(self) -> bytes:
        """The line in the archive."""
        return json.dumps({"removal": self._asdict()}).encode() + b"\n"

    def is_due(self, history: bytes) -> bool:
        """Whether the lines are still in the history; a note by another hand names no part of a line."""
        state = history[: self.of]
        is_possible = self.size < len(state) == self.of and state[: self.size].endswith(b"\n")
        return is_possible and sha256(state).hexdigest() == self.sha256


class _WholeFile(NamedTuple):
    """The content of a file, and its etag; an empty one if there is no file."""

    data: bytes = b""
    etag: ETag | None = None


class Compaction:
    """One call of `ConversationMemory.compact`.

    Args:
        memory: the conversation's tree.
        history: the file.
        selection: what stays.
        archive: the file for the removed lines; None: they are deleted.
    """

    def __init__(
        self, memory: AsyncAgentMemory, history: str, selection: MessageSelection, archive: str | None
    ) -> None:
        self._memory = memory
        self._history = history
        self._selection = selection
        self._archive = archive
        self._noted: _Removal | None = None
        self._rest = b""
        self._removed = 0

    async def run(self) -> CompactResult:
        """Compact the history; after a conflict it is read again.

        Raises:
            ConflictError: other processes compacted the history again and again.
        """
        for _ in range(_MOST_TRIES):
            if await self._try():
                archived = self._removed if self._archive else 0
                return CompactResult(_lines(self._rest), self._removed, archived, skipped_lines(self._rest))
        raise ConflictError("other writers compact the history, too; call it again later", path=self._history)

    async def _try(self) -> bool:
        """Take the next step; return whether it was the last one."""
        archive = await self._read(self._archive) if self._archive else _WholeFile()
        if note := _NOTE.search(archive.data):
            due = _Removal.of_note(note)
            await self._remove(due)
            ended = await self._replace(archive, archive.data[: note.start()] + archive.data[note.end() :])
            return due == self._noted and ended is not None
        history = (await self._read(self._history)).data
        end = self._selection.end_of_removed(history)
        self._rest = history
        if not end:
            return True
        removal = _Removal(end, len(history), sha256(history).hexdigest())
        if self._archive is None:
            return await self._remove(removal)
        await self._note(archive, history[:end], removal)
        return False

    async def _remove(self, removal: _Removal) -> bool:
        """Remove lines from the history if they are still there; return whether they were."""
        removed = 0

        def change(history: bytes) -> bytes:
            nonlocal removed
            end = removal.size if removal.is_due(history) else 0
            removed, self._rest = _lines(history[:end]), history[end:]
            return self._rest

        try:
            await self._memory.edit_bytes(self._history, change)
        except AgentMemoryFileNotFoundError:
            removed, self._rest = 0, b""
        self._removed += removed
        return removed > 0

    async def _note(self, archive: _WholeFile, lines: bytes, removal: _Removal) -> None:
        """Add lines and the note of their removal to the archive."""
        data = joined(archive.data, b"\n", lines) + removal.note
        is_other = await self._replace(archive, data) not in (None, sha256(data).hexdigest())
        if is_other and removal.note not in (await self._read(str(self._archive))).data:
            raise InvalidContentError(
                "a plugin changes this archive's last line, so nothing was removed from the history: exclude the file",
                path=self._archive,
            )
        self._noted = removal

    async def _replace(self, archive: _WholeFile, data: bytes) -> str | None:
        """Replace the archive, if it did not change; return the digest of the written content, or None if it did."""
        try:
            when = ABSENT if archive.etag is None else archive.etag
            return (await self._memory.write(str(self._archive), data, when=when)).sha256
        except ConflictError:
            return None
        except FileAlreadyExistsError as error:
            if error.taken_by != "file":
                raise
            return None

    async def _read(self, path: str) -> _WholeFile:
        async def work(reader: Reader) -> _WholeFile:
            data = await reader.read(0, _WHOLE)
            return _WholeFile(data, reader.etag)

        try:
            return await self._memory.scan(path, work)
        except AgentMemoryFileNotFoundError:
            return _WholeFile()
        except FileTooLargeError as error:
            raise FileTooLargeError(f"a compaction reads the whole file: {error}", path=path) from None


def _lines(data: bytes) -> int:
    return data.count(b"\n") + (data != b"" and not data.endswith(b"\n"))
