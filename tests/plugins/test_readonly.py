"""Read-only files cannot be written, moved or deleted by any operation."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from agent_memory import AgentMemory, AgentMemoryService, Left, OperationDenied, VersionLimits
from agent_memory.plugins.readonly import ReadOnlyPlugin

FILES = {"policies/a.md": "a", "policies/deep/b.md": "b", "notes/c.md": "c", "x.lock": "x", "notes/y.lock": "y"}
_numbers = itertools.count()
Change = Callable[[AgentMemory], object]


def opened(*patterns: str, agents: list[str] | None = None) -> AgentMemoryService:
    url = f"memory://read-only-{next(_numbers)}"
    with AgentMemoryService(url) as plain:
        for path, text in FILES.items():
            plain.write_memory_file("bob", path, text)
            plain.write_memory_file("eve", path, text)
    return AgentMemoryService(url, plugins=[ReadOnlyPlugin(*patterns, agents=agents)])


def files(memory: AgentMemory) -> dict[str, str]:
    return {entry.path: memory.read(entry.path) for entry in memory.list()}


REFUSED: list[tuple[str, Change]] = [
    ("policies/**", lambda m: m.write("policies/a.md", "new")),
    ("policies/**", lambda m: m.write("policies/new/file.md", "new")),
    ("policies/**", lambda m: m.create("policies/new.md", "new")),
    ("policies/**", lambda m: m.append("policies/deep/b.md", "new")),
    ("policies/**", lambda m: m.edit("policies/a.md", lambda text: text + "new")),
    ("policies/**", lambda m: m.delete("policies/a.md")),
    ("policies/**", lambda m: m.delete_tree("policies/deep")),
    ("policies/**", lambda m: m.delete_tree("policies")),
    ("policies/**", lambda m: m.delete_tree("")),
    ("policies/**", lambda m: m.rename("policies/a.md", "b.md")),
    ("policies/**", lambda m: m.rename("notes/c.md", "policies/c.md")),
    ("policies/**", lambda m: m.rename("policies", "other")),
    ("policies/**", lambda m: m.rename("notes", "policies/notes")),
    ("policies/**", lambda m: m.copy("notes", "policies/notes")),
    ("policies/deep/*.md", lambda m: m.rename("policies", "other")),
    ("**/*.lock", lambda m: m.write("x.lock", "new")),
    ("**/*.lock", lambda m: m.write("notes/y.lock", "new")),
    ("**/*.lock", lambda m: m.delete_tree("notes")),
    ("*.lock", lambda m: m.delete("x.lock")),
    ("*.lock", lambda m: m.write("X.LOCK", "new")),
    ("Policies/**", lambda m: m.write("policies/a.md", "new")),
    ("?.md", lambda m: m.write("ß.md", "new")),
    ("STRASSE.md", lambda m: m.write("straße.md", "new")),
    ("**", lambda m: m.write("anything", "new")),
]
ALLOWED: list[tuple[str, Change]] = [
    ("policies/**", lambda m: m.read("policies/a.md")),
    ("policies/**", lambda m: m.list("policies")),
    ("policies/**", lambda m: m.copy("policies", "copies")),
    ("policies/**", lambda m: m.write("policies2/a.md", "new")),
    ("policies/**", lambda m: m.write("notes/policies/a.md", "new")),
    ("policies/**", lambda m: m.delete_tree("notes")),
    ("policies/deep/*.md", lambda m: m.write("policies/a.md", "new")),
    ("policies/deep/*.md", lambda m: m.delete("policies/a.md")),
    ("*.lock", lambda m: m.write("notes/y.lock", "new")),
    ("i.md", lambda m: m.write("\u0130.md", "new")),  # differs under str.casefold
    ("\u0131.md", lambda m: m.write("I.md", "new")),
]


@pytest.mark.parametrize(("pattern", "change"), REFUSED)
def test_a_change_is_refused_and_changes_nothing(pattern: str, change: Change) -> None:
    with opened(pattern) as service:
        memory = service.agent("bob")
        before = files(memory)
        with pytest.raises(OperationDenied, match="is read-only here"):
            change(memory)
        assert files(memory) == before


@pytest.mark.parametrize("change", ["restore", "redact", "undo"])
def test_versions_of_a_read_only_file_stay_as_they_are(change: str) -> None:
    url = f"memory://read-only-{next(_numbers)}"
    with AgentMemory.open(url, versions=VersionLimits(), actor="bob") as plain:
        for text in ("one", "two"):
            plain.write("policies/a.md", text)
        version = plain.versions.list("policies/a.md")[1].id
        memory = AgentMemory.open(url, plugins=[ReadOnlyPlugin("policies/**")])
        if change == "undo":
            assert memory.versions.undo(actor="bob").left == (Left("policies/a.md", "refused: it is read-only here"),)
        else:
            with pytest.raises(OperationDenied, match="is read-only here"):
                getattr(memory.versions, change)(
                    "policies/a.md", version, **({"reason": "x"} if change == "redact" else {})
                )
        assert (plain.read("policies/a.md"), plain.versions.read("policies/a.md", version)) == ("two", "one")


@pytest.mark.parametrize(("pattern", "change"), ALLOWED)
def test_every_other_change_is_allowed(pattern: str, change: Change) -> None:
    with opened(pattern) as service:
        change(service.agent("bob"))


def test_the_pattern_applies_only_to_the_named_agents() -> None:
    with opened("policies/**", agents=["bob"]) as service:
        service.write_memory_file("eve", "policies/a.md", "new")
        with pytest.raises(OperationDenied):
            service.write_memory_file("bob", "policies/a.md", "new")


def test_the_pattern_applies_to_the_path_in_the_agents_tree_below_a_subtree_too() -> None:
    with opened("policies/**") as service, pytest.raises(OperationDenied):
        service.agent("bob").subtree("policies").write("a.md", "new")


@pytest.mark.parametrize("pattern", ["", "/a", "a//b", "a/../b", "./a", "a/"])
def test_a_pattern_that_matches_no_path_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="matches no path"):
        ReadOnlyPlugin(pattern)
