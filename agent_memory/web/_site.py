"""What all pages share: the service, the view of it, and the templates."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from agent_memory.audit import LogLocation
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileTooLargeError,
    InvalidPathError,
    OperationDenied,
    UnsupportedOperationError,
)
from agent_memory.key.quoting import counted
from agent_memory.memory import AsyncAgentMemory
from agent_memory.runtime.threads import in_thread
from agent_memory.service import AsyncAgentMemoryService
from agent_memory.web import _text
from agent_memory.web._access import CSRF
from agent_memory.web._chain import Chain
from agent_memory.web._left_out import begin_count

STATIC: Final = Path(__file__).parent / "static"
"""The files that pages load: style, scripts and an icon."""
SECONDS: Final = 20.0
"""The seconds in which a page must be made."""
_STATUS: Final[tuple[tuple[type[Exception], int, str], ...]] = (
    (AgentMemoryFileNotFoundError, 404, "Not found"),
    (InvalidPathError, 404, "No such name"),
    (OperationDenied, 403, "Refused"),
    (ConflictError, 409, "Changed meanwhile"),
    (FileTooLargeError, 413, "Too large"),
    (UnsupportedOperationError, 422, "Not possible here"),
    (AgentMemoryError, 502, "The storage failed"),
)


@dataclass(frozen=True)
class Site:
    """One application.

    Attributes:
        service: the memories of all agents.
        agent: the only agent that the pages show; None for all.
        log: the audit log; None if there is none.
        allow_write: whether pages may change files.
        large: admits few requests at once that hold a whole file in memory.
        searching: admits few searches at once.
        chain: the verifications of the log; None if there is no log.
        style: the style of pages that are exported as files; "" for pages of a server.
        policy: the content security policy of pages that are exported.
    """

    service: AsyncAgentMemoryService
    agent: str | None
    log: LogLocation | None
    allow_write: bool
    large: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))
    searching: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))
    chain: Chain | None = None
    style: str = ""
    policy: str = ""

    def memory(self, agent: str) -> AsyncAgentMemory:
        """The memory of an agent.

        Raises:
            HTTPException: the pages do not show this agent.
            InvalidAgentIdError: no agent can have this id.
        """
        if self.agent is not None and agent != self.agent:
            raise HTTPException(404)
        memory = self.service.agent(agent)
        return memory if self.allow_write else memory.read_only()

    async def written_log(self) -> LogLocation | None:
        """The audit log; None if there is none, or if it has no record yet."""
        log = self.log
        return log if log is not None and await in_thread(lambda: bool(log.parts())) else None

    async def agents(self) -> tuple[str, ...]:
        """The agents that the pages show, in the order of their ids."""
        return await self.service.agent_ids() if self.agent is None else (self.agent,)

    def page(self, request: Request, template: str, status: int = 200, **facts: object) -> HTMLResponse:
        """A page made from a template."""
        shared = {
            "site": self,
            "csrf": request.scope.get(CSRF, ""),
            "agent": None,
            "path": None,
            "query": "",
            "section": "memory",
        }
        return HTMLResponse(render(template, {**shared, **facts}), status)


Handler: TypeAlias = Callable[[Site, Request], Awaitable[Response]]


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("agent_memory.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    environment.filters |= {name: getattr(_text, name) for name in ("shown", "plain", "when", "size")}
    environment.filters["counted"] = counted
    environment.globals |= {"url": _text.url, "marked": _text.marked, "deleting": _text.DELETING}
    return environment


_environment_of_pages: Final = _environment()


def render(template: str, facts: Mapping[str, object]) -> str:
    """The text of a page; every fact is escaped unless it is markup of this package."""
    return _environment_of_pages.get_template(template).render(facts)


def answering(
    site: Site, handler: Handler, *, seconds: float | None = SECONDS
) -> Callable[[Request], Awaitable[Response]]:
    """A route that answers errors of the storage with a page, and gives up after some seconds.

    A change has no limit: after a timeout its outcome would be unknown.
    """

    async def answer(request: Request) -> Response:
        begin_count()
        try:
            async with asyncio.timeout(seconds):
                return await handler(site, request)
        except TimeoutError:
            return problem(
                site, request, 503, "It took too long", f"The storage did not answer in {SECONDS:g} seconds."
            )
        except AgentMemoryError as error:
            status, title = next((status, title) for kind, status, title in _STATUS if isinstance(error, kind))
            return problem(site, request, status, title, str(error))

    return answer


def problem(site: Site, request: Request, status: int, title: str, text: str) -> Response:
    """The page of an error."""
    return site.page(request, "problem.html", status, title=title, text=text)


def refused(status: int, reason: str) -> Response:
    """The page for a request that may not use the pages; it tells nothing of the store."""
    return HTMLResponse(render("refused.html", {"reason": reason}), status)


def number_in(request: Request, name: str, default: int, most: int = 2**53) -> int:
    """A whole number of the query, from 0 on; the default if it is none."""
    text = request.query_params.get(name, "")
    return min(int(text), most) if text.isascii() and text.isdecimal() and len(text) < 17 else default


def query(request: Request, name: str, most: int = 500) -> str:
    """A text of the query, cut after ``most`` characters."""
    return request.query_params.get(name, "")[:most]


Facts: TypeAlias = dict[str, Any]
