"""Who wrote or removed a text: the changes that are found in versions, and the bounds of the search."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from agent_memory import AgentMemoryService, VersionLimits
from agent_memory.audit import LogLocation
from agent_memory.core.versions.states import FileVersion
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.registry import open_backend
from agent_memory.web import _finding
from tests.support.servers import Root
from tests.support.web_pages import InProcess
from tests.web.test_reading import HOSTILE, require_harmless
from tests.web.test_versions_pages import shown

Browse = Callable[..., InProcess]


@pytest.fixture
def service(root: Root) -> AgentMemoryService:
    return AgentMemoryService(root.url, storage_options=root.options, versions=VersionLimits())


def rows(page: str) -> list[str]:
    """The rows of the table without their times, the newest first."""
    body = re.search("<tbody data-rows>(.*?)</tbody>", page, re.DOTALL)
    found = re.findall("<tr>.*?</tr>", body[1], re.DOTALL) if body else []
    return [shown(re.sub("<time.*?</time>", "", row)) for row in found]


def test_the_removal_of_a_line_is_found_below_later_changes(service: AgentMemoryService, browse: Browse) -> None:
    memory = service.agent("ann")
    memory.acting_as("claude", "c1").write("a.md", "one\nSpeaks German\n")
    memory.acting_as("cleaner", "c2").edit("a.md", lambda text: text.replace("Speaks German\n", ""))
    for number in range(3):
        memory.acting_as("claude", f"c{3 + number}").edit("a.md", lambda text: text + "more\n")
    pages = browse(allow_write=True)
    page = pages.text("/agents/ann/find/a.md?q=speaks%20german")
    assert rows(page) == ["went edit by cleaner call c2 Compare", "came write by claude call c1 The version"]
    compare = re.findall(r'href="(/agents/ann/diff/a.md\?old=\w+&amp;new=\w+)"', page)[0].replace("&amp;", "&")
    compared = pages.text(compare)
    assert "Speaks German" in compared
    to_now = re.findall(r'href="([^"]*new=now)"', compared)[0].replace("&amp;", "&")
    assert "Restore the old version" in pages.text(to_now)
    everywhere = rows(pages.text("/agents/ann/find/?q=speaks"))
    assert everywhere == ["a.md " + row for row in rows(page)]
    assert "versions of ann" in shown(pages.text("/search?q=speaks"))


def test_a_text_that_was_appended_is_not_ascribed_to_the_write_before(
    service: AgentMemoryService, browse: Browse
) -> None:
    memory = service.agent("ann")
    memory.acting_as("claude").write("log.md", "start\n")
    memory.acting_as("bob").append("log.md", "a secret\n")
    assert rows(browse().text("/agents/ann/find/log.md?q=secret")) == [
        "came appended, no record tells by whom The file"
    ]
    memory.acting_as("cleaner").edit("log.md", lambda _: "short\n")
    assert rows(browse().text("/agents/ann/find/log.md?q=secret")) == [
        "went edit by cleaner Compare",
        "came appended, no record tells by whom The version",
    ]


def test_the_log_tells_who_appended_a_text(root: Root, browse: Browse) -> None:
    plugin = AuditPlugin(LogLocation.below(open_backend(root.url, root.options)))
    with AgentMemoryService(
        root.url, storage_options=root.options, plugins=[plugin], versions=VersionLimits()
    ) as service:
        memory = service.agent("ann")
        memory.acting_as("claude").write("log.md", "start\n")
        memory.acting_as("bob", "c1").append("log.md", "other\n")
        memory.acting_as("eve", "c2").append("log.md", "a Secret\n")
        memory.acting_as("cleaner").edit("log.md", lambda _: "short\n")
        memory.acting_as("bob").append("log.md", "secret 2\n")
    assert rows(browse().text("/agents/ann/find/log.md?q=secret")) == [
        "came append by bob The file",
        "went edit by cleaner Compare",
        "came append by eve call c2 The version",
    ]


def test_a_change_of_another_program_is_ascribed_to_nobody(
    root: Root, service: AgentMemoryService, browse: Browse
) -> None:
    if "://" in root.url:
        pytest.skip("another program changes files on disk")
    file = Path(root.url, "agent_memory/ann/a.md")
    memory = service.agent("ann")
    memory.acting_as("ann").write("a.md", "one\nsecret\n")
    memory.acting_as("carl").edit("a.md", lambda text: text + "two\n")
    file.write_text("one\ntwo\n")
    memory.acting_as("bob").edit("a.md", lambda text: text + "three\n")
    file.unlink()
    for path in ("a.md", ""):
        page = browse().text(f"/agents/ann/find/{path}?q=secret")
        found = [row.removeprefix("a.md ") for row in rows(page)]
        assert [row for row in found if "carl" in row or "bob" in row] == []
        assert found[-1] == "came write by ann The version"
        assert found[0].startswith("went unknown: another program")


def test_a_second_life_and_a_restore_are_ascribed_to_those_who_made_them(
    service: AgentMemoryService, browse: Browse
) -> None:
    memory = service.agent("ann")
    memory.acting_as("ann").write("a.md", "secret")
    memory.acting_as("cleaner").delete("a.md")
    memory.acting_as("bob").write("a.md", "a new secret")
    memory.acting_as("cleaner").delete("a.md")
    memory.acting_as("pat").versions.restore("a.md", memory.versions.list("a.md")[0])
    found = rows(browse().text("/agents/ann/find/a.md?q=secret"))
    assert [row.rpartition(" by ")[0] + " by " + row.rpartition(" by ")[2].split()[0] for row in found] == [
        "came restore by pat", "went delete by cleaner", "came write by bob", "went delete by cleaner",
        "came write by ann",
    ]  # fmt: skip


def test_a_renamed_file_lost_its_text_by_nobody_who_edited_it(service: AgentMemoryService, browse: Browse) -> None:
    memory = service.agent("ann")
    memory.acting_as("ann").write("a.md", "secret")
    memory.acting_as("bob").edit("a.md", lambda text: text + " more")
    memory.acting_as("carl").rename("a.md", "b.md")
    for path in ("", "a.md", "b.md"):
        assert not [row for row in rows(browse().text(f"/agents/ann/find/{path}?q=secret")) if "went edit" in row]


def test_a_long_history_is_looked_at_in_pages(
    service: AgentMemoryService, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_finding, "_AT_ONCE", 3)
    monkeypatch.setattr(_finding, "MOST", 1)
    memory = service.agent("ann")
    for number in range(12):
        memory.acting_as(f"actor{number}").write("a.md", "secret" if number % 2 else "clean")
    pages, address, found = browse(), "/agents/ann/find/a.md?q=secret", list[str]()
    while address:
        page = pages.text(address)
        found += rows(page)
        following = re.search(r'href="([^"]*after=[^"]*)"', page)
        address = html.unescape(following[1]) if following else ""
    assert [re.findall(r"actor\d+", row) for row in found] == [[f"actor{number}"] for number in range(11, 0, -1)]


def test_a_deletion_takes_the_text_with_it(service: AgentMemoryService, browse: Browse) -> None:
    memory = service.agent("ann")
    memory.acting_as("claude").write("notes/a.md", "gone gone")
    memory.acting_as("cleaner").delete("notes/a.md")
    memory.write("notes/b.md", "never here")
    expected = ["notes/a.md went delete by cleaner The last version", "notes/a.md came write by claude The version"]
    assert rows(browse().text("/agents/ann/find/?q=gone")) == expected
    assert rows(browse().text("/agents/ann/find/notes/a.md?q=gone")) == [
        row.removeprefix("notes/a.md ") for row in expected
    ]
    assert rows(browse().text("/agents/ann/find/?q=nowhere")) == []


def test_one_of_two_places_of_a_text_is_missed_too(service: AgentMemoryService, browse: Browse) -> None:
    memory = service.agent("ann")
    memory.acting_as("claude").write("a.md", "x\nx\n")
    memory.acting_as("cleaner").write("a.md", "x\n")
    memory.acting_as("claude").write("a.md", "x\ny\n")
    assert rows(browse().text("/agents/ann/find/a.md?q=x")) == [
        "went write by cleaner Compare",
        "came write by claude The version",
    ]


def test_a_redacted_version_is_counted_as_not_read(service: AgentMemoryService, browse: Browse) -> None:
    memory = service.agent("ann")
    for text in ("secret", "secret 2", "clean"):
        memory.write("a.md", text)
    memory.versions.redact("a.md", memory.versions.list("a.md")[1], reason="asked")
    page = browse().text("/agents/ann/find/a.md?q=secret")
    assert "2 versions looked at; 1 version could not be read" in shown(page)
    assert rows(page) == ["came write by nobody named The version"]


@pytest.mark.parametrize("bound", [{"MOST": 1}, {"_MOST_BYTES": 30}, {"_SECONDS": 0.0}])
def test_a_search_says_that_it_did_not_look_at_all(
    service: AgentMemoryService, browse: Browse, monkeypatch: pytest.MonkeyPatch, bound: dict[str, float]
) -> None:
    for number in range(10):
        service.write_memory_file("ann", "a.md", "x" * number + f"{number}" * 10)
    assert "older ones were not" not in shown(browse().text("/agents/ann/find/a.md?q=x"))
    for name, value in {"_AT_ONCE": 2, **bound}.items():
        monkeypatch.setattr(_finding, name, value)
    page = browse().text("/agents/ann/find/a.md?q=x")
    assert "older ones were not" in shown(page)
    assert len(rows(page)) < 10


def test_large_versions_are_held_one_at_a_time(
    service: AgentMemoryService, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        service.write_memory_file("ann", "a.md", f"{number}" * 1000)
    reading, most = [0], [0]
    read = _finding.TextSearch._read

    async def counted(self: _finding.TextSearch, each: FileVersion) -> bytes | None:
        reading[0] += 1
        most[0] = max(most[0], reading[0])
        try:
            return await read(self, each)
        finally:
            reading[0] -= 1

    monkeypatch.setattr(_finding.TextSearch, "_read", counted)
    pages = browse()
    page = pages.text("/agents/ann/find/a.md?q=3")
    assert most[0] == 6
    monkeypatch.setattr(_finding, "_MOST_AT_ONCE", 5000)
    most[0] = 0
    assert rows(pages.text("/agents/ann/find/a.md?q=3")) == rows(page)
    assert most[0] == 1


def test_a_search_of_a_file_that_ran_out_of_time_names_no_other_page(
    service: AgentMemoryService, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.write_memory_file("ann", "a.md", "text")
    service.write_memory_file("ann", "a.md", "more")
    monkeypatch.setattr(_finding, "_SECONDS", 0.0)
    pages = browse()
    assert "Choose a file" not in pages.text("/agents/ann/find/a.md?q=text")
    assert "Choose a file" in pages.text("/agents/ann/find/?q=text")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_as_text(service: AgentMemoryService, browse: Browse, text: str) -> None:
    memory = service.agent("ann").acting_as(text, "<b>call</b>")
    memory.write("a.md", f"q {text}")
    memory.delete("a.md")
    for query in ("q", quote(text)):
        require_harmless(browse().text(f"/agents/ann/find/?q={query}"))


def test_only_the_shown_agent_is_searched(service: AgentMemoryService, browse: Browse) -> None:
    service.write_memory_file("bob", "a.md", "secret")
    assert browse(agent="ann").get("/agents/bob/find/?q=secret").status_code == 404
