"""Calls with two paths: the second may be of another memory, and is never taken for a name in the first one's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from upath import UPath

from agent_memory import AgentMemoryService
from agent_memory.integrations.fsspec import AgentMemoryURLFileSystem
from agent_memory.integrations.upath import AgentMemoryPath

Call = Callable[["Two"], object]


class Two:
    """The memories of two agents of one store, with the same names."""

    def __init__(self, root: Path) -> None:
        self.root = root
        with AgentMemoryService(root) as service:
            for agent in ("ann", "bob"):
                service.agent(agent).write("a.md", agent)
                service.agent(agent).write("d/e.md", agent)

    def ann(self, name: str = "a.md", **options: Any) -> Any:
        return UPath(f"agentmemory://{name}", **{"root": str(self.root), "agent": "ann", **options})

    def bob(self, name: str = "new.md") -> Any:
        return self.ann(name, agent="bob")

    @property
    def fs(self) -> Any:
        return fsspec.filesystem("agentmemory", root=str(self.root), agent="ann")

    def files(self) -> dict[str, str]:
        with AgentMemoryService(self.root) as service:
            return {
                f"{agent}/{entry.path}": service.agent(agent).read(entry.path)
                for agent in ("ann", "bob")
                for entry in service.agent(agent).list()
            }


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Two]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "local.md").write_text("local")
    if (elsewhere := fsspec.filesystem("memory")).exists("/x"):
        elsewhere.rm("/x", recursive=True)  # of another test
    yield Two(tmp_path / "store")
    AgentMemoryURLFileSystem.clear_instance_cache()


START = {"ann/a.md": "ann", "ann/d/e.md": "ann", "bob/a.md": "bob", "bob/d/e.md": "bob"}


@pytest.mark.parametrize(
    ("call", "there", "gone"),
    [
        (lambda two: two.ann().copy(two.bob()), {"bob/new.md": "ann"}, []),
        (lambda two: two.ann("d").copy(two.bob("n")), {"bob/n/e.md": "ann"}, []),
        (lambda two: two.ann().copy_into(two.bob("d")), {"bob/d/a.md": "ann"}, []),
        (lambda two: two.ann().move(two.bob()), {"bob/new.md": "ann"}, ["ann/a.md"]),
        (lambda two: two.ann("d").move(two.bob("n")), {"bob/n/e.md": "ann"}, ["ann/d/e.md"]),
        (lambda two: two.ann().move_into(two.bob("d")), {"bob/d/a.md": "ann"}, ["ann/a.md"]),
        (lambda two: two.ann().rename("n.md"), {"ann/n.md": "ann"}, ["ann/a.md"]),
        (lambda two: two.ann().rename("agentmemory://n.md"), {"ann/n.md": "ann"}, ["ann/a.md"]),
        (lambda two: two.ann().rename(two.ann("n.md")), {"ann/n.md": "ann"}, ["ann/a.md"]),
        (lambda two: two.fs.put(f"file://{two.root.parent}/local.md", "n.md"), {"ann/n.md": "local"}, []),
        (lambda two: two.fs.put(two.root.parent / "local.md", "n.md"), {"ann/n.md": "local"}, []),
        (lambda two: two.fs.put(UPath(two.root.parent / "local.md"), "n.md"), {"ann/n.md": "local"}, []),
    ],
)
def test_a_second_path_of_another_memory_is_written_there(
    two: Two, call: Call, there: dict[str, str], gone: list[str]
) -> None:
    call(two)
    assert two.files() == {name: text for name, text in START.items() if name not in gone} | there


@pytest.mark.parametrize(
    "call",
    [
        lambda two: two.ann().rename(two.bob()),
        lambda two: two.ann().rename(UPath("memory://x/new.md")),
        lambda two: two.ann().rename("memory://x/new.md"),
        lambda two: two.ann().rename(two.root.parent / "new.md"),
        lambda two: two.ann("d").joinpath(two.bob("x")),
        lambda two: two.ann("d") / two.bob("x"),
        lambda two: UPath(two.ann("d"), two.bob("x")),
        lambda two: UPath(two.ann("d"), "e", two.bob("x")),
        lambda two: two.ann("d") / UPath("memory://x"),
        *(
            lambda two, name=name, make=make: getattr(two.fs, name)("a.md", make(two))
            for name in ("mv", "move", "rename", "cp_file", "cp", "copy", "get", "get_file", "download")
            for make in (
                lambda two: two.bob(),
                lambda two: fsspec.open("agentmemory://new.md", root=str(two.root), agent="bob"),
                lambda _: UPath("memory://x/new.md"),
                lambda _: "memory://x/new.md",
            )
        ),
        *(
            lambda two, name=name, make=make: getattr(two.fs, name)("local.md", make(two))
            for name in ("put", "put_file", "upload")
            for make in (
                lambda two: two.bob(),
                lambda _: UPath("memory://x/new.md"),
                lambda _: "memory://x/new.md",
            )
        ),
        lambda two: two.fs.get("a.md", "agentmemory://new.md"),
        lambda two: two.fs.get(["a.md"], ["agentmemory://new.md"]),
        lambda two: two.fs.put("agentmemory://a.md", "new.md"),
        lambda two: two.fs.put(two.bob("a.md"), "new.md"),
        lambda two: two.fs.put_file(two.bob("a.md"), "new.md"),
        lambda two: two.fs.mv(two.bob("a.md"), "new.md"),
        lambda two: two.fs.mv(["a.md"], [two.bob()]),
        lambda two: two.fs.cp(["a.md"], [two.bob()]),
        lambda two: two.fs.cat(two.bob("a.md")),
        lambda two: two.fs.pipe_file(two.bob("a.md"), b"x"),
        lambda two: two.fs.open(two.bob("a.md"), "w"),
        lambda two: two.fs.rm(two.bob("a.md")),
    ],
)
def test_a_second_path_of_another_store_is_refused(two: Two, call: Call) -> None:
    local = sorted(two.root.parent.iterdir())
    with pytest.raises(ValueError, match=r"in this one|one memory|another memory|local disk|must not contain"):
        call(two)
    assert two.files() == START
    assert sorted(two.root.parent.iterdir()) == local
    assert fsspec.filesystem("memory").find("/x") == []


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"actor": "x"},
        {"root": "store"},
        {"root": "link"},
        {"root": "FILE"},
        {"root": "ROOT/agent_memory/ann", "agent": None},
    ],
)
@pytest.mark.parametrize("verb", ["move", "copy"])
def test_a_file_is_not_moved_to_itself_under_another_root_or_option(
    two: Two, options: dict[str, Any], verb: str
) -> None:
    Path("link").symlink_to(two.root)
    if "root" in options:
        root = {"FILE": two.root.as_uri()}.get(options["root"], options["root"].replace("ROOT", str(two.root)))
        options = {**options, "root": root}
    there = two.ann(**options)
    assert two.ann().samefile(there)
    with pytest.raises(OSError, match="same"):
        getattr(two.ann(), verb)(there)
    with pytest.raises(OSError, match="same"):
        getattr(two.ann("d"), verb)(two.ann("d/below", **options))
    assert two.files() == START


def test_files_of_two_agents_are_not_the_same_file(two: Two) -> None:
    assert not two.ann().samefile(two.bob("a.md"))
    assert two.ann() != two.bob("a.md")


def test_names_are_whole_in_a_process_that_has_not_used_fsspec(two: Two) -> None:
    program = (
        "import sys; from upath import UPath; "
        "path = UPath('agentmemory://d', root=sys.argv[1], agent='ann'); "
        "print([each.name for each in path.iterdir()], path.parent / 'a.md')"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, str(two.root)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "['e.md'] agentmemory://a.md\n"


def test_the_class_is_found_by_the_url(two: Two) -> None:
    assert isinstance(two.ann(), AgentMemoryPath)


@pytest.mark.parametrize("other", ["file:///{root}", "FILE://{root}", "{root}/../store"])
def test_a_file_is_not_moved_to_itself_under_another_name_of_its_store(two: Two, other: str) -> None:
    before = two.files()
    there = two.ann(root=other.format(root=two.root))
    with pytest.raises(OSError, match=r"may be the source itself|are the same"):
        two.ann().move(there)
    assert two.files() == before


def test_a_file_is_moved_over_another_content(two: Two) -> None:
    two.ann().move(two.bob("a.md"))
    assert two.files() == {"ann/d/e.md": "ann", "bob/a.md": "ann", "bob/d/e.md": "bob"}
