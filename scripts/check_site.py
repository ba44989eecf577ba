"""Open pages of the built site in headless Chromium, print every finding, and exit with 1 if there is one.

    python scripts/check_site.py [DIRECTORY]    the site of `scripts/docs`, by default ./site

The check looks for violations of the rules of WCAG 2.1, levels A and AA, that axe-core can find, in light and dark
colours; for pages that scroll sideways on a narrow screen; and for requests to other hosts. It needs the extra `docs`
and a Chromium: that of the variable CHROMIUM, one installed as `chromium`, or that of `playwright install chromium`.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final, Literal
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

PAGES: Final = ("", "tutorial/", "guarantees/", "cli/", "api/service/")
RULES: Final = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]},
    "resultTypes": ["violations"],
}
NARROW: Final = 360
"""The width of a small telephone, in CSS pixels."""
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


def opened(browser: Browser, url: str, width: int, colours: Literal["light", "dark"], foreign: list[str]) -> Page:
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
    """Everything that is found on one page."""
    foreign: list[str] = []
    for colours in ("light", "dark"):
        page = opened(browser, url, 1280, colours, foreign)
        for violation in Axe().run(page, options=RULES).response["violations"]:
            for node in violation["nodes"]:
                place, summary = " ".join(map(str, node["target"])), " ".join(node["failureSummary"].split())
                yield f"{colours}: {violation['id']} ({violation['impact']}) at {place}: {summary}"
        page.close()
    page = opened(browser, url, NARROW, "light", foreign)
    width = page.evaluate("document.scrollingElement.scrollWidth")
    if width > NARROW:
        yield f"scrolls sideways: {width} pixels on a screen of {NARROW}"
    page.close()
    yield from (f"request to another host: {found}" for found in dict.fromkeys(foreign))


def main(directory: str = "site") -> int:
    """Check a built site; return the exit code."""
    found = 0
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with serving(Path(directory)) as site, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        for name in PAGES:
            for finding in findings(browser, site + name):
                found += 1
                print(f"{name or 'index'}: {finding}")
        browser.close()
    print(f"{len(PAGES)} pages, {found} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
