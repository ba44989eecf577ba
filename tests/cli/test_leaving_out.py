"""import omits repositories and credentials and prints each of them; it omits no file that export wrote."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from agent_memory import AgentMemoryService

Run = Callable[..., Result]
FILES = (".env", ".env.local", "a.md", "build/x.log", "build/y.md", "deep/.env", "deep/b.md", "x.log")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name in (*FILES, ".git/config", ".git/objects/aa"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"of {name}")
    (folder / ".git/link").symlink_to("config")
    return folder


def stored(agent: str = "default") -> list[str]:
    with AgentMemoryService(".agent-memory") as service:
        return [entry.path for entry in service.agent(agent).list()]


def left_out(result: Result) -> dict[str, str]:
    found: dict[str, str] = json.loads(result.stdout)["left_out"]
    return found


def test_import_omits_and_prints_a_repository_and_credentials(run: Run, project: Path) -> None:
    result = run("import", str(project))
    assert result.exit_code == 0
    assert result.stdout == "imported 5 files, 0 were there already, 4 left out\n"
    assert result.stderr.splitlines() == [
        "Left out (no --all): '.env'",
        "Left out (no --all): '.env.local'",
        "Left out (no --all): '.git/'",
        "Left out (no --all): 'deep/.env'",
    ]
    assert stored() == ["a.md", "build/x.log", "build/y.md", "deep/b.md", "x.log"]


def test_the_option_all_imports_them(run: Run, project: Path) -> None:
    (project / ".git/link").unlink()
    assert run("import", "--all", str(project)).exit_code == 0
    assert stored() == sorted((*FILES, ".git/config", ".git/objects/aa"))


def test_exclude_omits_names_and_paths(run: Run, project: Path) -> None:
    result = run("--json", "import", str(project), "--exclude", "*.log", "--exclude", "deep/", "--exclude", "build/y*")
    assert stored() == ["a.md"]
    assert left_out(result) == {
        ".env": "no --all", ".env.local": "no --all", ".git/": "no --all", "build/x.log": "--exclude",
        "build/y.md": "--exclude", "deep/": "--exclude", "x.log": "--exclude",
    }  # fmt: skip
    assert "--exclude 'typo' matches nothing" in run("import", str(project), "--exclude", "typo").stderr


def test_gitignore_omits_the_same_files_as_git(run: Run, project: Path) -> None:
    (project / ".gitignore").write_text("*.log\n!build/x.log\n/deep/\n")
    (project / "deep/.gitignore").write_text("")
    (project / ".git/config").write_text("[core]\n\tfsmonitor = touch ran\n")
    result = run("--json", "import", str(project), "--gitignore")
    assert stored() == [".gitignore", "a.md", "build/x.log", "build/y.md"]
    assert left_out(result)["x.log"] == left_out(result)["deep/b.md"] == "--gitignore"
    assert not list(project.rglob("ran"))


def test_gitignore_without_git_prints_one_error(run: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    result = run("import", str(project), "--gitignore")
    assert (result.exit_code, "--gitignore needs git" in result.stderr) == (1, True)


def test_a_dry_run_prints_the_planned_writes_and_writes_nothing(run: Run, project: Path, tmp_path: Path) -> None:
    result = run("import", str(project), "--dry-run", "--exclude", "build")
    assert result.exit_code == 0
    told = ["would write a.md", "would write deep/b.md", "would write x.log"]
    assert result.stdout.splitlines() == [*told, "would import 3 files, 0 were there already, 5 left out"]
    assert [path.name for path in tmp_path.iterdir()] == ["project"]
    run("write", "a.md", "of a.md")
    run("write", "x.log", "another")
    (project / "12:30.md").write_text("x")
    before = run("audit", "show").stdout
    document = json.loads(run("--json", "import", str(project), "--dry-run", "--exclude", "build").stdout)
    assert (document["written"], document["equal"]) == (1, 1)
    assert sorted(each["path"] for each in document["left"]) == ["12:30.md", "x.log"]
    assert (stored(), run("audit", "show").stdout) == (["a.md", "x.log"], before)


def test_an_exported_folder_is_imported_completely(run: Run, project: Path, tmp_path: Path) -> None:
    (project / ".git/link").unlink()
    run("import", "--all", str(project))
    assert run("export", "out").exit_code == 0
    result = run("import", "out", "--agent", "other")
    assert (result.exit_code, result.stderr) == (0, "")
    assert stored("other") == stored() == sorted((*FILES, ".git/config", ".git/objects/aa"))
    (tmp_path / "out/.env").write_text("a credential that somebody put there later")
    (tmp_path / "out/deep/.env.new").write_text("and another")
    result = run("--json", "import", "out", "--agent", "third")
    assert left_out(result) == {".env": "no --all", "deep/.env.new": "no --all"}
    assert stored("third") == [path for path in stored() if path != ".env"]


def test_exports_of_two_agents_into_one_folder_are_both_complete(run: Run) -> None:
    for agent in ("ann", "bob"):
        run("write", f"{agent}/.env", agent, "--agent", agent)
        assert run("export", "out", "--agent", agent).exit_code == 0
    run("import", "out")
    assert stored() == ["ann/.env", "bob/.env"]


@pytest.mark.parametrize("manifest", ["", "[]", '{"files": 1}', '{"files": {".env": 5}}', "[" * 100_000])
def test_an_invalid_manifest_does_not_allow_any_omitted_file(run: Run, project: Path, manifest: str) -> None:
    (project / ".agent-memory").mkdir()
    (project / ".agent-memory/exported.json").write_text(manifest)
    assert run("import", str(project)).exit_code == 0
    assert ".env" not in stored()


def test_append_newline_starts_a_new_line_if_needed(run: Run) -> None:
    for text in ("one", "two\n", "three"):
        assert run("append", "a.md", "--newline", text).exit_code == 0
    assert run("read", "a.md").stdout == "one\ntwo\nthree"
    run("append", "a.md", "!")
    assert run("read", "a.md").stdout == "one\ntwo\nthree!"


@pytest.mark.parametrize("shell", ["bash", *(pytest.param(shell, marks=pytest.mark.long) for shell in ("zsh", "fish"))])
def test_shells_complete_commands_and_options(
    spawn: Callable[..., subprocess.CompletedProcess[bytes]], shell: str
) -> None:
    source = spawn(env={"_AGENT_MEMORY_COMPLETE": f"{shell}_source"})
    assert (source.returncode, b"agent-memory" in source.stdout) == (0, True)
    for words, number, wanted in (
        ("agent-memory conv", "1", b"conversation"),
        ("agent-memory import --dry", "2", b"--dry-run"),
    ):
        asked = {"COMP_WORDS": words, "COMP_CWORD": words.split()[-1] if shell == "fish" else number}
        assert wanted in spawn(env={"_AGENT_MEMORY_COMPLETE": f"{shell}_complete", **asked}).stdout


def test_import_omits_what_desktops_put_into_folders(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    wanted = [".env.example", ".env.sample", ".hidden", "Icon", "_.md", "thumbs.md"]
    unwanted = [".DS_Store", "._a.md", "Desktop.ini", "Icon\r", "THUMBS.DB"]
    for name in (*wanted, *unwanted):
        (folder / "d" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "d" / name).write_text(name)
    result = run("--json", "import", str(folder))
    assert (result.exit_code, stored()) == (0, [f"d/{name}" for name in wanted])
    assert left_out(result) == dict.fromkeys((f"d/{name}" for name in unwanted), "no --all")
    result = run("--json", "import", "--all", str(folder))
    assert [each["rule"] for each in json.loads(result.stdout)["left"]] == ["control"]
    assert "d/.DS_Store" in stored()
