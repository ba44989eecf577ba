"""A real browser goes over every page, by mouse and by keyboard alone, on disk and on S3.

On each page axe-core finds nothing, the console is silent, nothing scrolls sideways, and no request leaves the host.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest

from agent_memory import AgentMemoryService, VersionLimits
from tests.support import sizes
from tests.support.servers import Root
from tests.support.web_pages import SCRIPT, Pages, pages
from tests.web.seeding import seed

pytest.importorskip("playwright.sync_api", reason="needs the extra `docs`")
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

Colours = Literal["light", "dark"]
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]},
    "resultTypes": ["violations"],
}
WIDE: Any = {"width": 1600, "height": 1000}
NARROW: Any = {"width": 360, "height": 740}
PLAN = "/agents/travel-planner/file/plan.md"
ATTACK = "/agents/support-bot/file/attack"
PAGES = {
    "home": "/", "tree": "/agents/travel-planner/tree/", "file": PLAN, "markdown": f"{PLAN}?as=markdown",
    "agent": f"{PLAN}?as=agent", "json": "/agents/travel-planner/file/data/settings.json?as=json",
    "conversation": "/agents/travel-planner/file/history.jsonl", "versions": "/agents/travel-planner/versions/plan.md",
    "all-versions": "/agents/travel-planner/versions/", "compare": "/agents/travel-planner/diff/plan.md",
    "find": "/agents/travel-planner/find/?q=german", "found-none": "/agents/travel-planner/find/plan.md?q=none",
    "timeline": "/timeline", "filtered": "/timeline?agent=travel-planner&actor=cleaner",
    "chain": "/timeline/chain?ask=1", "search": "/search?q=maria", "undo": "/agents/travel-planner/undo?actor=cleaner",
    "missing": "/agents/travel-planner/file/none.md", "no-agent": "/agents/nobody/tree/",
    "hostile-tree": "/agents/support-bot/tree/attack", "hostile-text": f"{ATTACK}/text.md",
    "hostile-markdown": f"{ATTACK}/text.md?as=markdown", "hostile-bytes": f"{ATTACK}/bytes.bin",
    "hostile-line": f"{ATTACK}/long-line.txt", "hostile-history": "/agents/support-bot/file/history.jsonl",
    "hostile-compare": "/agents/support-bot/diff/attack/text.md", "long": f"{ATTACK}/lines.txt?line=2500",
    "empty": "/agents/travel-planner/file/notes/preferences.md?at=999999",
}  # fmt: skip


SEND = """change => {
    const form = document.querySelector(`form.change[action$="/${change}"]`);
    window.answered = fetch(form.action, {method: "POST", body: new URLSearchParams(new FormData(form))})
        .then(async answer => ({status: answer.status, text: await answer.text()}));
}"""
"""Sends a form of the page and does not wait for the answer."""


class Watched:
    """A page of the browser, and everything that it must not do."""

    def __init__(self, page: Page, served: Pages) -> None:
        self.page = page
        self.base = served.base
        self.home = ""
        self.faults: list[str] = []
        page.on("console", self._told)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.faults.append(f"dialog: {dialog.message}"))
        page.on("request", self._asked)

    def _told(self, message: ConsoleMessage) -> None:
        if not re.search("the server responded with a status of (404|409)", message.text):
            self.faults.append(f"console: {message.text}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((f"{self.base}/", "data:", "blob:")):
            self.faults.append(f"asks {request.url}")

    def enter(self, link: str) -> None:
        self.page.goto(link)
        self.home = self.page.url.removesuffix("/")

    def open(self, path: str) -> Page:
        self.page.goto(f"{self.home}{path}")
        return self.page

    def require_quiet(self) -> None:
        assert self.faults == []


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


on_disk_and_s3 = pytest.mark.parametrize("root", ["local", "ministack"], indirect=True)


@pytest.fixture
def watched(browser: Browser, root: Root) -> Iterator[Watched]:
    """A browser that used the link of pages with changes allowed."""
    seed(root)
    options = {"AGENT_MEMORY_STORAGE_OPTIONS": json.dumps(root.options)}
    with pages(root.url, "--json", "web", "--allow-write", "--as", "Pat", env=options) as served:
        context = browser.new_context(viewport=WIDE)
        watched = Watched(context.new_page(), served)
        watched.enter(served.link)
        yield watched
        watched.require_quiet()
        context.close()


@pytest.fixture
def pictures(request: pytest.FixtureRequest) -> Path | None:
    """Where the pictures of the docs go; only with --web-pictures."""
    found: Path | None = request.config.getoption("--web-pictures")
    return found


def faults_of(page: Page) -> list[str]:
    """The violations that axe-core finds, and whether the page scrolls sideways."""
    found: list[dict[str, Any]] = Axe().run(page, options=RULES).response["violations"]
    faults = [f"{each['id']}: {[node['html'] for node in each['nodes']][:3]}" for each in found]
    if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        faults.append("scrolls sideways")
    return faults


@on_disk_and_s3
def test_every_page_is_accessible_quiet_and_whole(watched: Watched) -> None:
    views: list[tuple[Any, Colours]] = [(WIDE, "light"), (NARROW, "dark")]
    if sizes.is_long:
        views += [(WIDE, "dark"), (NARROW, "light"), ({"width": 2560, "height": 1400}, "light")]
    faults: list[str] = []
    for name, path in {**PAGES, "version": version_of(watched)}.items():
        for size, colours in views:
            watched.page.set_viewport_size(size)
            watched.page.emulate_media(color_scheme=colours)
            page = watched.open(path)
            assert page.title().endswith("agent-memory"), page.title()
            faults += [f"{name} {size['width']} {colours}: {fault}" for fault in faults_of(page)]
    assert faults == []


def version_of(watched: Watched) -> str:
    """The address of an earlier version."""
    page = watched.open("/agents/travel-planner/versions/notes/preferences.md")
    return page.locator("a.mono").first.get_attribute("href") or ""


@pytest.mark.parametrize("root", ["local"], indirect=True)
def test_the_pictures_of_the_docs(watched: Watched, pictures: Path | None) -> None:
    watched.page.set_viewport_size({"width": 1280, "height": 720})
    watched.page.emulate_media(color_scheme="light")
    for name in ("home", "compare"):
        page = watched.open(PAGES[name])
        assert page.locator("main").is_visible()
        if pictures:
            page.screenshot(path=pictures / f"web-{name}.png")


@on_disk_and_s3
def test_by_mouse_a_person_finds_who_deleted_a_line_and_brings_it_back(watched: Watched) -> None:
    page = watched.open("/")
    page.get_by_role("searchbox").fill("German")
    page.locator("#found").get_by_role("link", name="travel-planner").click()
    removal = page.locator("tr", has_text="went")
    assert "edit by cleaner call toolu_09Zz" in " ".join(removal.inner_text().split())
    removal.get_by_role("link", name="Compare").click()
    assert page.locator("td.gone").inner_text() == "- Speaks German and English"
    assert "edit by cleaner" in page.locator("table.compare thead").first.inner_text()
    assert faults_of(page) == []
    page.get_by_role("button", name="Take back only this change").click()
    page.wait_for_url("**/diff/notes/preferences.md?taken_back=1")
    assert page.locator("td.new").inner_text() == "- Speaks German and English"
    assert "write by Pat" in page.locator("table.compare thead").inner_text()
    text = watched.open("/agents/travel-planner/file/notes/preferences.md").locator("main").inner_text()
    assert "Speaks German and English" in text
    assert "Window seats" in text


@on_disk_and_s3
def test_by_mouse_a_person_restores_a_version(watched: Watched) -> None:
    page = watched.open("/")
    page.get_by_role("link", name="travel-planner").click()
    page.get_by_role("link", name="notes/").click()
    page.get_by_role("link", name="preferences.md").click()
    page.get_by_role("link", name="Compare").click()
    page.get_by_role("button", name="Restore the old version (left)").click()
    page.wait_for_url("**/file/notes/preferences.md?restored=1")
    assert "Window seats" not in page.locator("main").inner_text()
    assert "restore by Pat" in page.locator("dl.facts").inner_text()


@on_disk_and_s3
def test_of_two_browsers_that_change_a_file_at_once_one_is_shown_the_change_of_the_other(
    watched: Watched, browser: Browser, root: Root
) -> None:
    """Both forms are sent before either answer is read. In each third round an agent was faster than both."""
    context = browser.new_context(storage_state=watched.page.context.storage_state())
    both = [watched.page, context.new_page()]
    with AgentMemoryService(root.url, storage_options=root.options, versions=VersionLimits()) as service:
        memory = service.agent("travel-planner")
        memory.write("race.md", "begin\n")
        for number in range(30 if sizes.is_long else 4):
            before = memory.read("race.md")
            memory.acting_as("cleaner", f"call{number}").write("race.md", f"{number}\n")
            change = ("restore", "undo")[number % 2]
            place = "diff/race.md" if change == "restore" else f"undo?call=call{number}"
            for page in both:
                page.goto(f"{watched.home}/agents/travel-planner/{place}")
            is_late = number % 3 == 2
            if is_late:
                memory.acting_as("claude").append("race.md", "- a line of an agent\n")
            for page in both:
                page.evaluate(SEND, change)
            answers = [page.evaluate("window.answered") for page in both]
            assert sorted(answer["status"] for answer in answers) == ([409, 409] if is_late else [200, 409])
            expected = f"{number}\n- a line of an agent\n" if is_late else before
            assert memory.read("race.md") == expected
            shown = next(answer["text"] for answer in answers if answer["status"] == 409)
            assert "changed meanwhile" in shown or "changed since you looked" in shown
            assert ("a line of an agent" if is_late else "by Pat") in shown or (is_late and change == "undo")
    context.close()


@on_disk_and_s3
def test_by_keyboard_alone_every_page_is_reached(watched: Watched) -> None:
    page = watched.open("/")
    keyboard = page.keyboard
    for _ in range(3):
        keyboard.press("ArrowDown")  # the third agent
    keyboard.press("ArrowRight")
    page.wait_for_url("**/tree/")
    while page.evaluate("document.activeElement.matches('a') && document.activeElement.textContent") != "plan.md":
        keyboard.press("ArrowDown")
    keyboard.press("Enter")
    page.wait_for_url("**/file/plan.md")
    keyboard.press("d")
    page.wait_for_url("**/diff/plan.md")
    assert page.locator("del").count()
    keyboard.press("ArrowLeft")
    page.wait_for_url("**/file/plan.md")
    keyboard.press("ArrowLeft")
    page.wait_for_url("**/tree/")
    keyboard.press("?")
    assert page.get_by_role("dialog").is_visible()
    keyboard.press("Enter")  # the button has the focus
    assert not page.locator("dialog").is_visible()
    keyboard.press("/")
    keyboard.type("maria")
    page.locator("#found a").first.wait_for()
    assert page.locator("#found mark").first.inner_text().lower() == "maria"
    keyboard.press("ArrowDown")
    keyboard.press("Enter")
    page.wait_for_url("**line=**")
    seen = set[str]()
    for _ in range(60):
        keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.textContent.trim()"))
    assert {"Memory", "Timeline", "Conversation", "Text", "Versions", "Compare", "Download"} <= seen


@on_disk_and_s3
def test_the_chain_and_the_files_are_verified_in_the_page(watched: Watched) -> None:
    page = watched.open("/timeline")
    page.get_by_role("button", name="Verify the chain of records").click()
    page.get_by_text("Verified up to record").wait_for()
    page.get_by_role("button", name="Compare the files with the log").click()
    page.locator("#chain-files").get_by_text("compared").wait_for()
    assert faults_of(page) == []


@pytest.mark.parametrize("root", ["local"], indirect=True)
def test_another_site_neither_frames_the_pages_nor_sends_forms(watched: Watched, browser: Browser) -> None:
    """The browser holds the session's cookie, and the page of the other site knows the address."""
    context = watched.page.context
    evil = context.new_page()
    address = f"{watched.home}/agents/travel-planner"
    attack = f"""<iframe src="{watched.home}/"></iframe>
        <form method="post" action="{address}/undo"><input name="actor" value="claude"></form>
        <img src="{watched.home}/agents/travel-planner/raw/plan.md">"""
    evil.route("http://evil.example/", lambda route: route.fulfill(body=attack, content_type="text/html"))
    evil.goto("http://evil.example/")
    evil.wait_for_timeout(300)
    assert "Trip to Lisbon" not in "".join(frame.content() for frame in evil.frames)
    with evil.expect_response("**/undo") as answered:
        evil.evaluate("document.forms[0].submit()")
    assert answered.value.status == 403
    assert "21C" in watched.open(PLAN).locator("main").inner_text()
    with_token = browser.new_context().new_page()
    with_token.goto(f"{watched.home}/")
    assert "Not open" in with_token.content()
    assert faults_of(with_token) == []
    with_token.context.close()


