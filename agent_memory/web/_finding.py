"""Finds who brought a text into a file or took it out, in the versions that are kept: bounded in bytes and seconds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from agent_memory.core.versions.origin import MadeBy
from agent_memory.core.versions.states import FileVersion
from agent_memory.errors import AgentMemoryError
from agent_memory.memory import AsyncAgentMemory
from agent_memory.web._files import of_request
from agent_memory.web._site import Site, query
from agent_memory.web._versions import NOW, cursor

MOST: Final = 50
"""The changes of a page."""
_SECONDS: Final = 3.0
_MOST_BYTES: Final = 64_000_000
_AT_ONCE: Final = 100


class TextChange(NamedTuple):
    """A change after which a file has the text more often, or less often.

    Attributes:
        path: the file.
        came: whether the file has it more often.
        by: the operation; None if it is unknown, or if the text was appended: an append makes no version.
        appended: whether the text was appended.
        old: the id of the version before; "" if there was none, or if the text was appended.
        new: the id of the version after, `NOW` for the current file; "" if the file was deleted.
    """

    path: str
    came: bool
    by: MadeBy | None
    appended: bool
    old: str
    new: str


class _Occurrences(NamedTuple):
    """How often a state of a file has the text: with and without what was appended to it."""

    id: str
    whole: int
    base: int


@dataclass
class TextSearch:
    """A search for a text in versions, and what it has found so far, the newest first.

    Attributes:
        text: the text; compared without case.
        changes: what was found.
        looked_at: the number of versions that were read.
        failed: the number of versions that could not be read.
        is_whole: whether all versions were looked at.
    """

    text: str
    changes: list[TextChange] = field(default_factory=list)
    looked_at: int = 0
    failed: int = 0
    is_whole: bool = False
    _bytes: int = 0
    _after: dict[str, _Occurrences | None] = field(default_factory=dict)

    async def run(self, memory: AsyncAgentMemory, path: str) -> None:
        """Look at the versions of a file, or of all files that were changed or deleted, until a bound is reached."""
        async for each in _versions_of(memory, path):
            if len(self.changes) >= MOST or self._bytes > _MOST_BYTES:
                return
            name = path or each.path
            if name not in self._after:
                self._after[name] = await self._current(memory, name, each)
            if each.ended_by is not None:
                await self._look(memory, name, each)
        self.is_whole = True

    async def _current(self, memory: AsyncAgentMemory, path: str, newest: FileVersion) -> _Occurrences | None:
        """The state of a file now; of a deleted one, that it has no text."""
        listed = [newest] if newest.ended_by is None else await memory.versions.list(path, limit=1)
        if not listed or listed[0].ended_by is not None:
            return _Occurrences("", 0, 0)
        return await self._state(path, listed[0], NOW, memory.read_bytes(path))

    async def _look(self, memory: AsyncAgentMemory, path: str, each: FileVersion) -> None:
        """Compare an earlier version with the state that followed it."""
        after = self._after[path]
        place = len(self.changes)
        state = await self._state(path, each, each.id, memory.versions.read_bytes(path, each.id))
        if state and after and after.base != state.whole:
            change = TextChange(path, after.base > state.whole, each.ended_by, False, each.id, after.id)
            self.changes.insert(place, change)
        self._after[path] = state

    async def _state(self, path: str, each: FileVersion, id_: str, reading: Awaitable[bytes]) -> _Occurrences | None:
        """The state of a version; adds what came by an append, and what the first version had."""
        try:
            data = await reading
        except AgentMemoryError:
            self.failed += 1
            return None
        self.looked_at += 1
        self._bytes += len(data)
        wanted = self.text.lower()
        parts = (data, data[: max(0, len(data) - each.appended_bytes)])
        whole, base = (part.decode(errors="replace").lower().count(wanted) for part in parts)
        if whole != base:
            self.changes.append(TextChange(path, True, None, True, "", id_))
        if each.previous is None and base:
            self.changes.append(TextChange(path, True, each.made_by, False, "", id_))
        return _Occurrences(id_, whole, base)


async def _versions_of(memory: AsyncAgentMemory, path: str) -> AsyncIterator[FileVersion]:
    after: str | None = None
    while page := await memory.versions.list(path, limit=_AT_ONCE, after=after):
        for each in page:
            yield each
        after = cursor(page[-1], path)


async def find(site: Site, request: Request) -> Response:
    """Show the changes by which a text came and went, the newest first."""
    agent, path = of_request(request)
    memory, finding = site.memory(agent), TextSearch(query(request, "q", 200).strip())
    if finding.text:
        try:
            async with asyncio.timeout(_SECONDS), site.large:
                await finding.run(memory, path)
        except TimeoutError:
            pass  # the page says that not all versions were looked at
    return site.page(request, "find.html", agent=agent, path=path, finding=finding, now=NOW)
