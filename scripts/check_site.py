"""Open pages of the built site in headless Chromium, print every finding, and exit with 1 if there is one.

    python scripts/check_site.py [DIRECTORY]    the site of `scripts/docs`, by default ./site

The check looks for violations of the rules of WCAG 2.1, levels A and AA, that axe-core can find, in light and dark
colours on a wide and a narrow screen; for pages that scroll sideways, and a first block of code that does; for requests
to other hosts; and for words of a user whose page the site's search does not show among its first two. It needs the
extra `docs` and a Chromium: that of the variable CHROMIUM, one installed as `chromium`, or that of `playwright install
chromium`.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from threading import Thread
from typing import Final, Literal, get_args
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright
from playwright.sync_api import TimeoutError as NotInTimeError

Colours = Literal["light", "dark"]

PAGES: Final = ("", "tutorial/", "guarantees/", "versions/", "s3/", "cli/", "api/service/", "api/memory/")
RULES: Final = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]},
    "resultTypes": ["violations"],
}
NARROW: Final = 360
"""The width of a small telephone, in CSS pixels."""
TELEPHONE: Final = 390
"""The width of a usual telephone, on which the first block of code of the front page is whole."""
WIDE: Final = 1280
"""The width of a laptop."""
SEARCHES: Final = {
    "install": "",
    "limits": "limits/",
    "audit log": "audit/",
    "delete a user": "tenants/",
    "s3 credentials": "s3/",
    "retention": "versions/",
    "tenant": "tenants/",
    "docker": "production/",
    "kubernetes": "production/",
    "fastapi": "production/",
    "metrics": "telemetry/",
    "opentelemetry": "telemetry/",
    "gdpr": "tenants/",
    "backup": "backup/",
    "undo": "versions/",
    "credentials expired": "s3/",
    "cost": "costs/",
    "incident": "runbook/",
}
"""What a user types into the search, and the page that must be among the first two that it shows."""
_HOST: Final = "127.0.0.1"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Print nothing."""


@contextmanager
def serving(directory: Path) -> Iterator[str]:
    """Serve a directory on a free port of this host, and give its URL."""
    with ThreadingHTTPServer((_HOST, 0), partial(_Quiet, directory=str(directory))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://{_HOST}:{server.server_port}/"
        finally:
            server.shutdown()


def opened(browser: Browser, url: str, width: int, colours: Colours, foreign: list[str]) -> Page:
    """Open a page in a window of its own; requests to other hosts are added to ``foreign`` and refused."""
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=colours)
    page.on("request", lambda request: foreign.append(request.url) if _is_foreign(request.url) else None)
    page.route(_is_foreign, lambda route: route.abort())
    answer = page.goto(url, wait_until="load")
    if answer is None or not answer.ok:
        raise SystemExit(f"{url}: no such page")
    page.wait_for_timeout(500)  # the theme puts tables into boxes after the page has loaded
    return page


def _is_foreign(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in ("http", "https") and parts.hostname != _HOST


def findings(browser: Browser, url: str) -> Iterator[str]:
    """Everything that is found on one page, on a wide and a narrow screen, in light and dark colours."""
    foreign: list[str] = []
    for width, colours in product((WIDE, NARROW), get_args(Colours)):
        page = opened(browser, url, width, colours, foreign)
        for violation in violations(page):
            yield f"{width} pixels, {colours}: {violation}"
        scrolled = page.evaluate("document.scrollingElement.scrollWidth")
        if scrolled > width:
            yield f"{width} pixels, {colours}: scrolls sideways, the page has {scrolled} pixels"
        page.close()
    yield from (f"request to another host: {found}" for found in dict.fromkeys(foreign))


def violations(page: Page) -> Iterator[str]:
    """The violations that axe-core finds on an open page."""
    for violation in Axe().run(page, options=RULES).response["violations"]:
        first, *more = violation["nodes"]
        place, summary = " ".join(map(str, first["target"])), " ".join(first["failureSummary"].split())
        yield f"{violation['id']} ({violation['impact']}) at {place}, and {len(more)} more: {summary}"


def cut_code(browser: Browser, url: str) -> Iterator[str]:
    """The screens on which the first block of code of a page, or its box, is cut at the right."""
    for width in (TELEPHONE, WIDE):
        page = opened(browser, url, width, "light", [])
        block = page.locator(".md-content pre code").first
        shown, whole = block.evaluate("code => [code.clientWidth, code.scrollWidth]")
        if whole > shown:
            yield f"{width} pixels: the first block of code has {whole} pixels, and its box {shown}"
        page.close()


def missed(browser: Browser, url: str) -> Iterator[str]:
    """The searches whose page is not among the first two that the site's search shows."""
    for words, wanted in SEARCHES.items():
        page = opened(browser, url, WIDE, "light", [])
        field = page.get_by_role("textbox", name="Search")
        field.fill(words)  # at once: typed, a part of the words has results too
        field.press("End")  # a key begins the search
        items = page.locator(".md-search-result__item")  # one for each page, with its sections
        with suppress(NotInTimeError):  # then there are none
            items.first.wait_for(state="attached")
        hits = items.all()[:2]
        shown = [hit.locator("a").first.evaluate("link => link.pathname.slice(1)") for hit in hits]
        if wanted not in shown:
            yield f"search for {words!r}: {wanted or 'the front page'} is not among the first two, {shown}"
        page.close()


def main(directory: str = "site") -> int:
    """Check a built site; return the exit code."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with serving(Path(directory)) as site, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        found = [f"{name or 'index'}: {finding}" for name in PAGES for finding in findings(browser, site + name)]
        found += [f"index: {finding}" for finding in cut_code(browser, site)]
        found += missed(browser, site)
        browser.close()
    print(*found, f"{len(PAGES)} pages, {len(SEARCHES)} searches, {len(found)} findings", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
