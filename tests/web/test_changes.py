"""Restore, undo and redact: only with the session's token, only for the state that was shown, and never lost."""

from __future__ import annotations

import html
import json
import re
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest

from agent_memory import AgentMemory, AgentMemoryService, VersionLimits, hookimpl
from agent_memory.audit import LogLocation
from agent_memory.hookspecs import Operation
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.registry import open_backend
from tests.support.servers import Root
from tests.support.web_pages import InProcess, pages
from tests.web.test_reading import require_harmless
from tests.web.test_versions_pages import shown

Browse = Callable[..., InProcess]


class Seen:
    """A plugin that collects the changes."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, str | None]] = []

    @hookimpl
    def agent_memory_before_operation(self, operation: Operation) -> None:
        if operation.changes:
            self.changes.append((operation.kind, operation.actor))


@pytest.fixture
def memory(root: Root) -> AgentMemory:
    service = AgentMemoryService(root.url, storage_options=root.options, versions=VersionLimits())
    memory = service.agent("ann")
    memory.acting_as("claude", "toolu_1").write("a.md", "first\nkept\n")
    memory.acting_as("cleaner", "toolu_2").write("a.md", "first\n")
    return memory


def form_of(page: str, name: str) -> dict[str, str]:
    """The fields of the form of a page that is sent to an address with this end."""
    found = re.search(rf'<form class="change" method="post" action="[^"]*/{name}">(.*?)</form>', page, re.DOTALL)
    assert found, page
    fields = re.findall(r'<input[^>]* name="([^"]*)"(?: value="([^"]*)")?', found[1])
    return {field: html.unescape(value) for field, value in fields}


def earlier(pages: InProcess, path: str = "a.md") -> str:
    """The address of the last earlier version."""
    listing = pages.text(f"/agents/ann/versions/{path}")
    return html.unescape(re.findall(r'href="([^"]*/version/[^"]*)"', listing)[0])


def test_a_version_is_restored_by_the_person_with_every_hook(memory: AgentMemory, browse: Browse) -> None:
    seen = Seen()
    pages = browse(allow_write=True, actor="Pat", plugins=[seen])
    answer = pages.post("/agents/ann/restore", form_of(pages.text(earlier(pages)), "restore"))
    assert (answer.status_code, answer.headers["location"]) == (303, "/agents/ann/file/a.md?restored=1")
    assert memory.read("a.md") == "first\nkept\n"
    assert seen.changes == [("restore", "Pat")]
    assert "restore by Pat" in shown(pages.text("/agents/ann/file/a.md"))
    assert "Restored." in pages.text(answer.headers["location"])
    assert "Restored." not in pages.text("/agents/ann/file/a.md")
    memory.write("a.md", "later")
    assert "Restored." not in pages.text(answer.headers["location"])


def test_a_page_says_what_a_restore_takes_back_and_which_side(memory: AgentMemory, browse: Browse) -> None:
    pages, reading = browse(allow_write=True), browse()
    address = earlier(pages)
    assert "takes back all later changes" in pages.text(address)
    assert "takes back all later changes" not in reading.text(address)
    assert "Restore the old version (left)" in pages.text("/agents/ann/diff/a.md")
    memory.delete("a.md")
    assert "takes back all later changes" not in pages.text(address)


def test_a_deleted_file_is_restored_unless_another_one_has_its_name(memory: AgentMemory, browse: Browse) -> None:
    memory.delete("a.md")
    pages = browse(allow_write=True)
    form = form_of(pages.text(earlier(pages)), "restore")
    assert form["etag"] == ""
    assert pages.post("/agents/ann/restore", form).status_code == 303
    assert memory.read("a.md") == "first\n"
    assert pages.post("/agents/ann/restore", form).status_code == 409


def test_a_stale_page_shows_what_changed_and_changes_nothing(memory: AgentMemory, browse: Browse) -> None:
    pages = browse(allow_write=True)
    form = form_of(pages.text(earlier(pages)), "restore")
    memory.acting_as("Sam", "toolu_9").write("a.md", "first\nof Sam <b>\n")
    answer = pages.post("/agents/ann/restore", form)
    assert answer.status_code == 409
    require_harmless(answer.text)
    assert "write by Sam call toolu_9" in shown(answer.text)
    assert "of Sam &lt;b&gt;" in answer.text
    assert memory.read("a.md") == "first\nof Sam <b>\n"
    memory.delete("a.md")
    answer = pages.post("/agents/ann/restore", form)
    assert answer.status_code == 409
    assert "The file was deleted" in answer.text


def test_a_stale_page_shows_what_was_appended(memory: AgentMemory, browse: Browse) -> None:
    pages = browse(allow_write=True)
    form = form_of(pages.text(earlier(pages)), "restore")
    memory.acting_as("Sam").append("a.md", "- of Sam <b>\n")
    answer = pages.post("/agents/ann/restore", form)
    assert answer.status_code == 409
    assert "<ins>- of Sam &lt;b&gt;\n</ins>" in answer.text
    assert memory.read("a.md") == "first\n- of Sam <b>\n"


def test_an_undo_of_nothing_in_particular_is_refused(memory: AgentMemory, browse: Browse) -> None:
    pages = browse(allow_write=True)
    form = form_of(pages.text("/agents/ann/undo?actor=cleaner"), "undo")
    for faults in ({"actor": ""}, {"since": "yesterday"}):
        assert pages.post("/agents/ann/undo", {**form, **faults}).status_code == 422
    assert memory.read("a.md") == "first\n"


BROKEN: Mapping[str, Callable[[dict[str, str]], object]] = {
    "no token": lambda form: form.pop("csrf"),
    "an empty token": lambda form: form.update(csrf=""),
    "a wrong token": lambda form: form.update(csrf=form["csrf"][:-1] + ("A" if form["csrf"][-1] != "A" else "B")),
    "a token that is no text": lambda form: form.update(
        csrf="\udcff".encode("utf-8", "surrogateescape").decode("latin-1")
    ),
    "no etag": lambda form: form.pop("etag"),
    "an empty etag": lambda form: form.update(etag=""),
    "a wrong etag": lambda form: form.update(etag="x"),
    "another version": lambda form: form.update(version="0123456789abcdef"),
    "no version": lambda form: form.pop("version"),
    "no path": lambda form: form.pop("path"),
    "a path outside": lambda form: form.update(path="../ben/a.md"),
}


@pytest.mark.parametrize("fault", BROKEN)
@pytest.mark.parametrize("name", ["restore", "redact"])
def test_a_form_with_a_fault_changes_nothing(memory: AgentMemory, browse: Browse, name: str, fault: str) -> None:
    pages = browse(allow_write=True)
    form = {**form_of(pages.text(earlier(pages)), name), "reason": "a test"}
    BROKEN[fault](form)
    before = [memory.read("a.md"), memory.versions.list("a.md")]
    answer = pages.post(f"/agents/ann/{name}", form)
    assert answer.status_code in (403, 404, 409), answer.text
    assert [memory.read("a.md"), memory.versions.list("a.md")] == before


def test_a_form_of_another_site_or_session_changes_nothing(memory: AgentMemory, browse: Browse) -> None:
    pages, other = browse(allow_write=True), browse(allow_write=True)
    form = form_of(pages.text(earlier(pages)), "restore")
    for origin in ("http://evil.example", "null", "https://memory.test"):
        assert pages.post("/agents/ann/restore", form, origin=origin).status_code == 403
    assert other.post("/agents/ann/restore", form).status_code == 403
    for headers in ({"Content-Type": "text/plain"}, {"Content-Type": "multipart/form-data; boundary=x"}):
        send: Any = pages._client.post(
            "/agents/ann/restore", data=form, headers={"Origin": "http://memory.test", **headers}
        )
        assert pages._runner.run(send).status_code == 415
    assert pages.post("/agents/ann/restore", {**form, "more": "x" * 70_000}).status_code == 413
    for method in ("GET", "PUT", "DELETE"):
        send = pages._client.request(method, "/agents/ann/restore", headers={"Origin": "http://memory.test"})
        assert pages._runner.run(send).status_code == 405
    assert memory.read("a.md") == "first\n"


def test_a_form_with_a_transfer_encoding_is_refused_unread(memory: AgentMemory, browse: Browse) -> None:
    pages = browse(allow_write=True)
    form = urlencode(form_of(pages.text(earlier(pages)), "restore")).encode()
    read: list[bytes] = []

    async def body() -> AsyncIterator[bytes]:
        read.append(form)
        yield form

    headers = {"Origin": "http://memory.test", "Content-Type": "application/x-www-form-urlencoded"}
    for more in ({}, {"Content-Length": str(len(form)), "Transfer-Encoding": "chunked"}):
        send: Any = pages._client.post("/agents/ann/restore", content=body(), headers={**headers, **more})
        assert pages._runner.run(send).status_code == 411
    assert read == []
    assert memory.read("a.md") == "first\n"


def test_pages_of_one_agent_change_no_other(memory: AgentMemory, root: Root, browse: Browse) -> None:
    AgentMemoryService(root.url, storage_options=root.options).agent("ben").acting_as("claude").write("b.md", "x")
    pages = browse(allow_write=True)
    form = form_of(pages.text(earlier(pages)), "restore")
    confined = browse(allow_write=True, agent="ben")
    form["csrf"] = form_of(confined.text("/agents/ben/undo?actor=claude"), "undo")["csrf"]
    for name in ("restore", "redact", "undo"):
        assert confined.post(f"/agents/ann/{name}", {**form, "actor": "cleaner", "reason": "x"}).status_code == 404
    assert confined.get("/agents/ann/undo").status_code == 404
    assert memory.read("a.md") == "first\n"
    assert [each.reason for each in memory.versions.list("a.md")] == [None, None]


def test_a_version_is_redacted_with_its_reason(memory: AgentMemory, browse: Browse) -> None:
    pages = browse(allow_write=True, actor="Pat")
    address = earlier(pages)
    form = {**form_of(pages.text(address), "redact"), "reason": "a <b>key</b>"}
    assert pages.post("/agents/ann/redact", {**form, "reason": ""}).status_code == 422
    answer = pages.post("/agents/ann/redact", form)
    assert answer.status_code == 200
    require_harmless(answer.text)
    found = memory.versions.list("a.md")[1]
    assert (found.reason, found.redacted_by and found.redacted_by.actor) == ("a <b>key</b>", "Pat")
    assert pages.get(address).status_code == 404
    assert memory.read("a.md") == "first\n"


def test_a_redaction_tells_where_the_content_still_is(memory: AgentMemory, browse: Browse) -> None:
    memory.write("a.md", "first\nkept\n")
    pages = browse(allow_write=True)
    listing = pages.text("/agents/ann/versions/a.md")
    oldest = html.unescape(re.findall(r'href="([^"]*/version/[^"]*)"', listing)[-1])
    answer = pages.post("/agents/ann/redact", {**form_of(pages.text(oldest), "redact"), "reason": "x"})
    assert "still in 1 other version" in shown(answer.text)


def test_an_undo_is_previewed_and_then_made(memory: AgentMemory, browse: Browse) -> None:
    memory.acting_as("cleaner", "toolu_2").write("new.md", "of the cleaner")
    pages = browse(allow_write=True, actor="Pat")
    page = pages.text("/agents/ann/undo?actor=cleaner")
    require_harmless(page)
    assert "a.md restore" in shown(page)
    assert "new.md delete: it did not exist before" in shown(page)
    assert memory.read("a.md") == "first\n", "a preview changes nothing"
    answer = pages.post("/agents/ann/undo", form_of(page, "undo"))
    assert answer.status_code == 200
    assert "2 changes were undone" in answer.text
    assert memory.read("a.md") == "first\nkept\n"
    assert not memory.exists("new.md")
    assert memory.versions.list("a.md")[0].made_by is not None
    assert "There is nothing to undo" in pages.text("/agents/ann/undo?actor=cleaner")


def test_an_undo_is_chosen_by_a_call_or_a_time(memory: AgentMemory, browse: Browse) -> None:
    pages = browse(allow_write=True)
    assert "a.md restore" in shown(pages.text("/agents/ann/undo?call=toolu_2"))
    assert "Undo 1 change" in pages.text("/agents/ann/undo?since=2020-01-01T00:00")
    assert "nothing to undo" in pages.text("/agents/ann/undo?since=2999-01-01")
    assert "The time is not one" in pages.text("/agents/ann/undo?since=yesterday")
    assert "Choose an actor" in pages.text("/agents/ann/undo")
    assert memory.read("a.md") == "first\n"


@pytest.mark.parametrize("since", ["", "2020-01-01"])
def test_a_stale_undo_shows_the_steps_as_they_are_now(memory: AgentMemory, browse: Browse, since: str) -> None:
    pages = browse(allow_write=True)
    asked = "since=2020-01-01" if since else "actor=cleaner"
    form = form_of(pages.text(f"/agents/ann/undo?{asked}"), "undo")
    memory.acting_as("cleaner" if not since else "Sam", "toolu_9").write("a.md", "of another\n")
    answer = pages.post("/agents/ann/undo", form)
    assert answer.status_code == 409
    assert "toolu_9" in answer.text
    assert memory.read("a.md") == "of another\n"
    for fault in ({"steps": ""}, {"steps": "x"}, {"csrf": ""}):
        assert pages.post("/agents/ann/undo", {**form, **fault}).status_code in (403, 409)
    assert memory.read("a.md") == "of another\n"


def test_appends_of_others_are_kept_by_the_log(root: Root, browse: Browse) -> None:
    plugin = AuditPlugin(LogLocation.below(open_backend(root.url, root.options)))
    with AgentMemoryService(
        root.url, storage_options=root.options, versions=VersionLimits(), plugins=[plugin]
    ) as service:
        for actor in ("ann", "cleaner", "ann"):
            service.agent("ann").acting_as(actor).append("log.md", f"of {actor}\n")
    pages = browse(allow_write=True)
    page = pages.text("/agents/ann/undo?actor=cleaner")
    assert "take out 11 bytes that were appended" in shown(page)
    assert pages.post("/agents/ann/undo", form_of(page, "undo")).status_code == 200
    with AgentMemoryService(root.url, storage_options=root.options) as service:
        assert service.read_memory_file("ann", "log.md") == "of ann\nof ann\n"


ROUNDS = 12


@pytest.mark.parametrize("kind", ["restore", "undo"])
@pytest.mark.parametrize("root", ["local", "ministack"], indirect=True)
def test_of_two_people_who_change_one_file_the_second_sees_the_first(root: Root, kind: str) -> None:
    """Two browsers of two processes send their changes at once: every acknowledged one is a version, and no more."""
    url, env = root.url, {"AGENT_MEMORY_STORAGE_OPTIONS": json.dumps(root.options)}
    with AgentMemoryService(url, storage_options=root.options, versions=VersionLimits()) as service:
        memory = service.agent("ann")
        memory.write("first.md", "makes the store")
        with pages(url, *_web("Pat"), env=env) as first, pages(url, *_web("Sam"), env=env) as second:
            clients = [first.enter(), second.enter()]
            for number in range(ROUNDS):
                path = f"{number}.md"
                memory.acting_as("claude").write(path, "one\n")
                memory.acting_as("cleaner", f"call-{number}").write(path, "two\n")
                answers = _race(clients, path, f"call-{number}", kind)
                statuses = [answer.status_code for answer in answers]
                made = [each.made_by for each in memory.versions.list(path)]
                changes = [by.actor for by in made if by and by.actor in ("Pat", "Sam")]
                accepted = [name for name, status in zip(("Pat", "Sam"), statuses, strict=True) if status in (200, 303)]
                refused = [answer for answer in answers if answer.status_code == 409]
                assert memory.read(path) == "one\n"
                if kind == "restore":
                    assert sorted(changes) == sorted(accepted)
                    assert len(accepted) == 1, statuses
                    assert f"restore by {accepted[0]}" in shown(refused[0].text)
                else:
                    assert len(changes) == 1
                    assert changes[0] in accepted
                    assert not refused or "the files changed since you looked" in refused[0].text


def _web(person: str) -> list[str]:
    return ["--agent", "ann", "--json", "web", "--allow-write", "--as", person]


def _race(clients: list[httpx2.Client], path: str, call: str, kind: str) -> list[httpx2.Response]:
    forms = []
    for client in clients:
        if kind == "restore":
            listing = client.get(f"/agents/ann/versions/{path}").text
            address = html.unescape(re.findall(r'href="([^"]*/version/[^"]*)"', listing)[0])
            page = client.get(str(client.base_url.copy_with(raw_path=address.encode()))).text
        else:
            page = client.get(f"/agents/ann/undo?call={call}").text
        forms.append(form_of(page, kind))
    barrier = threading.Barrier(len(clients))

    def send(client: httpx2.Client, form: dict[str, str]) -> httpx2.Response:
        barrier.wait(60)
        origin = f"{client.base_url.scheme}://{client.base_url.netloc.decode()}"
        return client.post(f"/agents/ann/{kind}", data=form, headers={"Origin": origin})

    with ThreadPoolExecutor(len(clients)) as pool:
        return [*pool.map(send, clients, forms)]
