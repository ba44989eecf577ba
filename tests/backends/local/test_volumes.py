"""Volumes that keep names otherwise than they are given, as the root, as one directory in it, and as our own data.

The stand-in ``tests/support/volume.c`` works below the system's functions. An ext4 filesystem with ``+F`` is mounted
where the kernel has it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_memory import AgentMemory, AgentMemoryService
from tests.faults import building

_SOURCE = Path(__file__).parents[2] / "support" / "volume.c"
_PROGRAM = """
import sys
from pathlib import Path
from agent_memory import *

root = Path(sys.argv[1])

def taken(call, *given):
    try:
        call(*given)
    except FileAlreadyExistsError as error:
        assert error.taken_by in ("other_case", "directory"), error.taken_by
    else:
        raise AssertionError(f"{call}{given} was done")

def missing(call, *given):
    try:
        call(*given)
    except FileNotFoundError:
        pass
    else:
        raise AssertionError(f"{call}{given} was done")
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return building.build(_SOURCE, tmp_path_factory.mktemp("shim") / "volume.so", "-shared", "-fPIC")


@pytest.fixture(params=[pytest.param("stand-in", marks=pytest.mark.long), "ext4"])
def folding(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A directory that ignores case and whose parent does not, and the environment of programs that use it."""
    top = tmp_path / "volume"
    top.mkdir()
    if request.param == "stand-in":
        yield top, {"LD_PRELOAD": str(request.getfixturevalue("shim")), "FOLDS": "/volume"}
        return
    image = tmp_path / "image"
    make = f"truncate -s 16M {image} && mkfs.ext4 -q -O casefold {image} && mount -o loop {image} {top}"
    mounted = subprocess.run(["sh", "-ec", f"{make} && rmdir {top}/lost+found && chattr +F {top}"], capture_output=True)
    if mounted.returncode:
        subprocess.run(["umount", top], check=False, capture_output=True)
        pytest.skip("this kernel has no ext4 with casefold, or only root may mount it")
    yield top, {}
    subprocess.run(["umount", "--lazy", top], check=True)


def run(body: str, root: Path, environment: dict[str, str]) -> str:
    """Run a program with the imports of `_PROGRAM`, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM + body, str(root)],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


TWO_AGENTS = """
with AgentMemoryService(root) as service:
    service.agent("Ada").write("Plan.md", "Ada's")
    other = service.agent("ada")
    for change in (other.write, other.append, other.create):
        taken(change, "plan.md", "ada's")
        taken(change, "new/deep.md", "ada's")
    missing(other.read, "Plan.md")
    missing(other.read, "plan.md")
    missing(other.delete, "Plan.md")
    missing(other.rename, "Plan.md", "x.md")
    assert other.list() == () and not other.exists("Plan.md")
    assert other.delete_tree("").files == 0
    other.forget("")
    assert service.agent_ids() == ("Ada",)
with AgentMemoryService(root) as later:  # reads only
    missing(later.agent("ADA").read, "Plan.md")
    assert later.agent("ADA").list() == ()
    assert later.agent("Ada").read("Plan.md") == "Ada's"
    assert not later.capabilities.case_sensitive
"""


@pytest.mark.parametrize("below", ["", "new/deeper"])
def test_two_agents_are_never_one_directory(folding: tuple[Path, dict[str, str]], below: str) -> None:
    top, environment = folding
    run(TWO_AGENTS, top / below, environment)


TWO_FILES = """
with AgentMemory.open(root) as memory:
    memory.write("Notes/A.md", "x")
    for name in ("notes/b.md", "Notes/a.md", "NOTES"):
        for change in (memory.write, memory.append, memory.create):
            taken(change, name, "y")
    memory.write("other.md", "z")
    for name in ("notes/b.md", "Notes/a.md", "NOTES", "OTHER.md"):
        taken(memory.rename, "other.md", name)
        taken(memory.copy, "other.md", name)
    memory.write("d/x.md", "x")
    taken(memory.rename, "d", "NOTES")
    for name in ("notes/A.md", "Notes/a.md", "OTHER.MD"):
        for call in (memory.read, memory.delete, memory.stat):
            missing(call, name)
        missing(memory.rename, name, "new.md")
    memory.append("Notes/A.md", "y")
    assert memory.read("Notes/A.md") == "xy"
    memory.delete("Notes/A.md")
    memory.write("notes/a.md", "free again")
    assert [entry.path for entry in memory.list()] == ["d/x.md", "notes/a.md", "other.md"]
"""


def test_two_files_or_directories_are_never_one(folding: tuple[Path, dict[str, str]]) -> None:
    top, environment = folding
    run(TWO_FILES, top, environment)


RACE = """
import threading
from agent_memory.errors import AgentMemoryError

services = [AgentMemoryService(f"file://{root}?durability=process") for _ in range(4)]
for turn in range(40):
    names = [f"Agent{turn}", f"agent{turn}", f"AGENT{turn}", f"aGENT{turn}"]
    barrier, done = threading.Barrier(len(names)), []

    def attempt(service, name):
        barrier.wait()
        try:
            service.agent(name).write("same.md", name)
            done.append(name)
        except FileAlreadyExistsError:
            pass

    threads = [threading.Thread(target=attempt, args=each) for each in zip(services, names, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 1, (done, sorted(each.name for each in (root / "agent_memory").iterdir()))
    for service, name in zip(services, names, strict=True):
        if name == done[0]:
            assert service.agent(name).read("same.md") == name
        else:
            missing(service.agent(name).read, "same.md")
"""


def test_of_raced_spellings_of_an_agent_exactly_one_wins(folding: tuple[Path, dict[str, str]]) -> None:
    top, environment = folding
    run(RACE, top / "store", environment)