@pytest.mark.parametrize("root", ["local"], indirect=True)
def test_a_server_at_another_port_of_the_host_does_not_get_the_cookie(watched: Watched) -> None:
    got: list[str | None] = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            got.append(self.headers["Cookie"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        other = watched.page.context.new_page()
        answer = other.request.get(f"http://127.0.0.1:{server.server_address[1]}/")
        thread.join()
        assert (answer.status, got) == (204, [None])
        other.close()
    assert watched.page.context.cookies(watched.home)


def test_exported_pages_are_accessible_and_ask_for_nothing(browser: Browser, tmp_path: Path) -> None:
    root = Root(str(tmp_path / "root"), {})
    seed(root)
    command = [SCRIPT, "--url", root.url, "export", "--html", "--versions", str(tmp_path / "pages")]
    subprocess.run(command, check=True, capture_output=True)
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: asked.append(message.text))
    page.goto(f"file://{tmp_path}/pages/index.html")
    for name in ("travel-planner", "plan.md", "Compare"):
        assert faults_of(page) == []
        page.get_by_role("link", name=name).click()
    assert page.locator("ins").first.inner_text() == "21C, at the window"
    assert page.evaluate("getComputedStyle(document.querySelector('ins')).textDecorationLine") == "none"
    assert faults_of(page) == []
    assert [each for each in asked if not each.startswith("file://")] == []
    page.close()
