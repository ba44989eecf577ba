"""The changes that a person can make: restore, take back one change, undo, redact; only with ``allow_write``.

Each is a form with the CSRF token of the session and the state that was shown. If that is not the state now, nothing is
changed, and the page shows what another person or agent changed meanwhile.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from agent_memory import Undone, UndoResult
from agent_memory.backend import ABSENT, ETag
from agent_memory.errors import AgentMemoryFileNotFoundError, ConflictError, FileAlreadyExistsError, InvalidContentError
from agent_memory.memory import AsyncAgentMemory
from agent_memory.reading.reader import Reader
from agent_memory.web._access import is_csrf
from agent_memory.web._site import Facts, Handler, Site, problem
from agent_memory.web._text import url
from agent_memory.web._versions import NOW, comparison_of, contents_of, without_change

_MOST_BYTES: Final = 64 * 1024
_MOST_FIELDS: Final = 20
_MOST_APPENDED: Final = 20_000
_MOST_CHANGED: Final = 10
_STALE: Final = 409
_NUMBER: Final = re.compile(r"[0-9]{1,15}")
_FORM: Final = "application/x-www-form-urlencoded"
MOST_STEPS: Final = 500
"""The steps of an undo that a page shows."""
Change = Callable[[Site, Request, AsyncAgentMemory, Mapping[str, str]], Awaitable[Response]]


def changing(change: Change) -> Handler:
    """A route for a form: it refuses one without the CSRF token, or one that is too large."""

    async def handler(site: Site, request: Request) -> Response:
        if "transfer-encoding" in request.headers:  # with it a server ignores the size
            return problem(site, request, 411, "No size", "A form is sent with its size.")
        size = request.headers.get("content-length", "")
        if not (size.isdecimal() and len(size) < 8 and int(size) <= _MOST_BYTES):
            return problem(site, request, 413, "Too large", "The form has no size, or is too large.")
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
            return problem(site, request, 415, "No form", "A change is sent as a form.")
        form = _texts(await request.body())
        if not is_csrf(request.scope, form.get("csrf")):
            return problem(site, request, 403, "Not sent by these pages", "The form has no token of this session.")
        return await change(site, request, site.memory(request.path_params["agent"]), form)

    return handler


def _texts(body: bytes) -> dict[str, str]:
    """The fields of a form; none, if it is not text or has too many."""
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS))
    except ValueError:
        return {}


async def restore(site: Site, request: Request, memory: AsyncAgentMemory, form: Mapping[str, str]) -> Response:
    """Write an earlier version as the current file, if that is the one that was shown."""
    agent, path, id_ = request.path_params["agent"], form.get("path", ""), form.get("version", "")
    try:
        when = await _shown_state(memory, path, form)
        await memory.versions.restore(path, id_, when=when or ABSENT)
    except (ConflictError, FileAlreadyExistsError):
        return await _stale(site, request, memory, form, "restored")
    return RedirectResponse(url("agents", agent, "file", path, restored=1), 303)


async def revert(site: Site, request: Request, memory: AsyncAgentMemory, form: Mapping[str, str]) -> Response:
    """Write the current file without one earlier change, if it is the file that was shown."""
    agent, path, id_ = request.path_params["agent"], form.get("path", ""), form.get("new", "")
    try:
        when = await _shown_state(memory, path, form)
        if when is None:
            raise ConflictError("the file is deleted; restore a version", path=path)
        async with site.large:
            sides = await contents_of(memory, path, form.get("version", ""), id_)
            texts = await without_change(memory, path, id_, *sides)
        if texts is None:
            return problem(site, request, 422, "Not taken back", "Later changes touch the lines of this change.")
        await memory.write(path, texts[1], when=when)
    except ConflictError:
        return await _stale(site, request, memory, form, "taken back")
    return RedirectResponse(url("agents", agent, "diff", path, taken_back=1), 303)


async def redact(site: Site, request: Request, memory: AsyncAgentMemory, form: Mapping[str, str]) -> Response:
    """Erase the content of an earlier version, if the current file is the one that was shown."""
    agent, path, id_ = request.path_params["agent"], form.get("path", ""), form.get("version", "")
    try:
        await _shown_state(memory, path, form)
    except ConflictError:
        return await _stale(site, request, memory, form, "redacted")
    try:
        result = await memory.versions.redact(path, id_, reason=form.get("reason", "").strip())
    except (ConflictError, InvalidContentError) as error:
        return problem(site, request, 422, "Not redacted", str(error))
    return site.page(request, "redacted.html", agent=agent, path=path, id=id_, result=result, now=NOW)


async def _shown_state(memory: AsyncAgentMemory, path: str, form: Mapping[str, str]) -> ETag | None:
    """The etag of the current file; None if it is deleted.

    Raises:
        ConflictError: it is not the etag that the form has, or the form has none.
    """
    try:
        etag = (await memory.stat(path)).etag
    except AgentMemoryFileNotFoundError:
        etag = None
    if "etag" not in form or form["etag"] != (etag.token if etag else ""):
        raise ConflictError("the file changed since it was shown; nothing was changed", path=path)
    return etag


async def _stale(
    site: Site, request: Request, memory: AsyncAgentMemory, form: Mapping[str, str], what: str
) -> Response:
    """Show the current file beside the state that the form was made for."""
    agent, path = request.path_params["agent"], form.get("path", "")
    listed = await memory.versions.list(path, limit=2)
    facts: Facts = {"found": None, "problem": "The state that you saw is not kept.", "appended": ""}
    seen, size = form.get("seen", ""), form.get("size", "")
    if seen and listed and listed[0].ended_by is None and seen == listed[0].id and _NUMBER.fullmatch(size):
        facts |= {"appended": await memory.scan(path, partial(_appended, int(size)))}
    if seen and listed and listed[0].ended_by is None and seen != listed[0].id:
        with suppress(AgentMemoryFileNotFoundError):
            async with site.large:
                facts |= await comparison_of(*await contents_of(memory, path, seen, NOW))
    return site.page(
        request, "stale.html", _STALE, agent=agent, path=path, what=what, versions=listed,
        version=form.get("version", ""), now=NOW, old=seen, new=NOW, by_id={}, **facts,
    )  # fmt: skip


async def _appended(size: int, reader: Reader) -> str:
    """The text after the first bytes of a file; an append makes no version."""
    return (await reader.read(size, size + _MOST_APPENDED)).decode(errors="replace")


async def preview(site: Site, request: Request) -> Response:
    """Show what an undo would do; it is made only of these steps, for these states of the files."""
    given = {name: request.query_params.get(name, "")[:500] for name in ("actor", "call", "since")}
    return await _preview(site, request, given)


async def undo(site: Site, request: Request, memory: AsyncAgentMemory, form: Mapping[str, str]) -> Response:
    """Make the steps that were shown, if they are for the states of the files now."""
    selection, problem_ = _selected(form)
    if problem_ or not any(selection.values()):
        return await _preview(site, request, form, status=422)
    audit = await site.written_log()
    shown = await memory.versions.undo(**selection, audit=audit, dry_run=True)
    if form.get("steps") != digest_of(shown.done):
        return await _preview(site, request, form, status=_STALE)
    try:
        result = await memory.versions.undo(**selection, audit=audit, shown=shown.done)
    except ConflictError:
        return await _preview(site, request, form, status=_STALE)
    if result.left and not result.done:  # each file was changed after the steps were planned again
        return await _preview(site, request, form, status=_STALE)
    return site.page(request, "undone.html", agent=request.path_params["agent"], result=result, selection=selection)


async def _preview(site: Site, request: Request, given: Mapping[str, str], *, status: int = 200) -> Response:
    agent = request.path_params["agent"]
    memory = site.memory(agent)
    wanted = {name: given.get(name, "") for name in ("actor", "call", "since")}
    facts: Facts = {"result": None, "rows": (), "steps": "", "problem": "", "stale": status == _STALE, "changed": ()}
    if status == _STALE:
        facts["changed"] = await memory.versions.list("", limit=_MOST_CHANGED)
    if any(wanted.values()):
        selection, facts["problem"] = _selected(wanted)
        if not facts["problem"]:
            result = await memory.versions.undo(**selection, audit=await site.written_log(), dry_run=True)
            facts |= await _steps(memory, result)
    return site.page(request, "undo.html", status, agent=agent, wanted=wanted, now=NOW, **facts)


async def _steps(memory: AsyncAgentMemory, result: UndoResult) -> Facts:
    """The steps of an undo, each with the last change of its file: that is what the undo would take back."""
    rows = []
    for each in result.done[:MOST_STEPS]:
        found = await memory.versions.list(each.path, limit=1)
        rows.append((each, (found[0].ended_by or found[0].made_by) if found else None))
    return {"result": result, "rows": rows, "steps": digest_of(result.done)}


def digest_of(steps: Sequence[Undone]) -> str:
    """A digest of steps and of the states of the files that they are for."""
    facts = [(each.path, each.action, each.version, each.cut_bytes, each.etag and each.etag.token) for each in steps]
    return hashlib.sha256(repr(facts).encode("utf-8", "surrogatepass")).hexdigest()


def _selected(given: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """The selection of an undo; or why it is none."""
    since = None
    if text := given.get("since", ""):
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return {}, "The time is not one like 2026-03-01T09:12."
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return {"actor": given.get("actor") or None, "tool_call_id": given.get("call") or None, "since": since}, ""


CHANGES: Final[Mapping[str, Change]] = {"restore": restore, "revert": revert, "undo": undo, "redact": redact}
"""The changes by the name in the address."""
