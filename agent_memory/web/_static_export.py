"""The same pages as files of this host, without a server and without scripts."""

from __future__ import annotations

import hashlib
import html
import re
from base64 import b64encode
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from agent_memory.audit import LogLocation
from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError, FileAlreadyExistsError
from agent_memory.service import AsyncAgentMemoryService
from agent_memory.web._pages import READING
from agent_memory.web._site import STATIC, Handler, Site, problem

_LINK: Final = re.compile(r'(<a\b[^>]*?) href="(/[^"]*)"')
_MOST_OF_TIMELINE: Final = 50
_MOVED: Final = 303


@dataclass
class ExportedPages:
    """The result of an export.

    Attributes:
        pages: the number of pages.
        failed: the addresses of pages that could not be made, each with the reason.
    """

    pages: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)


class _Export:
    def __init__(self, site: Site, directory: Path, versions: bool) -> None:
        self._site = site
        self._directory = directory
        self._versions = versions
        self._routes = [Route(path, _unused, name=path) for path in READING]
        self._known = {"/"}
        self._waiting = deque(["/"])
        self._timeline = 0
        self.result = ExportedPages()

    async def run(self) -> ExportedPages:
        while self._waiting:
            address = self._waiting.popleft()
            try:
                response = await self._page(address)
            except AgentMemoryFileNotFoundError as error:
                response = self._absent(address, str(error))
            except AgentMemoryError as error:
                self.result.failed.append((address, str(error)))
                response = self._absent(address, str(error))
            self._write(address, response)
        return self.result

    async def _page(self, address: str) -> Response:
        handler, request = self._asked(address)
        response = await handler(self._site, request)
        if response.status_code == _MOVED:  # a path of a directory or of a deleted file
            target = response.headers["location"]
            return await self._page(target) if self._is_wanted(target) else self._absent(address, "It is not exported.")
        return response

    def _absent(self, address: str, reason: str) -> Response:
        return problem(self._site, self._asked(address)[1], 404, "Not here", reason)

    def _asked(self, address: str) -> tuple[Handler, Request]:
        """The handler of an address, and the request for it."""
        parts = urlsplit(address)
        scope = {
            "type": "http", "method": "GET", "path": unquote(parts.path), "query_string": parts.query.encode(),
            "headers": [],
        }  # fmt: skip
        for route in self._routes:
            match, found = route.matches(scope)
            if match is Match.FULL:
                return READING[route.path], Request({**scope, **found})
        raise AgentMemoryError("these pages have nothing at this address")

    def _write(self, address: str, response: Response) -> None:
        up = "" if address == "/" else "../"
        text = _LINK.sub(lambda found: self._linked(found, up), bytes(response.body).decode())
        target = self._directory / _name(address)
        target.parent.mkdir(exist_ok=True)
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
        self.result.pages += 1

    def _linked(self, found: re.Match[str], up: str) -> str:
        """A link to a page that is exported; any other one is text."""
        address, _, anchor = html.unescape(found[2]).partition("#")
        if not self._is_wanted(address):
            return found[1]
        if address not in self._known:
            self._known.add(address)
            self._waiting.append(address)
            self._timeline += address.startswith("/timeline")
        return f'{found[1]} href="{up}{_name(address)}{f"#{html.escape(anchor)}" if anchor else ""}"'

    def _is_wanted(self, address: str) -> bool:
        parts = urlsplit(address)
        if address in self._known:
            return True
        if parts.path == "/timeline":
            is_whole = {name for name, _ in parse_qsl(parts.query)} <= {"agent", "before"}
            return is_whole and self._timeline < _MOST_OF_TIMELINE
        kind = (parts.path.split("/") + [""] * 4)[3] if parts.path.startswith("/agents/") else ""
        if kind in ("versions", "version", "diff"):
            return self._versions and "download" not in parts.query
        return parts.path == "/" or kind in ("tree", "file")


async def _unused(_: Request) -> Response:
    raise AssertionError("the routes only find the handlers")


def _name(address: str) -> str:
    """The file of a page: a digest, because no name of an agent's file may decide over a name of the host."""
    if address == "/":
        return "index.html"
    return f"pages/{hashlib.sha256(address.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}.html"


async def export_pages(
    service: AsyncAgentMemoryService,
    directory: Path,
    *,
    agent: str | None = None,
    log: LogLocation | None = None,
    versions: bool = False,
) -> ExportedPages:
    """Write the pages of a store as HTML files without scripts; ``index.html`` is the first one.

    The pages load nothing: a policy in each forbids it. Searches, filters and downloads are not among them.

    Args:
        service: as `web_app`.
        directory: a new or an empty directory.
        agent: as `web_app`.
        log: as `web_app`.
        versions: whether to export earlier versions too.

    Raises:
        FileAlreadyExistsError: the directory is not empty, or is a file.
        InvalidAgentIdError: ``agent`` is not a valid id.
    """
    if agent is not None:
        service.agent(agent)
    _make_empty(directory)
    style = (STATIC / "style.css").read_text(encoding="utf-8")
    digest = b64encode(hashlib.sha256(style.encode()).digest()).decode()
    site = replace(
        Site(service, agent, log, allow_write=False),
        style=Markup(style),  # noqa: S704 - a file of this package
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
    )
    return await _Export(site, directory, versions).run()


def _make_empty(directory: Path) -> None:
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise FileAlreadyExistsError("the directory of the pages is not empty; choose a new one")
    directory.mkdir(parents=True, exist_ok=True)
