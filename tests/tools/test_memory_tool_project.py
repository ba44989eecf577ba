"""`MemoryTool.for_project`: a project's memories are stored in its git work tree, as git reports it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from agent_memory.tools import AsyncMemoryTool, MemoryTool
from tests.tools.calls import refused, succeeded

VIEW = {"command": "view", "path": "/memories"}
CREATE = {"command": "create", "path": "/memories/foo.txt", "file_text": "x"}
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----"


@pytest.fixture(autouse=True)
def _no_other_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GIT_DIR", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    directory = tmp_path / "répo with spaces"
    subprocess.run(["git", "init", "--quiet", str(directory)], check=True)
    return directory


def make_keys(directory: Path) -> Path:
    """Create the directory that a link of a hostile repository points to."""
    directory.mkdir(parents=True)
    for name in ("id_ed25519", "authorized_keys"):
        (directory / name).write_text(KEY)
    return directory


def memories_made_in(start: str | Path, above: Path) -> list[str]:
    """The directory of the first write. Check that nothing is created before it."""
    tool = MemoryTool.for_project(start)
    before = sorted(above.rglob("*"))
    succeeded(tool.call(VIEW))
    refused(tool.call({"command": "view", "path": "/memories/foo.txt"}))
    assert sorted(above.rglob("*")) == before
    succeeded(tool.call(CREATE))
    return [str(path.relative_to(above)) for path in above.rglob("foo.txt")]


def test_the_memories_are_stored_at_the_top_of_the_work_tree(repository: Path) -> None:
    assert memories_made_in(repository, repository) == [".claude/memories/foo.txt"]


@pytest.mark.parametrize("name", ["src", "src/deep/er", "line\nbreak"])
def test_a_directory_in_the_work_tree_uses_the_memories_of_the_work_tree(repository: Path, name: str) -> None:
    (repository / name).mkdir(parents=True)
    assert memories_made_in(repository / name, repository) == [".claude/memories/foo.txt"]


def test_a_work_tree_whose_name_ends_with_a_newline_is_found(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path / "odd\n")], check=True)
    assert memories_made_in(tmp_path / "odd\n", tmp_path) == ["odd\n/.claude/memories/foo.txt"]


def test_an_added_work_tree_has_its_own_memories(repository: Path, tmp_path: Path) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", *identity, "commit", "--quiet", "--allow-empty", "-m", "x"], cwd=repository, check=True)
    subprocess.run(["git", "worktree", "add", "--quiet", str(tmp_path / "other")], cwd=repository, check=True)
    assert memories_made_in(tmp_path / "other", tmp_path) == ["other/.claude/memories/foo.txt"]


def test_a_directory_outside_git_has_its_own_memories(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    assert memories_made_in(tmp_path / "plain", tmp_path) == ["plain/.claude/memories/foo.txt"]


def test_a_directory_has_its_own_memories_if_git_is_not_installed(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "src").mkdir()
    monkeypatch.setenv("PATH", "")
    assert memories_made_in(repository / "src", repository) == ["src/.claude/memories/foo.txt"]


def test_the_current_directory_is_the_default(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / "src").mkdir()
    monkeypatch.chdir(repository / "src")
    assert memories_made_in(".", repository) == [".claude/memories/foo.txt"]
    other = MemoryTool.for_project()
    assert "/memories/foo.txt" in succeeded(other.call(VIEW))


def test_the_project_is_looked_up_only_once(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)
    tool = MemoryTool.for_project()
    monkeypatch.chdir(tmp_path)
    succeeded(tool.call(CREATE))
    assert (repository / ".claude" / "memories" / "foo.txt").read_text() == "x"


def test_the_async_tool_has_the_same_memories(repository: Path) -> None:
    succeeded(asyncio.run(AsyncMemoryTool.for_project(repository).call(CREATE)))
    assert "/memories/foo.txt" in succeeded(MemoryTool.for_project(repository).call(VIEW))


def test_no_command_reaches_a_file_outside_the_memories(repository: Path) -> None:
    (repository / ".claude" / "memories").mkdir(parents=True)
    (repository / ".claude" / "settings.json").write_text("{}")
    (repository / ".claude" / "memories" / "up").symlink_to(repository)
    tool = MemoryTool.for_project(repository)
    for path in ("/memories/../settings.json", "/memories/up/.claude/settings.json", str(repository), "/memoriesX"):
        refused(tool.call({"command": "view", "path": path}))
    assert "settings.json" not in tool.call(VIEW).output


def test_the_environment_of_a_git_hook_does_not_move_the_memories(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "src").mkdir()
    monkeypatch.setenv("GIT_DIR", str(repository / ".git"))
    assert memories_made_in(repository / "src", repository) == [".claude/memories/foo.txt"]


@pytest.mark.parametrize("linked", [".claude", ".claude/memories"])
def test_a_symbolic_link_in_a_cloned_repository_is_not_followed(repository: Path, tmp_path: Path, linked: str) -> None:
    keys = make_keys(tmp_path / "home" / ".ssh")
    (keys / "memories").symlink_to(".")  # the target of `.claude` also has the second name
    (repository / linked).parent.mkdir(exist_ok=True)
    (repository / linked).symlink_to(os.path.relpath(keys, (repository / linked).parent))
    tool = MemoryTool.for_project(repository)
    for command in (
        VIEW,
        CREATE,
        {"command": "view", "path": "/memories/id_ed25519"},
        {"command": "insert", "path": "/memories/authorized_keys", "insert_line": 0, "insert_text": "ssh-ed25519 mine"},
        {"command": "rename", "old_path": "/memories/id_ed25519", "new_path": "/memories/mine"},
        {"command": "delete", "path": "/memories/authorized_keys"},
    ):
        answer = refused(tool.call(command))
        assert "symlink" in answer
        assert KEY not in answer
        assert str(tmp_path) not in answer
    assert {path.name for path in keys.iterdir()} == {"id_ed25519", "authorized_keys", "memories"}
    assert all(path.read_text() == KEY for path in keys.iterdir() if path.is_file())


def test_a_broken_symbolic_link_is_not_followed(repository: Path, tmp_path: Path) -> None:
    (repository / ".claude").symlink_to(tmp_path / "made")
    assert "symlink" in refused(MemoryTool.for_project(repository).call(CREATE))
    assert not (tmp_path / "made").exists()


def test_a_symbolic_link_created_while_the_tool_is_open_is_not_followed(repository: Path, tmp_path: Path) -> None:
    keys = make_keys(tmp_path / ".ssh")
    tool = MemoryTool.for_project(repository)
    succeeded(tool.call(CREATE))
    shutil.rmtree(repository / ".claude")
    (repository / ".claude").mkdir()
    (repository / ".claude" / "memories").symlink_to(keys)
    assert KEY not in refused(tool.call({"command": "view", "path": "/memories/id_ed25519"}))
    refused(tool.call(CREATE))
    assert not (keys / "foo.txt").exists()


def test_a_work_tree_may_be_reached_through_the_users_own_link(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to(repository)
    assert memories_made_in(tmp_path / "way", repository) == [".claude/memories/foo.txt"]


@pytest.mark.parametrize("moved", ["{outside}", "../../outside", "../.."])
def test_a_git_configuration_that_moves_the_work_tree_is_ignored(
    repository: Path, tmp_path: Path, moved: str, caplog: pytest.LogCaptureFixture
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with (repository / ".git" / "config").open("a") as config:
        config.write(f"[core]\n\tworktree = {moved.format(outside=outside)}\n")
    assert memories_made_in(repository, tmp_path) == [f"{repository.name}/.claude/memories/foo.txt"]
    assert "work tree" in caplog.text
    assert str(tmp_path) not in caplog.text


@pytest.fixture
def added(repository: Path, tmp_path: Path) -> Path:
    """A second work tree of the repository."""
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", *identity, "commit", "--quiet", "--allow-empty", "-m", "x"], cwd=repository, check=True)
    command = ["git", "worktree", "add", "--quiet", "--detach", str(tmp_path / "line\nbreak")]
    subprocess.run(command, cwd=repository, check=True)
    return tmp_path / "line\nbreak"


def test_shared_memories_are_those_of_the_main_work_tree(repository: Path, added: Path) -> None:
    (added / "src").mkdir()
    succeeded(MemoryTool.for_project(added / "src", worktrees="shared").call(CREATE))
    assert (repository / ".claude/memories/foo.txt").read_text() == "x"
    assert "foo.txt" in succeeded(MemoryTool.for_project(repository, worktrees="shared").call(VIEW))
    assert "foo.txt" in succeeded(asyncio.run(AsyncMemoryTool.for_project(added, worktrees="shared").call(VIEW)))
    assert "foo.txt" not in succeeded(MemoryTool.for_project(added).call(VIEW))
    assert "foo.txt" not in succeeded(MemoryTool.for_project(added, worktrees="own").call(VIEW))


@pytest.mark.usefixtures("added")
@pytest.mark.parametrize("make", ["clone", "add"])
def test_a_bare_repository_has_no_shared_memories(repository: Path, tmp_path: Path, make: str) -> None:
    bare = tmp_path / "bare.git"
    subprocess.run(["git", "clone", "--quiet", "--bare", str(repository), str(bare)], check=True)
    start = bare
    if make == "add":
        start = tmp_path / "of bare"
        subprocess.run(["git", "worktree", "add", "--quiet", str(start), "HEAD"], cwd=bare, check=True)
    with pytest.raises(ValueError, match="is bare"):
        MemoryTool.for_project(start, worktrees="shared")


def test_a_directory_without_a_repository_has_no_shared_memories(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs a git work tree"):
        MemoryTool.for_project(tmp_path, worktrees="shared")


@pytest.mark.parametrize("value", ["", "main", None, True])
def test_another_value_of_worktrees_is_refused_with_those_allowed(repository: Path, value: object) -> None:
    with pytest.raises(ValueError, match="'own' or 'shared'"):
        MemoryTool.for_project(repository, worktrees=value)  # type: ignore[arg-type]


@pytest.mark.usefixtures("added")
@pytest.mark.parametrize("points_to", [".git", ".git/worktrees/{}"])
def test_an_archive_that_claims_to_be_a_work_tree_gets_no_shared_memories(
    repository: Path, tmp_path: Path, points_to: str
) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    name = next((repository / ".git/worktrees").iterdir()).name
    (archive / ".git").write_text(f"gitdir: {repository / points_to.format(name)}\n")
    with pytest.raises(ValueError, match="does not list this directory"):
        MemoryTool.for_project(archive, worktrees="shared")
    assert not (repository / ".claude").exists()


def test_shared_memories_run_nothing_that_a_repository_configures(repository: Path, tmp_path: Path) -> None:
    for name in ("core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "alias.worktree"):
        subprocess.run(["git", "config", name, f"touch {tmp_path}/ran; true"], cwd=repository, check=True)
    MemoryTool.for_project(repository, worktrees="shared")
    assert not (tmp_path / "ran").exists()
