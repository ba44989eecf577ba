"""Home, trees, files and their views: what is stored is shown as text, on every backend."""

from __future__ import annotations

import asyncio
import html
import json
import os
import re
import time
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from agent_memory import AgentMemoryService, AsyncAgentMemoryService, Operation, hookimpl
from agent_memory.conversation import ConversationMemory, Message
from agent_memory.tools.memory_tool import MemoryTool
from agent_memory.web import _files, _home, _views
from agent_memory.web._site import Site
from agent_memory.web._text import when
from tests.support.servers import Root
from tests.support.web_pages import InProcess

Browse = Callable[..., InProcess]
HOSTILE = (
    "<script>alert(1)</script>", "<svg/onload=alert(1)>", "</td></table><img src=x onerror=alert(1)>", "{{ 7*7 }}",
    "{% include 'home.html' %}", "${7*7}", "'\"><b>", "&lt;b&gt;", "![x](https://evil.example/x.png)",
    "[x](javascript:alert(1))", "<https://evil.example>", "\u202egnp.exe\u202c", "\x1b[31mred\x07",
    "\u200b\ufeff\u2028",
)  # fmt: skip


class Reads:
    """A plugin that counts reads, and makes each take 2 milliseconds."""

    def __init__(self) -> None:
        self.count = 0

    @hookimpl
    def agent_memory_before_operation(self, operation: Operation) -> None:
        if operation.kind == "read":
            self.count += 1
            time.sleep(0.02)


