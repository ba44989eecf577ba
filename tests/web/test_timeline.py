"""The timeline of the audit log: its filters, its pages, its chain; a hostile log is shown as text."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_memory import AgentMemoryService
from agent_memory.audit import LogLocation
from agent_memory.audit.record import encode
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.registry import open_backend
from agent_memory.web import _timeline
from tests.support.servers import Root
from tests.support.web_pages import InProcess
from tests.web.seeding import DAY, Past
from tests.web.test_reading import HOSTILE, elements, require_harmless

Browse = Callable[..., InProcess]


@pytest.fixture
def recorded(root: Root) -> Root:
    """A store with a log of changes of two actors in two agents."""
    plugin = AuditPlugin(LogLocation.below(open_backend(root.url, root.options)))
    with AgentMemoryService(root.url, storage_options=root.options, plugins=[plugin]) as service:
        for agent in ("ann", "ben"):
            memory = service.agent(agent)
            memory.acting_as("claude", "toolu_1").write("notes/a.md", "one")
            memory.acting_as("cleaner", "toolu_2").delete("notes/a.md")
            memory.acting_as("claude", "toolu_3").write("plan.md", "three")
    return root


def rows(page: str) -> list[list[str]]:
    """The cells of the table of records, without the time."""
    body = page.partition("<tbody data-rows")[2].partition("</tbody>")[0]
    found = [re.findall("<td.*?>(.*?)</td>", row, re.DOTALL) for row in body.split("<tr")[1:]]
    return [[" ".join(elements(cell).shown.split()) for cell in cells[1:]] for cells in found]


@pytest.mark.usefixtures("recorded")
def test_the_timeline_tells_who_did_what_the_newest_first(browse: Browse) -> None:
    assert rows(browse().text("/timeline?agent=ben")) == [
        ["claude", "write", "ben / plan.md", "5 bytes", "toolu_3"],
        ["cleaner", "delete", "ben / notes/a.md", "", "toolu_2"],
        ["claude", "write", "ben / notes/a.md", "3 bytes", "toolu_1"],
    ]


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    ("asked", "number"),
    [
        ("", 6), ("actor=cleaner", 2), ("path=notes", 4), ("path=notes/a.md&agent=ann", 2), ("call=toolu_3", 2),
        ("call=toolu_3&actor=cleaner", 0), ("day=2020-01-01", 0), ("day=nonsense", 6), ("agent=none", 0),
    ],
)  # fmt: skip
def test_the_timeline_is_filtered(browse: Browse, asked: str, number: int) -> None:
    assert len(rows(browse().text(f"/timeline?{asked}"))) == number


@pytest.mark.usefixtures("recorded")
def test_the_day_of_a_record_is_found(browse: Browse) -> None:
    pages = browse()
    day = re.findall(r'datetime="(\d{4}-\d\d-\d\d)', pages.text("/timeline"))[0]
    assert rows(pages.text(f"/timeline?day={day}"))


@pytest.mark.usefixtures("recorded")
def test_the_pages_of_the_timeline_have_each_record_once(browse: Browse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_timeline.timeline, "__defaults__", (2,))
    pages, page, seen = browse(), "/timeline", list[list[str]]()
    while page:
        text = pages.text(page)
        seen += rows(text)
        following = re.search(r'href="([^"]*before=[^"]*)"', text)
        page = html.unescape(following[1]) if following else ""
    assert len(seen) == len({json.dumps(row) for row in seen}) == 6


@pytest.mark.usefixtures("recorded")
def test_a_filter_that_looked_at_too_many_records_says_so_and_goes_on(
    browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_timeline, "_MOST_LINES", 3)
    pages = browse()
    text = pages.text("/timeline?path=notes/a.md&agent=ann")
    assert rows(text) == []
    assert "None of the newest 3 records is about this" in text
    following = re.search(r'href="([^"]*before=[^"]*)"', text)
    assert following
    assert len(rows(pages.text(html.unescape(following[1])))) == 2


@pytest.mark.usefixtures("recorded")
def test_a_timeline_that_ran_out_of_time_says_so_and_goes_on(browse: Browse, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = browse()
    with monkeypatch.context() as patched:
        patched.setattr(_timeline, "_SECONDS", -1)  # one line is read
        text = pages.text("/timeline")
        assert len(rows(text)) == 1
        assert "These are all" not in text
        assert "in the newest 1 line of the log only" in text
        assert "in the newest 1 line of the log only" in pages.text("/")
        following = html.unescape(re.findall(r'href="([^"]*before=[^"]*)"', text)[0])
        late = pages.text(following)
        assert "were not reached in 3 seconds" in late
        assert "These are all" not in late
    text = pages.text(following)
    assert len(rows(text)) == 5
    assert "These are all" in text


@pytest.mark.usefixtures("recorded")
def test_a_place_that_the_log_does_not_have_is_told(browse: Browse) -> None:
    for place in ("0" * 16 + "-1", "nonsense", "%00-%ff"):
        text = browse().text(f"/timeline?before={place}")
        assert "The log has no record at this place" in text
        assert "These are all" not in text


@pytest.mark.usefixtures("recorded")
def test_pages_of_one_agent_have_the_records_of_no_other(browse: Browse) -> None:
    pages = browse(agent="ann")
    for asked in ("", "?agent=ben", "?actor=claude"):
        assert "ben" not in pages.text(f"/timeline{asked}")


def test_a_record_of_a_wrong_clock_does_not_end_the_counting(root: Root, browse: Browse) -> None:
    plugin = AuditPlugin(LogLocation.below(open_backend(root.url, root.options)))
    with AgentMemoryService(root.url, storage_options=root.options, plugins=[plugin]) as service:
        for ago in (40, 2, 400, 1):
            with Past(root).ago(ago * DAY):
                service.agent("ann").append("a.md", "x")
    assert "2 changes in the last 30 days" in browse().text("/timeline")


def test_the_busiest_actors_have_pictures_of_one_scale(root: Root, browse: Browse) -> None:
    plugin = AuditPlugin(LogLocation.below(open_backend(root.url, root.options)))
    with AgentMemoryService(root.url, storage_options=root.options, plugins=[plugin]) as service:
        for number in range(10):
            for _ in range(number + 1):
                service.agent("ann").acting_as(f"actor{number}").append("a.md", "x")
    page = browse().text("/timeline")
    actors = page.partition("<tbody>")[2].partition("</tbody>")[0]
    assert re.findall(r"actor=(actor\d)", actors) == [f"actor{number}" for number in range(9, 1, -1)]
    assert "2 actors more are not shown here" in page
    heights = [float(height) for height in re.findall(r'bar-of-day" [^>]*height="([\d.]+)"', actors)]
    assert heights == sorted(heights, reverse=True)
    assert heights[0] > 2 * heights[-1]


def test_nobody_named_is_no_actor(recorded: Root, browse: Browse) -> None:
    plugin = AuditPlugin(LogLocation.below(open_backend(recorded.url, recorded.options)))
    with AgentMemoryService(recorded.url, storage_options=recorded.options, plugins=[plugin]) as service:
        service.write_memory_file("ann", "of-nobody.md", "x")
    page = browse().text("/timeline")
    actors = page.partition("<tbody>")[2].partition("</tbody>")[0]
    told = " ".join(elements(re.sub("<svg.*?</svg>|</td>", " ", actors, flags=re.DOTALL)).shown.split())
    assert told == "claude 4 cleaner 2 nobody named 1"
    assert "3 changes in the last 30 days" not in actors
    assert "2 changes in the last 30 days" in actors
    assert "actor=cleaner" in actors
    assert "actor=nobody" not in page


def test_a_store_without_a_log_says_so(browse: Browse) -> None:
    assert "This store has no audit log" in browse().text("/timeline")


@pytest.mark.usefixtures("recorded")
def test_the_chain_is_verified_on_request(browse: Browse) -> None:
    pages = browse()
    assert "Verified up to record #7" in elements(pages.text("/timeline/chain?ask=1")).shown


def test_an_edited_record_is_shown_first_and_marked(recorded: Root, browse: Browse) -> None:
    if "://" in recorded.url:
        pytest.skip("edits a local file")
    log = next(Path(recorded.url).glob(".agent-memory/audit/*.jsonl"))
    log.write_bytes(log.read_bytes().replace(b'"cleaner"', b'"nobody!"', 1))
    pages = browse()
    page = pages.text("/timeline/chain?ask=1")
    assert page.index("edited") < page.index("unanchored")
    assert "Verified" not in page.replace("Verifying", "")
    assert "not as written" in pages.text("/timeline?agent=ann")


@pytest.mark.usefixtures("recorded")
def test_files_are_compared_with_the_log(root: Root, browse: Browse) -> None:
    with AgentMemoryService(root.url, storage_options=root.options) as service:
        service.write_memory_file("ann", "plan.md", "changed without a record")
    pages = browse()
    page = pages.text("/timeline/files?ask=1")
    while "so far" in page:
        page = pages.text("/timeline/files")
    assert "changed ann / plan.md" in " ".join(elements(page).shown.split())
    assert "2 files compared, 1 finding" in elements(page).shown


def test_a_hostile_log_is_shown_as_text(root: Root, browse: Browse) -> None:
    if "://" in root.url:
        pytest.skip("writes a local file")
    lines, before = [], "0" * 64
    names = ("actor", "agent", "path", "target", "operation", "outcome", "error", "tool_call_id", "reason", "replayed")
    for number, text in enumerate(HOSTILE, 1):
        facts = dict.fromkeys(names, text) | {"size": 3}
        line, before = encode("0" * 16, number, before, "operation", 1.7e9 + number, facts)
        lines.append(line)
    lines += [b"<script>alert(1)</script>\n", b"\xff\n", b"x" * 10_000_000 + b"\n"]
    strange = {"actor": "a", "reason": [1, {"<b>": None}], "replayed": {"<b>": 1}, "path": "", "agent": "~"}
    lines.append(encode("0" * 16, len(lines), before, "operation", 1.7e9, strange)[0])
    for number in (10**400, 10**18, 10**18 - 1):
        line, before = encode("0" * 16, len(lines) + 1, before, "operation", 1.7e9, {"size": number})
        lines.append(line)
    log = Path(root.url) / ".agent-memory/audit/2026-01-01.jsonl"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"".join(lines))
    pages = browse()
    text = pages.text("/timeline")
    require_harmless(text)
    assert "3 lines of the log were not written by a writer of the log" in text
    assert len(rows(text)) == len(HOSTILE) + 4
    assert text.count("1,000,000 TB or more") == 2
    require_harmless(pages.text("/timeline/chain?ask=1"))
    require_harmless(pages.text("/"))
