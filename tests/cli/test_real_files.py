"""Import and export of more than 1,000 real text files with the command line, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anthropic
import pytest
from click.testing import CliRunner

from agent_memory.cli.app import app
from tests.support.servers import Root

pytestmark = pytest.mark.long


def files_below(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All text files of an installed package."""
    directory = tmp_path_factory.mktemp("texts")
    source = Path(anthropic.__file__).parent
    for path in source.rglob("*"):
        if path.suffix in {".py", ".json", ".txt", ".md", ".html"} and path.stat().st_size < 1_000_000:
            copy = directory / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    return directory


@pytest.mark.parametrize("root", ["local", "memory", "ministack"], indirect=True)
def test_a_tree_of_real_files_is_imported_listed_and_exported_unchanged(
    root: Root, texts: Path, tmp_path: Path
) -> None:
    before = files_below(texts)
    assert len(before) >= 1000

    def run(*arguments: str) -> dict[str, Any]:
        options = [part for key, value in root.options.items() for part in ("-o", f"{key}={value}")]
        result = CliRunner().invoke(app, ["--url", root.url, *options, "--json", *arguments])
        assert result.exit_code == 0, result.stderr
        document: dict[str, Any] = json.loads(result.stdout)
        return document

    imported = run("import", str(texts))
    assert (imported["written"], imported["left"]) == (len(before), [])
    listed = {entry["path"]: entry["size"] for entry in run("ls", "-r")["entries"]}
    assert listed == {path: len(data) for path, data in before.items()}
    exported = run("export", str(tmp_path / "out"))
    assert (exported["written"], exported["left"]) == (len(before), [])
    assert files_below(tmp_path / "out") == before
    assert run("import", str(texts))["equal"] == len(before)