ONE_DIRECTORY = """
with AgentMemory.open(root) as memory:
    memory.write("Above.md", "1")
    memory.write("above.md", "2")
    memory.write("inner/Notes.md", "3")
    taken(memory.write, "inner/notes.md", "4")
    missing(memory.read, "inner/NOTES.md")
    assert (memory.read("Above.md"), memory.read("above.md"), memory.read("inner/Notes.md")) == ("1", "2", "3")
"""


def test_one_directory_of_a_tree_may_have_other_rules(tmp_path: Path, shim: Path) -> None:
    run(ONE_DIRECTORY, tmp_path, {"LD_PRELOAD": str(shim), "FOLDS": "/inner"})


OWN_DATA = """
with AgentMemoryService(root) as service:
    for name in ("Ada", "ada"):
        service.agent(name).write("plan.md", f"first of {name}")
    service.agent("Ada").versions.set_limits(VersionLimits())
    service.agent("Ada").write("plan.md", "second of Ada")
    try:
        service.agent("ada").write("plan.md", "second of ada")
    except WriteError as error:
        assert "cannot be kept" in str(error), error
    else:
        raise AssertionError("two agents share their versions")
    assert service.agent("ada").read("plan.md") == "first of ada"
    assert len(service.agent("Ada").versions.list("plan.md")) == 2
    service.agent("Ada").once("one key").write("new.md", "x")
    try:
        service.agent("ada").once("one key").write("new.md", "x")
    except WriteError as error:
        assert "receipt" in str(error), error
    else:
        raise AssertionError("two agents share their receipts")
    assert not service.agent("ada").exists("new.md")
"""


def test_the_stores_own_data_of_two_agents_are_never_one(tmp_path: Path, shim: Path) -> None:
    run(OWN_DATA, tmp_path, {"LD_PRELOAD": str(shim), "FOLDS": "/.agent-memory"})


DECOMPOSED = """
with AgentMemory.open(root) as memory:
    memory.write("caf\\u00e9/r\\u00e9sum\\u00e9.md", "x")
    memory.append("caf\\u00e9/r\\u00e9sum\\u00e9.md", "y")
    assert [entry.path for entry in memory.list()] == ["caf\\u00e9/r\\u00e9sum\\u00e9.md"]
    assert [entry.path for entry in memory.list("caf\\u00e9")] == ["caf\\u00e9/r\\u00e9sum\\u00e9.md"]
    memory.rename("caf\\u00e9", "the caf\\u00e9")
    assert memory.read("the caf\\u00e9/r\\u00e9sum\\u00e9.md") == "xy"
    assert memory.delete_tree("").files == 1
    assert memory.list() == ()
"""


MOVED = """
with AgentMemory.open(root) as memory:
    memory.write("d/A.md", "1")
    memory.write("d/a.md", "2")
    memory.delete_tree("d")
    memory.write("e/A.md", "3")
    memory.rename("e", "d")
    assert not memory._tree.backend._walker.spelling.is_known_exact("d")
"""


def test_a_directory_that_was_moved_is_looked_at_again(tmp_path: Path) -> None:
    run(MOVED, tmp_path, {})


@pytest.mark.parametrize("folds", ["", "/volume"])
def test_names_that_a_volume_decomposes_are_listed_as_they_were_given(tmp_path: Path, shim: Path, folds: str) -> None:
    environment = {"LD_PRELOAD": str(shim), "DECOMPOSES": "/volume", "FOLDS": folds}
    run(DECOMPOSED, tmp_path / "volume", environment)


def test_a_foreign_decomposed_name_is_left_out_where_it_is_a_name_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "cafe\u0301.md").write_text("x")
    assert AgentMemory.open(tmp_path).list() == ()


STORED_OTHERWISE = """
with AgentMemory.open(root) as memory:
    for change in (memory.write, memory.append, memory.create):
        taken(change, "Plan.md", "x")
        taken(change, "Plans/a.md", "x")
    memory.write("plan.md", "kept")
    memory.write("d/a.md", "kept")
    for old, new in (("plan.md", "Other.md"), ("d", "Other"), ("plan.md", "Other/plan.md")):
        taken(memory.rename, old, new)
    assert [entry.path for entry in memory.list()] == ["d/a.md", "plan.md"]
    assert memory.read("plan.md") == memory.read("d/a.md") == "kept"
assert sorted(each.name for each in root.rglob("*") if ".agent-memory" not in each.parts) == ["a.md", "d", "plan.md"]
"""


def test_a_name_that_a_volume_stores_otherwise_is_refused_and_leaves_nothing(tmp_path: Path, shim: Path) -> None:
    environment = {"LD_PRELOAD": str(shim), "LOWERS": "/volume", "FOLDS": "/volume"}
    run(STORED_OTHERWISE, tmp_path / "volume", environment)


def test_an_export_into_a_folder_that_ignores_case_loses_no_file(folding: tuple[Path, dict[str, str]]) -> None:
    top, environment = folding
    store = top.parent / "store"
    with AgentMemoryService(store) as service:
        for name in ("A.md", "a.md", "D/x.md", "d/y.md"):
            service.agent("ann").write(name, name)
    export = ["-m", "agent_memory", "--url", str(store), "--agent", "ann", "export", str(top), "--overwrite"]
    done = subprocess.run([sys.executable, *export], env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 4, done.stderr
    assert {"'a.md'", "'d/y.md'"} <= set(re.findall(r"'[^']+'", done.stderr))
    assert (top / "A.md").read_text() == "A.md"
    assert sorted(each.name for each in (top / "D").iterdir()) == ["x.md"]
