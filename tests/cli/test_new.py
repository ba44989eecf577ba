"""new: what it makes passes its own tests, and what exists stays as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.support import sizes

Run = Callable[..., Result]
KINDS = pytest.mark.parametrize("kind", ["plugin", "backend", "adapter"])
FILES = [".gitignore", "README.md", "agent_memory_quota.py", "pyproject.toml", "tests/test_quota.py"]
PART: dict[str, tuple[str, ...]] = {"backend": ("-k", "url or a_write or a_range")}
"""The tests of a made distribution that the short run selects; of the others it runs all."""
LONGEST = "long-" * 7 + "names"


def made(run: Run, kind: str, name: str = "quota") -> Path:
    result = run("new", kind, name)
    assert (result.exit_code, result.stderr) == (0, "")
    return Path.cwd() / f"agent-memory-{name}"


def install(directory: Path, site: Path) -> None:
    """Write the metadata of a distribution as an installer does, so that its entry points are found."""
    project = tomllib.loads((directory / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    metadata = site / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = []
    for group, points in project.get("entry-points", {}).items():
        lines += [f"[{group}]", *(f"{point} = {value}" for point, value in points.items())]
    (metadata / "entry_points.txt").write_text("\n".join([*lines, ""]))


def environment(*path: object) -> dict[str, str]:
    """The variables of this process without those of pytest, and this path for Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHONPATH"))}
    return {**kept, "PYTHONPATH": os.pathsep.join(map(str, path))} if path else kept


def output(*command: object, cwd: Path, env: dict[str, str]) -> str:
    done = subprocess.run([*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout


def run_tests(python: object, directory: Path, env: dict[str, str], *selected: str) -> str:
    """Run the tests of a made distribution; returns the last line."""
    options = [
        "-q",
        "--color=no",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:asyncio",
        f"--basetemp={directory.parent / 'temporary'}",
    ]
    return output(python, "-m", "pytest", *options, *selected, cwd=directory, env=env).splitlines()[-1]


@pytest.mark.parametrize(("kind", "name"), [("plugin", "my-quota"), ("backend", "quota"), ("adapter", "quota")])
def test_what_is_made_passes_its_own_tests(run: Run, tmp_path: Path, kind: str, name: str) -> None:
    directory = made(run, kind, name)
    install(directory, tmp_path / "site")
    before = [path for path in [os.environ.get("PYTHONPATH")] if path]
    env = environment(directory, tmp_path / "site", *before)
    selected = () if sizes.is_long else PART.get(kind, ())
    last = run_tests(sys.executable, directory, env, *selected)
    assert int(last.split(" passed")[0]) >= {"plugin": 4, "backend": 20, "adapter": 10}[kind]


@KINDS
@pytest.mark.parametrize("name", ["quota", "z9", LONGEST])
def test_ruff_finds_nothing_in_what_is_made(run: Run, kind: str, name: str) -> None:
    directory = made(run, kind, name)
    ruff = Path(sysconfig.get_path("scripts"), "ruff")
    for command in (["check"], ["format", "--check"]):
        output(ruff, *command, "--no-cache", ".", cwd=directory, env=environment())


@KINDS
def test_the_names_are_filled_in_everywhere(run: Run, kind: str) -> None:
    directory = made(run, kind, "my-quota")
    texts = {str(file.relative_to(directory)): file.read_text() for file in directory.rglob("*") if file.is_file()}
    assert sorted(texts) == [name.replace("quota", "my_quota") for name in FILES]
    assert not [name for name, text in texts.items() if "$" in text]
    assert tomllib.loads(texts["pyproject.toml"])["project"]["name"] == "agent-memory-my-quota"


def test_the_output_names_the_files_and_the_next_step(run: Run) -> None:
    assert run("new", "plugin", "quota").stdout == (
        f"made ./agent-memory-quota: {', '.join(FILES)}\n"
        "run its tests there: pip install -e '.[test]' && python -m pytest\n"
    )


def test_the_json_document_names_the_directory_and_the_files(run: Run) -> None:
    document = json.loads(run("--json", "new", "adapter", "quota", "--directory", "a/b").stdout)
    directory = Path.cwd() / "a/b/agent-memory-quota"
    assert document == {"kind": "adapter", "name": "quota", "directory": str(directory), "files": FILES}
    assert all((directory / name).is_file() for name in FILES)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("Quota", "quota"),
        ("my_quota", "my-quota"),
        ("my--quota", "my-quota"),
        ("quota-", "quota"),
        ("../quota", "quota"),
        ("2nd", "my-2nd"),
        ("café", "cafe"),
        ("メモ", "my-memory"),
        ("", "my-memory"),
        ("agent-memory-quota", "quota"),
        ("test-guard", "my-test-guard"),
        (f"{LONGEST}-", LONGEST),
        (f"{LONGEST[:-1]}-quota", LONGEST[:-1]),
    ],
)
def test_a_name_that_breaks_the_rule_is_refused_with_one_that_keeps_it(
    run: Run, tmp_path: Path, name: str, suggestion: str
) -> None:
    result = run("new", "plugin", name)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"Error: {name!r} is refused: a name has lower case letters")
    assert result.stderr.endswith(f"; try {suggestion!r}\n")
    assert json.loads(run("--json", "new", "plugin", name).stderr)["error"]["suggestion"] == suggestion
    assert list(tmp_path.iterdir()) == []
    made(run, "plugin", suggestion)


