"""One change of a text is taken back, and the later ones stay; or nothing is changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory import AgentMemory, AgentMemoryService, VersionLimits
from agent_memory.web import _compare, _versions
from agent_memory.web._compare import Comparison, compare
from agent_memory.web._reverting import reverted
from tests.support.servers import Root
from tests.support.web_pages import InProcess
from tests.web.test_changes import form_of

Browse = Callable[..., InProcess]
LINES = st.lists(st.sampled_from(["", "a", "b", "c", "the plan", "x y"]), max_size=12)


@given(LINES, LINES)
def test_the_last_change_is_taken_back_whole(before: list[str], after: list[str]) -> None:
    old, new = "\n".join(before), "\n".join(after)
    assert reverted(old, new, new) == old


@given(LINES, LINES, LINES)
def test_lines_that_were_appended_since_stay(before: list[str], after: list[str], more: list[str]) -> None:
    """Marked, so that they equal no other line."""
    old, new = ("".join(f"{line}\n" for line in lines) for lines in (before, after))
    added = "".join(f"+{line}\n" for line in more)
    found = reverted(old, new, new + added)
    assert found is None or [line for line in found.split("\n") if not line.startswith("+")] == old.split("\n")
    assert found is None or [line for line in found.split("\n") if line.startswith("+")] == added.split("\n")[:-1]


@pytest.mark.parametrize(
    ("old", "new", "now", "expected"),
    [
        ("a b c", "a c", "a c d", "a b c d"),
        ("a b c", "a c", "0 a c", "0 a b c"),
        ("a b c", "a c", "a x", "a b x"),  # the line before is there still
        ("a b c", "a c", "x c", "x b c"),
        ("a b c", "a c", "x y", None),
        ("a b c", "a B c", "0 a B c 1", "0 a b c 1"),
        ("a b c", "a B c", "a BB c", None),
        ("a b c d", "a B C d", "a B x C d", None),
        ("a b c d e f", "B b c d e F", "B b c x d e F", "a b c x d e f"),
        ("a b", "", "", "a b"),
        ("a b c", "a c", "a b c", None),  # it is there again
        ("a b c d", "a d", "a b d", None),
    ],
)
def test_a_change_is_taken_back_only_where_its_lines_are_as_it_left_them(
    old: str, new: str, now: str, expected: str | None
) -> None:
    texts = ["\n".join(text.split(" ")) for text in (old, new, now)]
    assert reverted(*texts) == (None if expected is None else "\n".join(expected.split(" ")))


@pytest.fixture
def service(root: Root) -> AgentMemoryService:
    return AgentMemoryService(root.url, storage_options=root.options, versions=VersionLimits())


def removed_and_went_on(service: AgentMemoryService) -> str:
    """A line is removed, then another is added; returns the address of the comparison of the removal."""
    memory = service.agent("ann")
    memory.write("a.md", "one\ntwo\nthree\n")
    memory.acting_as("cleaner").edit("a.md", lambda text: text.replace("two\n", ""))
    memory.acting_as("claude").edit("a.md", lambda text: text + "four\n")
    _, removal, first = memory.versions.list("a.md")
    return f"/agents/ann/diff/a.md?old={first.id}&new={removal.id}"


def test_a_removed_line_comes_back_and_the_later_one_stays(service: AgentMemoryService, browse: Browse) -> None:
    pages = browse(allow_write=True)
    page = pages.text(removed_and_went_on(service))
    answer = pages.post("/agents/ann/revert", form_of(page, "revert"))
    assert (answer.status_code, answer.headers["location"]) == (303, "/agents/ann/diff/a.md?taken_back=1")
    assert service.read_memory_file("ann", "a.md") == "one\ntwo\nthree\nfour\n"
    newest = service.agent("ann").versions.list("a.md")[0].made_by
    assert newest
    assert newest.actor == "person"


def test_a_file_that_changed_since_it_was_shown_is_left_as_it_is(service: AgentMemoryService, browse: Browse) -> None:
    pages = browse(allow_write=True)
    form = form_of(pages.text(removed_and_went_on(service)), "revert")
    changes: tuple[Callable[[AgentMemory], object], ...] = (
        lambda memory: memory.append("a.md", "five\n"),
        lambda memory: memory.delete("a.md"),
    )
    for change in changes:
        change(service.agent("ann"))
        answer = pages.post("/agents/ann/revert", form)
        assert answer.status_code == 409
        assert "Nothing was taken back" in answer.text
    assert not service.agent("ann").exists("a.md")


def test_what_was_taken_back_is_not_offered_again(service: AgentMemoryService, browse: Browse) -> None:
    pages, address = browse(allow_write=True), removed_and_went_on(service)
    form = form_of(pages.text(address), "revert")
    assert pages.post("/agents/ann/revert", form).status_code == 303
    assert 'action="/agents/ann/revert"' not in pages.text(address)


@pytest.mark.parametrize("is_last", [False, True])
def test_what_others_appended_to_the_change_stays(
    service: AgentMemoryService, browse: Browse, *, is_last: bool
) -> None:
    memory = service.agent("ann")
    memory.write("a.md", "one\nHotel\ntwo\n")
    memory.acting_as("cleaner").edit("a.md", lambda text: text.replace("Hotel\n", ""))
    memory.acting_as("bob").append("a.md", "Dinner\n")
    if not is_last:
        memory.acting_as("claude").edit("a.md", lambda text: text + "more\n")
    old = memory.versions.list("a.md")[-1]
    new = "now" if is_last else memory.versions.list("a.md")[1].id
    pages = browse(allow_write=True)
    page = pages.text(f"/agents/ann/diff/a.md?old={old.id}&new={new}")
    assert "7 bytes appended" in page
    assert pages.post("/agents/ann/revert", form_of(page, "revert")).status_code == 303
    assert memory.read("a.md") == "one\nHotel\ntwo\nDinner\n" + ("" if is_last else "more\n")


def test_a_change_while_the_page_is_made_is_noticed(
    service: AgentMemoryService, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages, address = browse(allow_write=True), removed_and_went_on(service)

    def meanwhile(old: str, new: str) -> Comparison:
        service.agent("ann").append("a.md", "BOB\n")
        return compare(old, new)

    with monkeypatch.context() as patched:
        patched.setattr(_versions, "compare", meanwhile)
        form = form_of(pages.text(address), "revert")
    assert pages.post("/agents/ann/revert", form).status_code == 409
    assert "BOB" in service.read_memory_file("ann", "a.md")


def test_forms_of_other_versions_and_without_a_token_change_nothing(
    service: AgentMemoryService, browse: Browse
) -> None:
    pages = browse(allow_write=True)
    form = form_of(pages.text(removed_and_went_on(service)), "revert")
    before = service.read_memory_file("ann", "a.md")
    for wrong, status in (
        ({"csrf": "x"}, 403), ({"etag": ""}, 409), ({"version": "0" * 16}, 404), ({"new": "nothing"}, 404),
        ({"version": "now"}, 422),  ({"path": "../b"}, 404),
    ):  # fmt: skip
        answer = pages.post("/agents/ann/revert", {**form, **wrong})
        assert answer.status_code == status, wrong
    assert service.read_memory_file("ann", "a.md") == before


@pytest.mark.parametrize(
    "texts", [("one", "two", "three"), (b"\xff", b"\xfe", b"\xfd"), ("a\nb" * 50, "a\n" * 100, "a\n" * 50)]
)
def test_a_change_that_cannot_be_taken_back_alone_has_no_button(
    service: AgentMemoryService, browse: Browse, texts: tuple[str | bytes, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_compare, "MOST_LINES", 10)
    for text in texts:
        service.agent("ann").write("a.md", text)
    _, new, old = service.agent("ann").versions.list("a.md")
    pages = browse(allow_write=True)
    assert "Take back only" not in pages.text(f"/agents/ann/diff/a.md?old={old.id}&new={new.id}")


def test_a_large_file_is_never_cut(
    service: AgentMemoryService, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = browse(allow_write=True)
    form = form_of(pages.text(removed_and_went_on(service)), "revert")
    monkeypatch.setattr(_versions, "MOST_COMPARED", 5)
    assert pages.post("/agents/ann/revert", form).status_code == 422
    assert service.read_memory_file("ann", "a.md") == "one\nthree\nfour\n"


def test_without_changes_allowed_there_is_no_route(service: AgentMemoryService, browse: Browse) -> None:
    pages = browse()
    page = pages.text(removed_and_went_on(service))
    assert "Take back" not in page
    assert pages.post("/agents/ann/revert", {}).status_code == 404
