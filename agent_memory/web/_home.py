"""The first page: the agents of the store, each with its files, its bytes and its last change."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from agent_memory.core.limits.count import Usage
from agent_memory.errors import AgentMemoryError
from agent_memory.runtime.threads import in_thread
from agent_memory.web._pictures import days
from agent_memory.web._site import Site, query
from agent_memory.web._timeline import DAYS, activity

PAGE: Final = 50
"""The agents of a page."""
_AT_ONCE: Final = 8
_SECONDS: Final = 3.0


class AgentRow(NamedTuple):
    """An agent, and what it has; None if that could not be counted in time."""

    agent: str
    usage: Usage | None


async def home(site: Site, request: Request) -> Response:
    """List the agents after the one of ``after``."""
    after = query(request, "after")
    found = [agent for agent in await site.agents() if agent > after]
    rows = await _rows(site, found[:PAGE])
    log = await site.written_log()
    seen = await in_thread(lambda: activity(log, site.agent)) if log else None
    pictures = {agent: days(seen.of(agent), DAYS, small=True) for agent in found[:PAGE]} if seen else {}
    return site.page(
        request, "home.html", rows=rows, left=max(0, len(found) - PAGE), after=after, pictures=pictures, seen=seen,
        picture=days(seen.of(None), DAYS) if seen and not after else "",
    )  # fmt: skip


async def _rows(site: Site, agents: list[str]) -> list[AgentRow]:
    """Count what agents have, some at once; those that are not counted in time have no facts."""
    admitted = asyncio.Semaphore(_AT_ONCE)

    async def usage(agent: str) -> Usage | None:
        async with admitted:
            try:
                return await site.memory(agent).usage()
            except AgentMemoryError:
                return None

    tasks = [asyncio.create_task(usage(agent)) for agent in agents]
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=_SECONDS)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
    return [
        AgentRow(agent, None if task.cancelled() else task.result()) for agent, task in zip(agents, tasks, strict=True)
    ]
