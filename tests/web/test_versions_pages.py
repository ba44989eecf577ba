"""The pages of versions: who made and ended each, its content, and two of them side by side."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from agent_memory import AgentMemoryService, VersionLimits
from agent_memory.web import _versions
from tests.support.servers import Root
from tests.support.web_pages import InProcess
from tests.web.test_reading import HOSTILE, elements, require_harmless

Browse = Callable[..., InProcess]


@pytest.fixture
def service(root: Root) -> AgentMemoryService:
    return AgentMemoryService(root.url, storage_options=root.options, versions=VersionLimits())


def shown(page: str) -> str:
    return " ".join(elements(page).shown.split())


def test_each_version_has_its_maker_its_operation_and_its_tool_call(
    service: AgentMemoryService, browse: Browse
) -> None:
    memory = service.agent("ann")
    memory.acting_as("claude", "toolu_1").write("a.md", "one")
    memory.acting_as("cleaner", "toolu_2").edit("a.md", lambda text: text + " two")
    page = shown(browse().text("/agents/ann/versions/a.md"))
    assert re.search(r"current 7 bytes edit by cleaner call toolu_2 now", page)
    assert re.search(
        r"[0-9a-f]{16} 3 bytes write by claude call toolu_1 now .* replaced by cleaner edit call toolu_2", page
    )
    assert "is deleted" not in page


def test_a_deleted_file_is_found_by_its_versions(service: AgentMemoryService, browse: Browse) -> None:
    service.write_memory_file("ann", "notes/a.md", "gone")
    service.agent("ann").acting_as("cleaner").delete("notes/a.md")
    pages = browse()
    assert pages.get("/agents/ann/file/notes/a.md").headers["location"] == "/agents/ann/versions/notes/a.md"
    page = pages.text("/agents/ann/versions/")
    href = re.findall(r'href="(/agents/ann/version/notes/a.md\?id=\w+)"', page)[0]
    assert "gone" in pages.text(href)
    assert pages.get(f"{href}&download=1").content == b"gone"
    assert "deleted by cleaner" in shown(page)
    assert "This file is deleted" in pages.text("/agents/ann/versions/notes/a.md")


def test_versions_are_paged(service: AgentMemoryService, browse: Browse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_versions, "PAGE", 2)
    for number in range(6):
        service.write_memory_file("ann", "a.md", str(number))
    pages = browse()
    for page, number in (("/agents/ann/versions/a.md", 5), ("/agents/ann/versions/", 5)):
        seen: list[str] = []
        while page:
            text = pages.text(page)
            seen += re.findall(r"version/a\.md\?id=(\w+)", text)
            following = re.search(r'href="([^"]*after=[^"]*)"', text)
            page = following[1].replace("&amp;", "&") if following else ""
        assert len(seen) == len(set(seen)) == number


def test_the_last_two_versions_are_compared_unasked(service: AgentMemoryService, browse: Browse) -> None:
    service.write_memory_file("ann", "a.md", "first\ncall Ben\n")
    service.write_memory_file("ann", "a.md", "first\ncall Ann\n")
    pages = browse()
    page = pages.text("/agents/ann/diff/a.md")
    assert "call <del>Ben</del>" in page
    assert "call <ins>Ann</ins>" in page
    old = re.findall(r"\?id=(\w+)", pages.text("/agents/ann/versions/a.md"))[0]
    assert "call <ins>Ben</ins>" in pages.text(f"/agents/ann/diff/a.md?old=now&new={old}")
    assert "Both versions are equal" in pages.text(f"/agents/ann/diff/a.md?old={old}&new={old}")


def test_what_cannot_be_compared_is_told(service: AgentMemoryService, browse: Browse) -> None:
    service.write_memory_file("ann", "once.md", "x")
    for content in (b"\xff\0", b"\xff\1"):
        service.agent("ann").write("a.bin", content)
    for letter in "ab":
        service.write_memory_file("ann", "large.md", letter * 1_000_001)
    pages = browse()
    assert "nothing to compare" in pages.text("/agents/ann/diff/once.md")
    assert "They are different" in pages.text("/agents/ann/diff/a.bin")
    assert "are not compared here" in pages.text("/agents/ann/diff/large.md")
    assert pages.get("/agents/ann/diff/once.md?old=0123456789abcdef").status_code == 404
    assert pages.get("/agents/ann/version/once.md?id=none").status_code == 404
    assert pages.get("/agents/ann/diff/none.md").status_code in (200, 404)


def test_a_store_without_versions_says_so(root: Root, browse: Browse) -> None:
    with AgentMemoryService(root.url, storage_options=root.options) as service:
        service.write_memory_file("ann", "a.md", "x")
        assert "This store keeps no versions" in browse().text("/agents/ann/versions/a.md")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_versions_and_makers_are_shown_as_text(service: AgentMemoryService, browse: Browse, text: str) -> None:
    memory = service.agent("ann").acting_as(text, text)
    memory.write("a.md", f"a {text} b\n")
    memory.write("a.md", f"a {text} c {text}\n")
    pages = browse()
    listing = pages.text("/agents/ann/versions/a.md")
    require_harmless(listing)
    require_harmless(pages.text("/agents/ann/diff/a.md"))
    require_harmless(pages.text("/agents/ann/file/a.md"))
    id_ = re.findall(r"\?id=(\w+)", listing)[0]
    require_harmless(pages.text(f"/agents/ann/version/a.md?id={id_}"))


def test_the_content_of_a_redacted_version_is_nowhere(service: AgentMemoryService, browse: Browse) -> None:
    service.write_memory_file("ann", "a.md", "secret words")
    service.write_memory_file("ann", "a.md", "clean")
    memory = service.agent("ann")
    memory.versions.redact("a.md", memory.versions.list("a.md")[1], reason="a <b>key</b>")
    pages = browse()
    for path in ("versions/a.md", "versions/", "diff/a.md", "file/a.md"):
        page = pages.get(f"/agents/ann/{path}").text
        require_harmless(page)
        assert "secret" not in page
    assert "redacted" in pages.text("/agents/ann/versions/a.md")
