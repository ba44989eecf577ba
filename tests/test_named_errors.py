"""Each error names its subject: the file, the store, the option, the profile or the plugin."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any

import pluggy
import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryService,
    BackendNotAvailableError,
    FileOperationError,
    InvalidPathError,
    hookimpl,
)
from agent_memory.plugins.configuration import plugins_from
from agent_memory.plugins.readonly import ReadOnlyPlugin

README_SAMPLE = """
from agent_memory import AgentMemoryService

with AgentMemoryService("s3://my-bucket/memories") as service:
    service.append_to_memory_file("agent-1", "log.md", "from this machine\\n")
"""


@pytest.mark.parametrize("path", [PurePosixPath("notes/a.md"), PureWindowsPath("notes\\a.md")])
def test_the_refusal_of_a_path_object_suggests_the_str_to_pass(path: PurePath) -> None:
    memory: Any = AgentMemory.open("memory://")
    for call, arguments in ((memory.write, (path, "x")), (memory.read, (path,)), (memory.rename, ("b.md", path))):
        with pytest.raises(InvalidPathError, match=r"a path must be a str; pass 'notes/a.md'") as refused:
            call(*arguments)
        assert refused.value.suggestion == "notes/a.md"


def test_the_refusal_of_a_host_path_object_does_not_show_the_path() -> None:
    memory: Any = AgentMemory.open("memory://")
    with pytest.raises(InvalidPathError, match="a path must be a str") as refused:
        memory.read(Path("/home/ann/a.md"))
    assert "ann" not in str(refused.value)


def test_an_error_about_a_whole_tree_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    memory = AgentMemory.open(tmp_path / "file")
    with pytest.raises(FileOperationError, match=r"^the whole tree: the storage failed"):
        memory.list()


def test_the_error_for_a_scheme_names_the_engine_that_opens_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(variable)
    with pytest.raises(BackendNotAvailableError, match="engine='obstore'"):
        AgentMemory.open("az://container/memories")


def test_the_error_for_a_missing_profile_shows_only_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    with pytest.raises(ValueError, match=r"^there is no profile 'team' in the AWS configuration$"):
        AgentMemory.open("s3://bucket/memories", storage_options={"profile": "team"})


class WrongArgument:
    @hookimpl
    def agent_memory_before_operation(self, op: object) -> None:
        raise NotImplementedError


class UnknownHook:
    @hookimpl
    def agent_memory_befor_operation(self, operation: object) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("plugin", "said"),
    [
        (WrongArgument(), r"the plugin 'WrongArgument': .*agent_memory_before_operation\(op\b.*\{'op'\}"),
        (UnknownHook(), "the plugin 'UnknownHook': unknown hook 'agent_memory_befor_operation'"),
    ],
)
def test_the_error_for_a_wrong_hook_names_the_plugin(plugin: object, said: str) -> None:
    with pytest.raises(pluggy.PluginValidationError, match=said) as refused:
        AgentMemory.open("memory://", plugins=[plugin])
    assert " object at " not in str(refused.value)


def test_the_error_for_a_plugin_given_twice_names_it() -> None:
    plugin = ReadOnlyPlugin("policies/**")
    with pytest.raises(ValueError, match=r"^the plugin 'ReadOnlyPlugin' is given twice$"):
        AgentMemoryService("memory://", plugins=[plugin, plugin])


def test_the_error_for_a_configured_plugin_names_it_if_its_store_does_not_open(tmp_path: Path) -> None:
    (tmp_path / "plugins.toml").write_text('[plugins.audit]\ntarget = "nothing-opens-this://x"\n')
    with pytest.raises(BackendNotAvailableError, match=r"^\[plugins.audit\]: "):
        plugins_from(tmp_path / "plugins.toml")


def test_the_readme_sample_without_credentials_ends_with_a_clear_error() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= {"AWS_EC2_METADATA_DISABLED": "true", "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    environment |= {"AWS_CONFIG_FILE": os.devnull}
    command = [sys.executable, "-c", README_SAMPLE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "bucket 'my-bucket': there are no credentials" in last
    assert "botocore" not in done.stderr