@pytest.mark.parametrize(
    ("kind", "name", "reason"),
    [
        ("plugin", "audit", "a plugin 'audit' is installed"),
        ("backend", "file", "a backend for file:// is installed"),
        ("adapter", "s3", "a module agent_memory_s3 is installed"),
        ("adapter", "files", "agent-memory-files is the distribution of agent-memory itself"),
    ],
)
def test_a_name_that_an_installed_package_has_is_refused(
    run: Run, tmp_path: Path, kind: str, name: str, reason: str
) -> None:
    result = run("new", kind, name)
    assert (result.exit_code, result.stderr) == (2, f"Error: {name!r} is refused: {reason}; try 'my-{name}'\n")
    assert list(tmp_path.iterdir()) == []
    made(run, kind, f"my-{name}")


@pytest.mark.parametrize("existing", ["directory", "empty directory", "file", "link"])
def test_a_name_that_exists_is_left_untouched(run: Run, tmp_path: Path, existing: str) -> None:
    target = tmp_path / "agent-memory-quota"
    if existing == "link":
        target.symlink_to("nowhere")
    elif existing == "file":
        target.write_text("mine")
    else:
        target.mkdir()
    if existing == "directory":
        (target / "README.md").write_text("mine")
    before = {path: path.is_file() and path.read_text() for path in tmp_path.rglob("*")}
    result = run("new", "plugin", "quota")
    assert (result.exit_code, result.stderr) == (4, "Error: ./agent-memory-quota exists; nothing was written\n")
    assert {path: path.is_file() and path.read_text() for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(("raised", "code"), [(OSError("the disk is full"), 1), (KeyboardInterrupt(), 130)], ids=type)
def test_a_failure_or_an_interrupt_leaves_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int
) -> None:
    written: list[Path] = []

    def rename(path: Path, *_: object) -> None:
        written.extend(path.rglob("*.py"))
        raise raised

    monkeypatch.setattr(Path, "rename", rename)
    assert run("new", "plugin", "quota").exit_code == code
    assert len(written) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_the_directory_is_wrong_usage(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert run("new", "plugin", "quota", "--directory", "file").exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.long
@KINDS
def test_the_installed_command_makes_a_wheel_that_passes_its_tests(wheel: Path, tmp_path: Path, kind: str) -> None:
    """Nothing is downloaded: what this project and pytest depend on comes from the environment of this run."""
    output(sys.executable, "-m", "venv", "venv", cwd=tmp_path, env=environment())
    python = tmp_path / "venv/bin/python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    with_dependencies = environment(sysconfig.get_path("purelib"))
    output(*pip, wheel, cwd=tmp_path, env=environment())
    output(python, "-m", "agent_memory", "new", kind, "quota", cwd=tmp_path, env=with_dependencies)
    source = tmp_path / "agent-memory-quota"
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist"]
    output(*build, source, cwd=tmp_path, env=environment())
    (built,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        assert {name.partition("/")[0] for name in archive.namelist()} == {
            "agent_memory_quota.py", "agent_memory_quota-0.1.0.dist-info",
        }  # fmt: skip
    output(*pip, built, cwd=tmp_path, env=environment())
    (source / "agent_memory_quota.py").unlink()
    last = run_tests(python, source, with_dependencies)
    assert int(last.split(" passed")[0]) >= {"plugin": 4, "backend": 200, "adapter": 10}[kind]
