"""Finds who brought a text into a file or took it out, in the versions that are kept: bounded in bytes and seconds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from agent_memory.audit import LogLocation
from agent_memory.audit.records import recorded_appends
from agent_memory.core.versions.origin import MadeBy
from agent_memory.core.versions.states import FileVersion
from agent_memory.core.versions.undo import RecordedAppend, RecordedAppends, attribute_appends
from agent_memory.errors import AgentMemoryError
from agent_memory.memory import AsyncAgentMemory
from agent_memory.runtime.threads import in_thread
from agent_memory.web._files import of_request
from agent_memory.web._site import Site, query
from agent_memory.web._text import DELETING
from agent_memory.web._versions import NOW, cursor, name_of, pages_of

MOST: Final = 50
"""The changes of a page, a few more if they are of one version."""
_SECONDS: Final = 10.0
_MOST_BYTES: Final = 64_000_000
_AT_ONCE: Final = 16
_MOST_AT_ONCE: Final = 16_000_000


class TextChange(NamedTuple):
    """A change after which a file has the text more often, or less often.

    Attributes:
        path: the file.
        came: whether the file has it more often.
        by: the operation; None if it is unknown, as that of another program or of a state that is not kept.
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
    previous: str | None
    by: MadeBy | None
    whole: int
    base: int


_GONE: Final = _Occurrences("", None, None, 0, 0)


class TextSearch:
    """A search for a text in versions, and what it has found so far, the newest first.

    Args:
        memory: the memory of the agent.
        agent: the id of the agent.
        path: the file; "" for all files that were changed or deleted.
        text: the text; compared without case.
        log: the audit log, which tells who appended a text; None if there is none.

    Attributes:
        changes: what was found.
        looked_at: the number of versions that were read.
        failed: the number of versions that could not be read.
        is_whole: whether all versions were looked at.
        next: continues the search in older versions of the file; "" if that is not possible.
    """

    def __init__(self, memory: AsyncAgentMemory, agent: str, path: str, text: str, log: LogLocation | None) -> None:
        self.text = text
        self.changes: list[TextChange] = []
        self.looked_at = self.failed = 0
        self.is_whole = False
        self.next = ""
        self._memory = memory
        self._agent = agent
        self._path = path
        self._log = log
        self._appends: RecordedAppends | None = None
        self._bytes = 0
        self._after: dict[str, _Occurrences | None] = {}

    async def run(self, after: str) -> None:
        """Look at versions until a bound is reached; ``after`` is `next` of an earlier search, or ""."""
        known = bool(after)  # the first version was looked at before: it only is the state after the next one
        last: FileVersion | None = None
        async for each, data in self._contents(after):
            if (self.next or not self._path) and (len(self.changes) >= MOST or self._bytes > _MOST_BYTES):
                return
            await self._look(each, data, known)
            known = False
            if last and self._path:
                self.next = cursor(last, self._path)
            last = each
        self.is_whole, self.next = True, ""

    async def _contents(self, after: str) -> AsyncIterator[tuple[FileVersion, bytes | None]]:
        """The versions with their contents; small ones are read at once."""
        async for page in pages_of(self._memory, self._path, _AT_ONCE, after):
            if sum(each.size for each in page) <= _MOST_AT_ONCE:
                for each, data in zip(page, await asyncio.gather(*map(self._read, page)), strict=True):
                    yield each, data
            else:
                for each in page:
                    yield each, await self._read(each)

    async def _read(self, each: FileVersion) -> bytes | None:
        """The content of a version; None if it is not there, or has changed since it was listed."""
        name, versions = self._path or each.path, self._memory.versions
        try:
            if each.ended_by is not None:
                return await versions.read_bytes(name, each.id)
            data = await self._memory.read_bytes(name)
            return data if await versions.list(name, limit=1) == (each,) else None
        except AgentMemoryError:
            return None

    async def _look(self, each: FileVersion, data: bytes | None, known: bool) -> None:
        """Compare a version with the state that followed it."""
        name = self._path or each.path
        if name not in self._after:
            self._after[name] = None if known or each.ended_by is None else await self._current(name)
        after, place = self._after[name], len(self.changes)
        state = await self._state(name, each, data, told=not known)
        if each.ended_by is not None:
            self.changes[place:place] = _between(name, each, state, after)
        self._after[name] = state

    async def _current(self, path: str) -> _Occurrences | None:
        """The state of a file now; of a deleted one, that it has no text."""
        listed = await self._memory.versions.list(path, limit=1)
        if not listed or listed[0].ended_by is not None:
            return _GONE
        return await self._state(path, listed[0], await self._read(listed[0]), told=True)

    async def _state(self, path: str, each: FileVersion, data: bytes | None, *, told: bool) -> _Occurrences | None:
        """The state of a version; adds what came by appends, and what the first version had, if it is to be told."""
        if data is None:
            self.failed += 1
            return None
        self.looked_at += 1
        self._bytes += len(data)
        start, id_ = max(0, len(data) - each.appended_bytes), name_of(each)
        whole, base = await in_thread(lambda: self._counted((data, data[:start])))
        if told and whole != base:
            self.changes.extend(await self._appended(path, each, data, start, whole - base))
        if told and each.previous is None and base:
            self.changes.append(TextChange(path, True, each.made_by, False, "", id_))
        return _Occurrences(id_, each.previous, each.made_by, whole, base)

    async def _appended(
        self, path: str, each: FileVersion, data: bytes, start: int, count: int
    ) -> Sequence[TextChange]:
        """By which appends the text came, as the audit log tells; the newest first."""
        if self._log is not None and self._appends is None:
            log, agent = self._log, self._agent
            self._appends = await in_thread(lambda: recorded_appends(log, agent))
        recorded = self._appends.of_version.get(each.id, ()) if self._appends else ()
        counts = await in_thread(lambda: self._by_append(data, start, recorded))
        makers: list[MadeBy | None] = [by for by, number in counts if number]
        if sum(number for _, number in counts) < count:
            makers.insert(0, None)
        return [TextChange(path, True, by, True, "", name_of(each)) for by in reversed(makers)]

    def _by_append(self, data: bytes, start: int, recorded: Sequence[RecordedAppend]) -> list[tuple[MadeBy, int]]:
        """The recorded appends, each with how often it brought the text."""
        ranges, _ = attribute_appends(data, start, recorded)
        counts = self._counted(data[piece.start : piece.end] for piece in ranges)
        return [(piece.by, number) for piece, number in zip(ranges, counts, strict=True)]

    def _counted(self, pieces: Iterable[bytes]) -> list[int]:
        wanted = self.text.casefold()
        return [piece.decode(errors="replace").casefold().count(wanted) for piece in pieces]


