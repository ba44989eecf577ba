"""The pages of an agent: its tree, a file in its views, and the download of a file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from agent_memory.backend import Entry, ETag
from agent_memory.errors import AgentMemoryFileNotFoundError, ConflictError
from agent_memory.memory import AsyncAgentMemory
from agent_memory.reading.reader import Reader
from agent_memory.web._left_out import begin_count
from agent_memory.web._site import Site, number_in, query
from agent_memory.web._text import quoted, shown, size, url, when
from agent_memory.web._views import VIEWS, views_of

PAGE: Final = 1000
"""The entries of a page."""
_CHUNK: Final = 1024 * 1024
_DOWNLOAD_POLICY: Final = "sandbox; default-src 'none'; frame-ancestors 'none'"


class TreeRow(NamedTuple):
    """A name in a directory: its page, and the facts as they are shown."""

    href: str
    name: Markup
    size: str
    modified: Markup


async def tree(site: Site, request: Request) -> Response:
    """List a directory: one page of its entries."""
    agent, path = of_request(request)
    memory, counts, after = site.memory(agent), begin_count(), query(request, "after", 1000)
    entries = await memory.list(path, recursive=False, after=after or None)
    if path and not entries and not after:
        await memory.stat(path)  # raises, if there is no such file
        return RedirectResponse(url("agents", agent, "file", path), 303)
    left = max(0, len(entries) - PAGE)
    path = "/".join(filter(None, path.split("/")))
    return site.page(
        request, "tree.html", agent=agent, path=path, after=after, left=left, left_out=sum(counts),
        entries=[*_rows(agent, path, entries[:PAGE])], last=entries[PAGE - 1].path if left else "",
    )  # fmt: skip


def _rows(agent: str, path: str, entries: Sequence[Entry]) -> Iterator[TreeRow]:
    """The rows of a directory; the address above the names is the same for all."""
    above = f"{path}/" if path else ""
    files, trees = url("agents", agent, "file", above), url("agents", agent, "tree", above)
    for entry in entries:
        name = entry.path.rpartition("/")[2]
        if entry.is_directory:
            yield TreeRow(trees + quoted(name), shown(f"{name}/"), "", Markup(""))
        else:
            yield TreeRow(files + quoted(name), shown(name), size(entry.size), when(entry.modified))


async def file(site: Site, request: Request) -> Response:
    """Show a file in one of its views."""
    agent, path = of_request(request)
    memory = site.memory(agent)
    try:
        entry = await memory.stat(path)
    except AgentMemoryFileNotFoundError:
        return await _missing(request, memory)
    views = views_of(path)
    view = query(request, "as") if query(request, "as") in VIEWS else views[0]
    facts: dict[str, Any] = {"found": None}
    facts |= await VIEWS[view](site, memory, path, number_in(request, "at", 0), number_in(request, "line", 1))
    versions = await memory.versions.list(path, limit=1)
    made_by = versions[0].made_by if versions else None
    return site.page(
        request, "file.html", agent=agent, path=path, entry=entry, view=view, views=views,
        made_by=made_by, appended=versions[0].appended_bytes if versions else 0,
        line=number_in(request, "line", 0),
        restored="restored" in request.query_params and made_by is not None and made_by.operation == "restore", **facts,
    )  # fmt: skip


async def _missing(request: Request, memory: AsyncAgentMemory) -> Response:
    agent, path = of_request(request)
    if await memory.is_directory(path):
        return RedirectResponse(url("agents", agent, "tree", path), 303)
    if await memory.versions.list(path, limit=1):
        return RedirectResponse(url("agents", agent, "versions", path), 303)
    raise AgentMemoryFileNotFoundError("no such file", path=path)


async def download(site: Site, request: Request) -> Response:
    """Send a file in ranges of one state; a change of the file ends the connection."""
    agent, path = of_request(request)
    memory = site.memory(agent)
    first, size, etag = await memory.scan(path, partial(_range, at=0))

    async def chunks() -> AsyncIterator[bytes]:
        at, data = 0, first
        while data:
            yield data
            at += len(data)
            data, _, found = await memory.scan(path, partial(_range, at=at)) if at < size else (b"", size, etag)
            if found != etag:
                raise ConflictError("the file changed while it was sent", path=path)

    return StreamingResponse(chunks(), headers=_of_attachment(path, size))


def attachment(path: str, data: bytes) -> Response:
    """The bytes of a file as a download, which no browser shows as a page."""
    return Response(data, headers=_of_attachment(path, len(data)))


def _of_attachment(path: str, size: int) -> dict[str, str]:
    name = quote(path.rpartition("/")[2], safe="")
    return {
        "Content-Type": "application/octet-stream",
        "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
        "Content-Length": str(size),
        "Content-Security-Policy": _DOWNLOAD_POLICY,
    }


async def _range(reader: Reader, *, at: int) -> tuple[bytes, int, ETag | None]:
    return await reader.read(at, at + _CHUNK), reader.size, reader.etag


def of_request(request: Request) -> tuple[str, str]:
    """The agent and the path in the address of a request."""
    return request.path_params["agent"], request.path_params["path"].rstrip("/")
