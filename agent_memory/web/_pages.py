"""The routes, and the application of all pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from agent_memory.audit import LogLocation
from agent_memory.service import AsyncAgentMemoryService
from agent_memory.web._access import Guarded, WebAccess
from agent_memory.web._chain import Chain
from agent_memory.web._changes import CHANGES, changing, preview
from agent_memory.web._files import download, file, tree
from agent_memory.web._finding import find
from agent_memory.web._home import home
from agent_memory.web._log import chain_state, files_state, timeline_page
from agent_memory.web._search import found, search
from agent_memory.web._site import STATIC, Handler, Site, answering, problem, refused
from agent_memory.web._versions import diff, version, versions

READING: dict[str, Handler] = {
    "/": home,
    "/search": search,
    "/timeline": timeline_page,
    "/timeline/chain": chain_state,
    "/timeline/files": files_state,
    "/search/found": found,
    "/agents/{agent}/tree/{path:path}": tree,
    "/agents/{agent}/file/{path:path}": file,
    "/agents/{agent}/raw/{path:path}": download,
    "/agents/{agent}/versions/{path:path}": versions,
    "/agents/{agent}/version/{path:path}": version,
    "/agents/{agent}/diff/{path:path}": diff,
    "/agents/{agent}/find/{path:path}": find,
}
"""The pages that change nothing, by their addresses."""


def _changes(site: Site) -> list[Route]:
    """The routes that change something, and the preview of an undo."""
    posts = [
        Route(f"/agents/{{agent}}/{name}", answering(site, changing(change), seconds=None), methods=["POST"])
        for name, change in CHANGES.items()
    ]
    return [Route("/agents/{agent}/undo", answering(site, preview)), *posts]


def web_app(
    service: AsyncAgentMemoryService,
    access: WebAccess,
    *,
    agent: str | None = None,
    log: LogLocation | None = None,
    allow_write: bool = False,
) -> ASGIApp:
    """Make the pages of a store as an ASGI application.

    Give it a path of its own host, and TLS if other hosts can reach it: the cookie of a session is all that protects
    the pages.

    Args:
        service: the memories of all agents; its actor is the person who uses the pages. The caller closes it.
        access: the names of the server; `WebAccess.new_link` is the way in.
        agent: show only this agent.
        log: the audit log for the timeline.
        allow_write: add the routes that change files.

    Raises:
        InvalidAgentIdError: ``agent`` is not a valid id.
    """
    if agent is not None:
        service.agent(agent)
    chain = Chain(log, agent) if log else None
    site = Site(service, agent, log, allow_write, chain=chain)

    async def failed(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        title = {404: "Not found", 405: "Not possible"}.get(status, "It failed")
        return problem(site, request, status, title, "These pages have nothing at this address.")

    async def crashed(request: Request, _: Exception) -> Response:
        return problem(site, request, 500, "It failed", "This is a defect of the pages; the log of the program has it.")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        if chain:
            chain.end()

    app = Starlette(
        lifespan=lifespan,
        routes=[
            *(Route(path, answering(site, handler)) for path, handler in READING.items()),
            *(_changes(site) if allow_write else ()),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        exception_handlers={HTTPException: failed, Exception: crashed},
    )
    app.router.redirect_slashes = False  # a redirect would repeat the Host of the request
    return Guarded(app, access, refused)
