"""The pages of versions: their list, the content of one, and two of them side by side."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from agent_memory.core.versions.states import FileVersion
from agent_memory.errors import AgentMemoryFileNotFoundError
from agent_memory.memory import AsyncAgentMemory
from agent_memory.reading.reader import Reader
from agent_memory.runtime.threads import in_thread
from agent_memory.web._compare import Comparison, compare
from agent_memory.web._files import attachment, of_request
from agent_memory.web._pictures import sizes
from agent_memory.web._reverting import reverted
from agent_memory.web._site import Site, query

PAGE: Final = 50
"""The versions of a page."""
NOW: Final = "now"
"""The name of the current file in the address of a comparison; the id of a version is hexadecimal."""
MOST_COMPARED: Final = 1_000_000
"""The bytes of each side of a comparison."""
_MOST_REVERTED: Final = 1000
_MOST_SHOWN: Final = 200_000


async def versions(site: Site, request: Request) -> Response:
    """List the versions of a file, the newest first; or without a path what was replaced or deleted last."""
    agent, path = of_request(request)
    memory, after = site.memory(agent), query(request, "after", 1200)
    found = await memory.versions.list(path, limit=PAGE + 1, after=after or None)
    kept = await memory.versions.limits() is not None
    if path and not found and not after:
        await memory.stat(path)  # raises, if there is no such file
    page = found[:PAGE]
    return site.page(
        request, "versions.html", agent=agent, path=path, versions=page, more=len(found) > PAGE, after=after, kept=kept,
        next=cursor(page[-1], path) if page else "", picture=sizes(_points(page)) if path and not after else "",
        now=NOW, **await _state(memory, path if site.allow_write else ""),
    )  # fmt: skip


async def _state(memory: AsyncAgentMemory, path: str) -> dict[str, Any]:
    """The current file, as a change depends on it: its etag, its version and its size; "" if it is deleted."""
    try:
        entry = await memory.stat(path) if path else None
    except AgentMemoryFileNotFoundError:
        entry = None
    if entry is None or entry.etag is None:
        return {"etag": "", "seen": "", "size": 0}
    seen = await memory.versions.list(path, limit=1)
    return {"etag": entry.etag.token, "seen": seen[0].id if seen else "", "size": entry.size}


def name_of(version: FileVersion) -> str:
    """The name of a version in an address: its id, or `NOW`."""
    return NOW if version.ended_by is None else version.id


async def pages_of(
    memory: AsyncAgentMemory, path: str, limit: int, after: str = ""
) -> AsyncIterator[tuple[FileVersion, ...]]:
    """The versions of a file, or of all files, in pages of at most ``limit``; ``after`` is a `cursor`."""
    while page := await memory.versions.list(path, limit=limit, after=after or None):
        yield page
        after = cursor(page[-1], path)


def cursor(version: FileVersion, path: str) -> str:
    """What continues a list after a version: of a file, or of all files."""
    return version.id if path else f"{version.path}@{version.id}"


def _points(found: Sequence[FileVersion]) -> list[tuple[float, int]]:
    """The times and sizes of versions, the oldest first."""
    return [(each.made_by.time, each.size) for each in reversed(found) if each.made_by and each.reason is None]


async def version(site: Site, request: Request) -> Response:
    """Show an earlier version; with ``download`` its bytes."""
    agent, path = of_request(request)
    memory, id_ = site.memory(agent), query(request, "id", 100)
    async with site.large:
        data = await memory.versions.read_bytes(path, id_)
    if "download" in request.query_params:
        return attachment(path, data)
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError:
        lines = None
    text = "\n".join(lines)[:_MOST_SHOWN].split("\n") if lines else []
    return site.page(
        request, "version.html", agent=agent, path=path, id=id_, bytes=len(data), lines=text, is_text=lines is not None,
        left=max(0, len(data) - _MOST_SHOWN), now=NOW, **await _state(memory, path if site.allow_write else ""),
    )  # fmt: skip


async def diff(site: Site, request: Request) -> Response:
    """Show two versions side by side; unasked the last earlier one and the current file."""
    agent, path = of_request(request)
    memory = site.memory(agent)
    state = await _state(memory, path if site.allow_write else "")  # a write after this makes the form's etag stale
    listed = await memory.versions.list(path, limit=PAGE)
    old, new = query(request, "old", 100), query(request, "new", 100) or NOW
    old = old or next((each.id for each in listed if each.ended_by), "")
    facts: dict[str, Any] = {"problem": "", "found": None, "reverted": None}
    if not old:
        facts["problem"] = "No earlier version of this file is kept, so there is nothing to compare."
    elif NOW in (old, new) and listed and listed[0].ended_by:
        facts["problem"] = "The file is deleted now, so there is nothing to compare with."
    else:
        later = new != NOW or (listed and listed[0].appended_bytes)  # else the page restores the old version
        async with site.large:
            sides = await contents_of(memory, path, old, new)
            facts |= await comparison_of(*sides)
            if site.allow_write and later and old != NOW and _is_small(facts["found"]):
                facts["reverted"] = await _reverting(memory, path, new, *sides)
    return site.page(
        request, "diff.html", agent=agent, path=path, old=old, new=new, versions=listed,
        by_id={name_of(each): each for each in listed}, now=NOW, taken_back="taken_back" in request.query_params,
        **facts, **state,
    )  # fmt: skip


async def comparison_of(old: bytes, new: bytes) -> dict[str, Any]:
    """The comparison of two contents for a page; or why they are not compared."""
    if max(len(old), len(new)) > MOST_COMPARED:
        return {"problem": f"Versions of more than {MOST_COMPARED:,} bytes are not compared here."}
    try:
        texts = old.decode(), new.decode()
    except UnicodeDecodeError:
        return {"problem": f"These bytes are not text in UTF-8. They are {'equal' if old == new else 'different'}."}
    return {"problem": "", "found": await in_thread(lambda: compare(*texts))}


def _is_small(found: Comparison | None) -> bool:
    """Whether a change is shown whole, with few enough lines to be compared once more."""
    if found is None or found.old_left or found.new_left:
        return False
    return found.removed + found.added <= _MOST_REVERTED


async def _reverting(memory: AsyncAgentMemory, path: str, id_: str, old: bytes, new: bytes) -> Comparison | None:
    """The current file beside what it would be without a change; None if that is not possible."""
    try:
        texts = await without_change(memory, path, id_, old, new)
    except AgentMemoryFileNotFoundError:
        return None
    return None if texts is None else await in_thread(lambda: compare(*texts))


async def without_change(
    memory: AsyncAgentMemory, path: str, id_: str, old: bytes, new: bytes
) -> tuple[str, str] | None:
    """The current text, and what it is without the change to a version; None if the change cannot be taken back alone.

    Args:
        memory: the memory of the agent.
        path: the file.
        id_: the version, or `NOW`.
        old: the content before the change.
        new: the content of the version.
    """
    now = new if id_ == NOW else await content_of(memory, path, NOW)
    if max(len(old), len(new), len(now)) > MOST_COMPARED:
        return None
    made = new[: max(0, len(new) - await _appended_bytes(memory, path, id_))]  # the appends are later changes
    try:
        texts = old.decode(), made.decode(), now.decode()
    except UnicodeDecodeError:
        return None
    text = await in_thread(lambda: reverted(*texts))
    return None if text is None or text == texts[2] else (texts[2], text)


async def _appended_bytes(memory: AsyncAgentMemory, path: str, id_: str) -> int:
    async for page in pages_of(memory, path, PAGE):
        for each in page:
            if name_of(each) == id_:
                return each.appended_bytes
    return 0


async def contents_of(memory: AsyncAgentMemory, path: str, old: str, new: str) -> tuple[bytes, bytes]:
    """The contents of two versions."""
    return await content_of(memory, path, old), await content_of(memory, path, new)


async def content_of(memory: AsyncAgentMemory, path: str, id_: str) -> bytes:
    """The content of a version; of the current file a little more than is compared."""
    if id_ != NOW:
        return await memory.versions.read_bytes(path, id_)

    async def read(reader: Reader) -> bytes:
        return await reader.read(0, MOST_COMPARED + 1)

    return await memory.scan(path, read)
