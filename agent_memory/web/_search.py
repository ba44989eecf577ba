"""The search over all agents: bounded in time and matches, and ended when its browser goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from agent_memory.errors import AgentMemoryError
from agent_memory.tools.search import AsyncMemorySearch, LineMatch
from agent_memory.web._site import Site, query, render

T = TypeVar("T")
MOST: Final = 50
"""The matches of a search."""
_SECONDS: Final = 3.0
_SHORTEST: Final = 2
_LOOK: Final = 0.1


class AgentMatch(NamedTuple):
    """A matching line of an agent's file."""

    agent: str
    match: LineMatch


class Searched(NamedTuple):
    """The result of a search: the matches, the agents, and what it did not look at."""

    query: str
    matches: list[AgentMatch]
    agents: list[str]
    more: bool
    late: bool
    failed: int

    @property
    def is_short(self) -> bool:
        """Whether the query is too short to be searched for."""
        return len(self.query) < _SHORTEST


async def search(site: Site, request: Request) -> Response:
    """The page of a search."""
    found = await _searched(site, request)
    return site.page(request, "search.html", query=found.query, found=found)


async def found(site: Site, request: Request) -> Response:
    """The part of a page that shows the matches, while a person types."""
    result = await _searched(site, request)
    return HTMLResponse(render("found.html", {"found": result, "site": site}) if result.query else "")


async def _searched(site: Site, request: Request) -> Searched:
    text = query(request, "q").strip()
    result = Searched(text, [], [], False, False, 0)
    if result.is_short:
        return result
    try:
        async with asyncio.timeout(_SECONDS), site.searching:
            return await _unless_gone(request, _search(site, result))
    except TimeoutError:
        return result._replace(late=True)


async def _search(site: Site, found: Searched) -> Searched:
    failed, matches, agents = 0, found.matches, await site.agents()
    found.agents.extend(agents)
    for agent in agents:
        left = MOST - len(matches)
        if not left:
            return found._replace(more=True, failed=failed)
        try:
            result = await AsyncMemorySearch(site.memory(agent), history=True).search(found.query, max_results=left)
        except AgentMemoryError:
            failed += 1
            continue
        matches.extend(AgentMatch(agent, match) for match in result.matches)
        failed += len(result.left_out)
        if result.more:
            return found._replace(more=True, failed=failed)
    return found._replace(failed=failed)


async def _unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Do work until the browser of the request goes away, as it does when a newer search replaces this one."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=_LOOK)
            if not task.done() and await request.is_disconnected():
                task.cancel()
                await asyncio.wait([task])
                raise TimeoutError
        return task.result()
    finally:
        task.cancel()
