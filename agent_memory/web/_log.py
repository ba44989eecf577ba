"""The pages of the audit log: the timeline, and the state of the chain."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from agent_memory.audit import LogLocation
from agent_memory.audit.filtering import EDITED, RecordFilter, spellings_of, time_of
from agent_memory.runtime.threads import in_thread
from agent_memory.web._pictures import days
from agent_memory.web._site import Site, query, render
from agent_memory.web._timeline import DAYS, Activity, TimelinePage, activity, timeline

_ACTORS: Final = 8
"""The actors that have a picture."""
_NOTHING: Final = dict.fromkeys(
    (
        "actor", "agent", "path", "target", "operation", "outcome", "error", "size", "tool_call_id", "reason",
        "replayed", EDITED,
    )
)  # fmt: skip
"""The fields of a record that a page shows, which a record may lack."""


async def timeline_page(site: Site, request: Request) -> Response:
    """Show who did what, the newest first."""
    wanted = {name: query(request, name) for name in ("agent", "actor", "path", "call", "day")}
    wanted["agent"] = site.agent or wanted["agent"]
    facts: dict[str, Any] = {"wanted": wanted, "agent": wanted["agent"] or None, "page": None, "problem": ""}
    if (log := await site.written_log()) is None:
        return site.page(request, "timeline.html", section="timeline", **facts)
    since = _day(wanted["day"])
    if wanted["day"] and since is None:
        facts["problem"] = "The day is not one like 2026-03-01."
    facts["page"] = page = await _records(log, wanted, since, query(request, "before"))
    facts["rows"] = [{**_NOTHING, **record, "at": time_of(record).timestamp()} for record in page.records]
    if not query(request, "before") and not any(wanted[name] for name in ("actor", "path", "call", "day")):
        agent = wanted["agent"] or None
        found = await in_thread(lambda: activity(log, agent))
        facts |= {
            "activity": found,
            "picture": days(found.of(agent), DAYS),
            "actors": _busiest(found),
        }
    return site.page(request, "timeline.html", section="timeline", **facts)


async def _records(log: LogLocation, wanted: dict[str, str], since: float | None, before: str) -> TimelinePage:
    agent = wanted["agent"] or None

    def read() -> TimelinePage:
        chosen = RecordFilter(
            spellings_of(log, agent), agent=agent, path=wanted["path"] or None, actor=wanted["actor"] or None,
            tool_call=wanted["call"] or None, since=since,
            until=None if since is None else since + timedelta(days=1).total_seconds(),
        )  # fmt: skip
        return timeline(log, chosen, before)

    return await in_thread(read)


def _busiest(found: Activity) -> list[tuple[str, int, Markup]]:
    """The actors with the most changes, each with their number and a picture; all pictures have one scale."""
    busiest = sorted(found.by_actor.items(), key=lambda each: -each[1].total())[:_ACTORS]
    most = max((max(counts.values()) for _, counts in busiest), default=1)
    return [(actor, counts.total(), days(counts, DAYS, small=True, most=most)) for actor, counts in busiest]


def _day(text: str) -> float | None:
    """The beginning of a day in UTC, in POSIX seconds; None if the text is no day."""
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


async def chain_state(site: Site, request: Request) -> Response:
    """The part of a page that shows the state of the chain; with ``ask`` it is verified now."""
    return await _verified(site, request, "records")


async def files_state(site: Site, request: Request) -> Response:
    """The part of a page that shows how the files compare with the log; with ``ask`` they are compared now."""
    return await _verified(site, request, "files")


async def _verified(site: Site, request: Request, what: str) -> Response:
    if site.chain is None:
        return HTMLResponse("")
    work = getattr(site.chain, what)
    await (work.ask() if "ask" in request.query_params else work.wait())
    facts = {"work": work, "what": what, "site": site, **site.chain.facts()}
    if "HX-Request" in request.headers:
        return HTMLResponse(render("chain.html", facts))
    return site.page(request, "chain_page.html", section="timeline", **facts)