class _Elements(HTMLParser):
    """The elements and the visible text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.shown = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.shown += data


def elements(page: str) -> _Elements:
    parser = _Elements()
    parser.feed(page)
    return parser


def require_harmless(page: str) -> None:
    """No element that could come from stored text, and no address of another host."""
    for tag, attributes in elements(page).found:
        assert tag not in ("img", "iframe", "object", "embed", "style", "base"), (tag, attributes)
        assert not any(name.startswith("on") or name == "style" for name in attributes), (tag, attributes)
        for name in {"href", "src", "action"} & attributes.keys():
            address = attributes[name] or ""
            is_shown_link = tag == "a" and attributes.get("rel") == "noreferrer noopener nofollow"
            assert address.startswith(("https://", "http://") if is_shown_link else ("/", "#")), (tag, attributes)
    assert len(re.findall("<script", page)) == 2
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069\u200b\ufeff\u2028]", page)


@pytest.fixture
def service(root: Root) -> AgentMemoryService:
    return AgentMemoryService(root.url, storage_options=root.options)


def test_the_first_page_lists_agents_with_their_files_and_bytes(service: AgentMemoryService, browse: Browse) -> None:
    service.write_memory_file("ann", "a.md", "12345")
    service.write_memory_file("ann", "b/c.md", "1")
    service.write_memory_file("ben", "a.md", "1")
    rows = browse().text("/").split("<tr>")[-2:]
    facts = [re.findall(r'<td class="number"[^>]*>(.*?)</td>', row) for row in rows]
    assert facts == [["2", "6 bytes", "0"], ["1", "1 byte", "0"]]


def test_the_first_page_of_an_empty_store_says_so(browse: Browse) -> None:
    assert "No agent has a file yet" in browse().text("/")


def test_agents_are_paged(service: AgentMemoryService, browse: Browse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_home, "PAGE", 2)
    for agent in ("a", "b", "c", "d", "e"):
        service.write_memory_file(agent, "x.md", "1")
    pages = browse()
    page, seen = "/", []
    while page:
        text = pages.text(page)
        seen += re.findall(r'href="/agents/(\w)/tree/"', text)
        following = re.search(r'href="(/\?after=\w)"', text)
        page = following[1] if following else ""
    assert seen == ["a", "b", "c", "d", "e"]


def test_a_tree_is_paged_and_says_what_it_does_not_show(
    service: AgentMemoryService, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_files, "PAGE", 3)
    names = ["a/x.md", "b.md", "c.md", "d.md", "e.md"]
    for name in names:
        service.write_memory_file("ann", name, "1")
    pages = browse()
    first = pages.text("/agents/ann/tree/")
    assert "2 more are not shown here" in first
    second = pages.text(re.findall(r'href="([^"]*after=[^"]*)"', first)[0])
    assert "more are not shown" not in second
    shown = [re.findall(r'href="/agents/ann/(?:file|tree)/([^"?]+)"', text) for text in (first, second)]
    assert shown == [["a", "b.md", "c.md"], ["d.md", "e.md"]]


def test_a_path_of_a_file_or_directory_leads_to_its_page(service: AgentMemoryService, browse: Browse) -> None:
    service.write_memory_file("ann", "a/x.md", "1")
    pages = browse()
    assert pages.get("/agents/ann/file/a").headers["location"] == "/agents/ann/tree/a"
    assert pages.get("/agents/ann/tree/a/x.md").headers["location"] == "/agents/ann/file/a/x.md"
    for path in ("file/none", "tree/none", "raw/none", "raw/a", "file/../x", "tree/a:b", "raw/a%00"):
        assert pages.get(f"/agents/ann/{path}").status_code == 404, path


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_content_is_shown_as_text_in_every_view(service: AgentMemoryService, browse: Browse, text: str) -> None:
    service.write_memory_file("ann", "a.md", f"{text}\n\n# {text}\n\n    {text}\n\n```\n{text}\n```\n")
    service.write_memory_file("ann", "a.json", json.dumps({text: [text]}))
    ConversationMemory(service.agent("ann")).append_message(Message(text, text, sender_id=text, channel=text))
    pages = browse()
    for path in ("a.md?as=text", "a.md?as=markdown", "a.md?as=agent", "a.json?as=json", "history.jsonl"):
        page = pages.text(f"/agents/ann/file/{path}")
        require_harmless(page)
    shown = elements(pages.text("/agents/ann/file/a.md?as=text")).shown
    visible = text.encode("ascii", "backslashreplace").decode() if not text.isprintable() else text
    assert shown.count(visible.replace("\x1b", "\\x1b").replace("\x07", "\\x07")) == 4


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_queries_are_shown_as_text(service: AgentMemoryService, browse: Browse, text: str) -> None:
    service.write_memory_file("ann", "a.md", f"before {text} after\n")
    pages = browse()
    answer = pages._runner.run(pages._client.get("/search", params={"q": text, "agent": text}))
    require_harmless(answer.text)
    for path in ("/timeline", "/", "/agents/ann/tree/", "/agents/ann/versions/a.md", "/agents/ann/diff/a.md"):
        names = ("after", "actor", "agent", "path", "call", "day", "old", "new", "as", "at", "line", "before")
        answer = pages._runner.run(pages._client.get(path, params=dict.fromkeys(names, text)))
        require_harmless(answer.text)


def test_strange_names_are_shown_as_text(service: AgentMemoryService, browse: Browse) -> None:
    names = ["a & b.md", "{{7+7}}.md", "it's #1.md", "café/メモ.md", "שלום.md", "100% $sure.md", "+plus=@x.md"]
    for name in names:
        service.write_memory_file("ann", name, "1")
    pages = browse()
    listing = pages.text("/agents/ann/tree/")
    require_harmless(listing)
    shown = re.findall(r'href="/agents/ann/file/[^"]*">(?:<bdi>)?([^<]*)(?:</bdi>)?</a>', listing)
    assert sorted(map(html.unescape, shown)) == sorted(name for name in names if "/" not in name)
    for href in re.findall(r'href="(/agents/ann/file/[^"]*)"', listing):
        assert pages.get(href.replace("&amp;", "&").replace("&#39;", "'")).status_code == 200


def test_names_that_another_program_planted_are_counted_and_not_shown(root: Root, browse: Browse) -> None:
    if "://" in root.url:
        pytest.skip("names of local files")
    with AgentMemoryService(root.url) as service:
        service.write_memory_file("ann", "a.md", "1")
    top = Path(root.url) / "agent_memory/ann"
    for name in ("<script>alert(1)<", "a\u202eb", "line\nfeed", "\udcff", ".agent-memory"):
        (top / name).write_text("x")
    page = browse().text("/agents/ann/tree/")
    require_harmless(page)
    assert "5 names in the storage are not shown" in page


def test_the_view_of_the_agent_is_the_answer_of_the_memory_tool(service: AgentMemoryService, browse: Browse) -> None:
    service.write_memory_file("ann", "a.txt", "".join(f"line {number} <b>\n" for number in range(3000)))
    answer = MemoryTool(service.agent("ann")).call({"command": "view", "path": "/memories/a.txt"}).output
    assert answer in elements(browse().text("/agents/ann/file/a.txt?as=agent")).shown


def test_lines_are_paged_and_found_by_their_number(service: AgentMemoryService, browse: Browse) -> None:
    service.write_memory_file("ann", "a.txt", "".join(f"text {number}\n" for number in range(1, 3501)))
    pages, page, seen = browse(), "/agents/ann/file/a.txt", list[tuple[str, str]]()
    while page:
        text = pages.text(page)
        seen += re.findall(r'<td class="line">(\d+)</td><td dir="auto">text (\d+)</td>', text)
        following = re.search(r'href="([^"]*at=[^"]*)">Next lines', text)
        page = following[1].replace("&amp;", "&") if following else ""
    assert seen == [(str(number), str(number)) for number in range(1, 3501)]
    assert '<tr id="L3000"><td class="line">3000</td><td dir="auto">text 3000<' in pages.text(
        "/agents/ann/file/a.txt?line=3000"
    )
    assert "text 3500" in pages.text("/agents/ann/file/a.txt?line=999999")


@pytest.mark.parametrize("ending", ["", "\n", "\nlast"])
def test_a_long_line_is_cut_and_says_so(service: AgentMemoryService, browse: Browse, ending: str) -> None:
    service.write_memory_file("ann", "a.txt", "first\n" + "x" * 5_000_000 + ending)
    pages = browse()
    text = pages.text("/agents/ann/file/a.txt")
    assert len(text) < 20_000
    whole = text
    while following := re.search(r'href="([^"]*at=[^"]*)">Next lines', text):
        text = pages.text(following[1].replace("&amp;", "&"))
        whole += text
    assert len(whole) < 40_000
    rows = re.findall(r'<td class="line">(\d+)</td><td dir="auto">(\w{4})', whole)
    assert rows == [("1", "firs"), ("2", "xxxx"), *([("3", "last")] if "last" in ending else [])]
    assert "5.0 MB more in this line are not shown" in whole


def test_bytes_that_are_not_text_are_shown_in_hexadecimal(service: AgentMemoryService, browse: Browse) -> None:
    service.agent("ann").write("a.bin", bytes(range(256)))
    page = browse().text("/agents/ann/file/a.bin")
    require_harmless(page)
    assert "00000010  10 11 12" in page


def test_a_corrupted_history_is_shown_with_its_messages(service: AgentMemoryService, browse: Browse) -> None:
    ConversationMemory(service.agent("ann")).append_message(Message("user", "hello"))
    times = (b"0001-01-01T00:00:00", b"9999-12-31T23:59:59-23:59", b"0001-01-01T00:00:00+23:59")
    early = [b'{"role":"user","content":"at any time","timestamp":"%b"}' % moment for moment in times]
    lines = [
        *early,
        b'{"role": 1}',
        b"[" * 5000,
        b"not <b>json",
        b"\xff\xfe",
        b"\0",
        b'{"role":"user","content":"' + b"z" * 10**6,
    ]
    service.agent("ann").append("history.jsonl", b"\n".join(lines) + b"\n")
    ConversationMemory(service.agent("ann")).append_message(Message("assistant", "good bye"))
    page = browse().text("/agents/ann/file/history.jsonl")
    require_harmless(page)
    shown = elements(page).shown
    assert "hello" in shown
    assert shown.count("at any time") == 3
    assert len(re.findall(r"Line \d+ is not a message", shown)) >= 5
    assert len(page) < 200_000


def test_a_message_of_another_program_may_have_no_time(service: AgentMemoryService, browse: Browse) -> None:
    service.agent("ann").write("history.jsonl", '{"role":"user","content":[{"type":"text","text":"hello"}]}\n')
    page = browse().text("/agents/ann/file/history.jsonl")
    (message,) = re.findall(r'<ol class="messages">(.*?)</ol>', page, re.DOTALL)
    assert "hello" in message
    assert "<time" not in message


def test_any_time_of_a_file_is_shown(root: Root, service: AgentMemoryService, browse: Browse) -> None:
    if "://" in root.url:
        pytest.skip("changes a local file")
    service.write_memory_file("ann", "a.md", "x")
    pages = browse()
    for seconds in (-(2**31), 0, 2**33):
        os.utime(Path(root.url) / "agent_memory/ann/a.md", (seconds, seconds))
        for path in ("/", "/agents/ann/tree/", "/agents/ann/file/a.md"):
            require_harmless(pages.text(path))


@pytest.mark.parametrize("seconds", [1e300, -1e300, float("nan"), float("inf")])
def test_a_number_that_is_no_time_is_shown_as_none(seconds: float) -> None:
    assert "no time" in when(seconds)


@pytest.mark.parametrize("size", [0, 1, 1_048_576, 3_000_001])
def test_a_download_is_every_byte_and_no_page(service: AgentMemoryService, browse: Browse, size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    service.agent("ann").write("it's \u20ac.html", data[:size])
    answer = browse().get("/agents/ann/raw/it's%20%E2%82%AC.html")
    assert answer.content == data[:size]
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''it%27s%20%E2%82%AC.html"
    assert "sandbox" in answer.headers["content-security-policy"]


def test_links_of_rendered_markdown_show_where_they_lead(service: AgentMemoryService, browse: Browse) -> None:
    text = (
        "[a](https://example.org/x) [b](file:///etc/passwd) [c](//evil.example) [d](data:text/html,x) <https://e.org>"
    )
    service.write_memory_file("ann", "a.md", text)
    found = elements(browse().text("/agents/ann/file/a.md?as=markdown"))
    links = [attributes for tag, attributes in found.found if tag == "a" and "rel" in attributes]
    assert [link["href"] for link in links] == ["https://example.org/x", "https://e.org"]
    assert {link["rel"] for link in links} == {"noreferrer noopener nofollow"}
    assert "<https://example.org/x>" in found.shown


def test_the_cells_of_rendered_tables_have_no_style(service: AgentMemoryService, browse: Browse) -> None:
    service.write_memory_file("ann", "a.md", "|a|b|c|\n|:-|-:|:-:|\n|1|2|3|\n")
    page = browse().text("/agents/ann/file/a.md?as=markdown")
    require_harmless(page)
    cells = [attributes for tag, attributes in elements(page).found if tag == "td"]
    assert cells == [{"class": "to-left"}, {"class": "to-right"}, {"class": "to-center"}]


@pytest.mark.parametrize(("rows", "tables"), [(100, 1), (300, 0)])
def test_a_table_of_too_many_cells_is_text(service: AgentMemoryService, browse: Browse, rows: int, tables: int) -> None:
    service.write_memory_file("ann", "a.md", "|a" * 50 + "\n" + "|-" * 50 + "\n" + "|1\n" * rows)
    assert browse().text("/agents/ann/file/a.md?as=markdown").count("<table") == tables


def test_tables_share_the_number_of_cells(service: AgentMemoryService, browse: Browse) -> None:
    service.write_memory_file("ann", "a.md", ("|a" * 50 + "\n" + "|-" * 50 + "\n" + "|1\n" * 20 + "\n") * 100)
    page = browse().text("/agents/ann/file/a.md?as=markdown")
    assert 0 < page.count("<td") <= 10_000


@pytest.mark.parametrize(("size", "is_rendered"), [(64 * 1024, True), (64 * 1024 + 1, False)])
def test_markdown_is_rendered_up_to_a_size(
    service: AgentMemoryService, browse: Browse, size: int, is_rendered: bool
) -> None:
    service.write_memory_file("ann", "a.md", "x" * size)
    page = browse().text("/agents/ann/file/a.md?as=markdown")
    assert ('class="prose"' in page) == is_rendered
    assert ("Files of more than 65,536 bytes are not rendered" in page) != is_rendered


def test_few_files_are_rendered_at_once(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    admitted: list[bool] = []

    async def render() -> None:
        async with AsyncAgentMemoryService(root.url, storage_options=root.options) as service:
            site = Site(service, None, None, True, large=asyncio.Semaphore(1))
            await site.memory("ann").write("a.md", "x")
            monkeypatch.setattr(_views, "rendered", lambda _: admitted.append(site.large.locked()))
            await _views.markdown_view(site, site.memory("ann"), "a.md", 0, 1)

    asyncio.run(render())
    assert admitted == [True]


def test_a_search_finds_lines_of_all_agents_and_marks_the_words(service: AgentMemoryService, browse: Browse) -> None:
    service.write_memory_file("ann", "a.md", "one\nThe River <b>\n")
    service.write_memory_file("ben", "b/c.md", "a river, a RIVER\n")
    pages = browse()
    page = pages.text("/search/found?q=river")
    assert re.findall("<mark>(.*?)</mark>", page) == ["River", "river", "RIVER"]
    assert "Removed or overwritten?" in page
    for href in re.findall(r'href="([^"#]*)', page):
        assert "iver" in pages.text(href.replace("&amp;", "&"))
    assert "Type 2 characters or more" in pages.text("/search?q=r")
    assert pages.text("/search/found?q=") == ""


def test_a_search_names_some_agents_and_says_how_many_it_does_not(service: AgentMemoryService, browse: Browse) -> None:
    for number in range(25):
        service.write_memory_file(f"agent{number:02}", "a.md", "text")
    page = browse().text("/search?q=nowhere")
    assert len(re.findall(r"/find/\?q=nowhere", page)) == 20
    assert "for 5 other agents" in page


def test_a_search_is_bounded(service: AgentMemoryService, browse: Browse) -> None:
    for agent in ("ann", "ben"):
        service.write_memory_file(agent, "a.md", "river\n" * 60)
    page = browse().text("/search?q=river")
    assert page.count("<mark>") == 50
    assert "there are more" in page


def test_a_search_ends_when_its_browser_goes_away(service: AgentMemoryService, browse: Browse) -> None:
    number = 60
    for name in range(number):
        service.write_memory_file("ann", f"{name}.md", "a river")
    reads = Reads()
    pages = browse(plugins=[reads])

    async def gone() -> None:
        cookies = "; ".join(f"{name}={value}" for name, value in pages._client.cookies.items())
        headers = [(b"host", b"memory.test"), (b"cookie", cookies.encode())]
        asked = {"method": "GET", "path": "/search/found", "query_string": b"q=mountain"}
        scope = {"type": "http", "headers": headers, **asked}

        async def receive() -> dict[str, str]:
            return {"type": "http.disconnect"}

        async def send(message: object) -> None:
            del message

        await pages.app(scope, receive, send)

    pages._runner.run(gone())
    assert reads.count < number
    assert "0 lines" in pages.text("/search?q=mountain")
    assert reads.count >= number, "a search that nobody leaves reads every file"