def _between(
    path: str, each: FileVersion, state: _Occurrences | None, after: _Occurrences | None
) -> Iterator[TextChange]:
    """The changes between a version and the state that is known after it, the newest first."""
    if after and each.ended_by and each.ended_by.operation in DELETING:
        if after.base and after.previous is not None:  # restored, or renamed to this name; a new file has no previous
            yield TextChange(path, True, after.by if after.previous == each.id else None, False, "", after.id)
        after = _GONE
    if state and after and after.base != state.whole:
        yield TextChange(path, after.base > state.whole, _maker(each, after), False, each.id, after.id)


def _maker(each: FileVersion, after: _Occurrences) -> MadeBy | None:
    """The operation between two states; None if another program, or a state that is not kept, may be between them."""
    if after is _GONE:
        return each.ended_by if each.ended_by and each.ended_by.operation in DELETING else None
    return after.by if after.previous == each.id else None


async def find(site: Site, request: Request) -> Response:
    """Show the changes by which a text came and went, the newest first."""
    agent, path = of_request(request)
    after = query(request, "after", 1200) if path else ""
    search = TextSearch(site.memory(agent), agent, path, query(request, "q").strip(), await site.written_log())
    if search.text:
        with suppress(TimeoutError):  # the page says that not all versions were looked at
            async with asyncio.timeout(_SECONDS), site.large:
                await search.run(after)
    return site.page(request, "find.html", agent=agent, path=path, search=search, now=NOW)
