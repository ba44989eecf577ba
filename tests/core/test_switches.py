"""The switches with which a person finds the plugin that is at fault."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent_memory import AgentMemory, Operation, OperationDenied, hookimpl
from agent_memory.plugins.configuration import plugins_from
from agent_memory.plugins.readonly import ReadOnlyPlugin


class Marking:
    @hookimpl
    def agent_memory_filter_content(self, operation: Operation, content: bytes) -> bytes:  # noqa: ARG002
        return content + b"!"


def test_each_call_of_a_hook_is_printed_with_its_plugin_and_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGENT_MEMORY_TRACE_PLUGINS", "1")
    with AgentMemory.open("memory://", plugins=[ReadOnlyPlugin("policies/**"), Marking()]) as memory:
        memory.write("a.md", "secret")
        with pytest.raises(OperationDenied):
            memory.write("policies/a.md", "secret")
        assert memory.read("a.md") == "secret!"
    lines = capsys.readouterr().err.splitlines()
    calls = [re.fullmatch(r"(\w+) (\w+) \d+\.\d{3} ms (\w+) [0-9a-f]{16}( raised \w+)?", line) for line in lines]
    assert all(calls), lines
    found = [call.groups() for call in calls if call]
    assert ("ReadOnlyPlugin", "agent_memory_before_operation", "write", None) in found
    assert ("Marking", "agent_memory_filter_content", "write", None) in found
    assert ("ReadOnlyPlugin", "agent_memory_before_operation", "write", " raised OperationDenied") in found
    assert "secret" not in str(lines)


def test_without_the_switch_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with AgentMemory.open("memory://", plugins=[Marking()]) as memory:
        memory.write("a.md", "x")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["AGENT_MEMORY_TRACE_PLUGINS", "AGENT_MEMORY_LOAD_PLUGINS"])
def test_another_value_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "yes")
    with pytest.raises(ValueError, match=f"{name} must be 0 or 1, not 'yes'"):
        plugins_from() if "LOAD" in name else AgentMemory.open("memory://", plugins=[Marking()])


def test_no_plugin_of_a_configuration_is_enabled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AGENT_MEMORY_PLUGINS", json.dumps({"readonly": {"patterns": ["**"]}, "missing": {}}))
    monkeypatch.setenv("AGENT_MEMORY_LOAD_PLUGINS", "0")
    with caplog.at_level(logging.WARNING):
        assert plugins_from() == []
    assert "no plugin of the configuration is enabled" in caplog.text


def test_a_package_that_ends_the_process_is_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "broken_store.py").write_text("import os\nos._exit(7)\n")
    info = tmp_path / "broken_store-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-store\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[agent_memory]\nmemory2 = broken_store\n")
    program = (
        "from agent_memory.registry import installed_backends as found\nprint(*({'file', 'memory', 's3'} & {*found()}))"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def run(**switch: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program], env={**environment, **switch}, capture_output=True, text=True, check=False
        )

    assert run().returncode == 7
    rescued = run(AGENT_MEMORY_LOAD_PLUGINS="0")
    assert (rescued.returncode, {*rescued.stdout.split()}) == (0, {"file", "memory", "s3"}), rescued.stderr
