"""``agent-memory plugins``, and commands with plugins enabled by a configuration."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from agent_memory import hookimpl

Run = Callable[..., Result]


def rows(result: Result) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(result.stdout)["plugins"]}


def config(text: str) -> str:
    Path("my.toml").write_text(text)
    return "my.toml"


def test_installed_plugins_are_listed_with_their_hooks(run: Run) -> None:
    found = rows(run("--json", "plugins"))
    assert next(iter(found)) == "logging"
    assert {name for name, row in found.items() if row["enabled"]} == {
        "logging",
        "file",
        "memory",
        "obstore",
        "s3",
        "fsspec",
    }
    assert found["redaction"]["hooks"] == ["agent_memory_filter_content"]
    assert "agent_memory_after_operation" in found["audit"]["hooks"]
    assert all(row["package"].startswith("agent-memory-files ") and row["error"] is None for row in found.values())
    text = run("plugins").stdout
    assert "filter_content" in text


def test_a_backend_whose_package_is_not_installed_is_not_enabled(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if not each.name.startswith("obstore"):
            (packages / each.name).symlink_to(each)
    program = f"import site; site.addsitedir({str(packages)!r}); from agent_memory.cli import main; main()"
    command = [sys.executable, "-S", "-c", program, "--json", "plugins"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = {row["name"]: row for row in json.loads(done.stdout)["plugins"]}
    assert (found["obstore"]["enabled"], found["obstore"]["hooks"]) == (False, [])
    assert found["obstore"]["error"] == "needs obstore: pip install 'agent-memory-files[obstore]'"
    assert all(found[name]["enabled"] for name in ("file", "memory", "s3", "fsspec"))


def test_enabled_plugins_are_listed_with_their_hooks(run: Run) -> None:
    file = config('[plugins.audit]\ntarget = "audit.jsonl"\n')
    found = rows(run("--json", "--config", file, "plugins"))
    assert found["audit"]["enabled"]
    assert "agent_memory_after_operation" in found["audit"]["hooks"]
    assert not Path("audit.jsonl").exists()


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [("[plugins.nothing]", "nothing", "not installed"), ("[plugins.redaction]\nmost = 1", "redaction", "'most'")],
)
def test_a_plugin_that_does_not_load_is_reported_with_exit_code_1(run: Run, text: str, name: str, told: str) -> None:
    result = run("--json", "--config", config(text), "plugins")
    assert result.exit_code == 1
    assert told in rows(result)[name]["error"]


def test_an_invalid_configuration_is_a_usage_error(run: Run) -> None:
    for command in (["plugins"], ["ls"]):
        result = run("--config", "none.toml", *command)
        assert (result.exit_code, "none.toml: No such file" in result.stderr) == (2, True)


def test_commands_use_the_enabled_plugins(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    file = config('[plugins.readonly]\npatterns = ["policies/**"]\n[plugins.audit]\ntarget = "audit.jsonl"\n')
    assert run("--config", file, "write", "a.md", "x").exit_code == 0
    assert run("write", "policies/a.md", "x").exit_code == 0
    monkeypatch.setenv("AGENT_MEMORY_CONFIG", file)
    refused = run("--actor", "me", "write", "policies/a.md", "y")
    assert (refused.exit_code, "read-only" in refused.stderr) == (5, True)
    assert run("transfer", ".agent-memory", "other").exit_code != 0
    assert not Path("other/agent_memory/default/policies").exists()
    records = json.loads(run("--json", "audit", "show", "--log", "audit.jsonl").stdout)["records"]
    shown = [record for record in records if "operation" in record]
    changes = {(each["operation"], each["path"], each["outcome"]) for each in shown}
    assert changes >= {("write", "a.md", "ok"), ("create", "a.md", "ok")}
    assert changes >= {(kind, "policies/a.md", "denied") for kind in ("write", "create")}


class Closed:
    """A plugin that counts its closings."""

    def __init__(self) -> None:
        self.count = 0

    @hookimpl
    def agent_memory_before_operation(self) -> None: ...

    def close(self) -> None:
        self.count += 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("--url a write n.md x", 0),
        ("--url a read n.md", 0),
        ("--url none read n.md", 3),
        ("--url unknown:// read n.md", 6),
        ("--url a forget --yes n.md", 0),
        ("--url a forget --yes --no-audit n.md", 0),
        ("transfer a b", 0),
        ("transfer none b", 3),
    ],
)
def test_a_command_closes_a_configured_plugin_once(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: str, code: int
) -> None:
    run("--url", "a", "write", "n.md", "x")
    plugin = Closed()
    monkeypatch.setattr("agent_memory.cli.settings.plugins_of", lambda _: [plugin])
    assert run(*arguments.split()).exit_code == code
    assert plugin.count == 1
