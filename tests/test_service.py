"""The service, and how roots are opened: sync and async callers alike, agents apart."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryFileNotFoundError,
    AgentMemoryService,
    AsyncAgentMemory,
    AsyncAgentMemoryService,
    BackendNotAvailableError,
    InvalidPathError,
    PathTraversalError,
)
from agent_memory.memory.versions import AsyncFileVersions, FileVersions
from agent_memory_memory import MemoryBackend
from tests.support.servers import Root

KINDS = [(AgentMemory, AsyncAgentMemory), (AgentMemoryService, AsyncAgentMemoryService)]


def public_methods(cls: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(member)
        for name, member in inspect.getmembers(cls, inspect.isroutine)
        if not name.startswith("_")
    }


@pytest.mark.parametrize(("sync", "asynchronous"), KINDS)
def test_sync_and_async_have_the_same_names_and_arguments(sync: type, asynchronous: type) -> None:
    here, there = public_methods(sync), public_methods(asynchronous)
    other = {name for name in set(dir(sync)) ^ set(dir(asynchronous)) if not name.startswith("_")}
    assert other == {"close", "aclose"}
    assert here.pop("close").parameters == there.pop("aclose").parameters
    assert here.keys() == there.keys()
    for name in here.keys() - {"agent"}:
        assert here[name].parameters == there[name].parameters, name
    waits = {name for name in there if inspect.iscoroutinefunction(getattr(asynchronous, name))}
    of_views = {"subtree", "read_only", "acting_as", "with_timeout", "once"}
    of_views |= {"as_sync", "as_async", "statistics"}
    assert there.keys() - waits <= {"open", "agent", "usage", *of_views}  # an async iterator is not awaited


def test_the_room_of_versions_has_the_same_methods_and_arguments_sync_and_async() -> None:
    here, there = public_methods(FileVersions), public_methods(AsyncFileVersions)
    assert {name: each.parameters for name, each in here.items()} == {
        name: each.parameters for name, each in there.items()
    }


def test_the_async_service_behaves_like_the_sync_one(root: Root) -> None:
    async def use() -> tuple[object, ...]:
        async with AsyncAgentMemoryService(root.url, storage_options=root.options) as service:
            written = await service.write_memory_file("bob", "a.md", "one\n")
            await service.append_to_memory_file("bob", "a.md", "two\n")
            await service.create_memory_file("bob", "b.md", "b")
            await service.rename_memory_file("bob", "b.md", "c/d.md")
            memory = service.agent("bob")
            await memory.edit("a.md", str.upper)
            await memory.copy("c", "e")
            await memory.delete_tree("c")
            await service.delete_memory_file("bob", "e/d.md")
            with pytest.raises(AgentMemoryFileNotFoundError):
                await service.read_memory_file("bob", "e/d.md")
            with pytest.raises(PathTraversalError):
                await memory.read("../x")
            exists = await service.memory_file_exists("bob", "a.md")
            return written.size, exists, await service.read_memory_file("bob", "a.md"), await service.agent_ids()

    assert asyncio.run(use()) == (4, True, "ONE\nTWO\n", ("bob",))
    with AgentMemoryService(root.url, storage_options=root.options) as service:
        assert [str(entry) for entry in service.list_memory_files("bob")] == ["a.md"]


def test_agents_do_not_see_each_others_files() -> None:
    with AgentMemoryService("memory://") as service:
        service.write_memory_file("bob", "a.md", "bob's")
        service.write_memory_file("bobby", "a.md", "bobby's")
        assert [str(entry) for entry in service.list_memory_files("bob")] == ["a.md"]
        assert service.agent("bob").delete_tree("").files == 1
        assert service.agent_ids() == ("bobby",)


def test_a_source_checkout_is_refused_as_a_root(tmp_path: Path) -> None:
    (tmp_path / "agent_memory").mkdir()
    (tmp_path / "agent_memory" / "__init__.py").touch()
    with pytest.raises(InvalidPathError) as refused:
        AgentMemoryService(tmp_path)
    assert refused.value.rule == "source-checkout"
    assert str(tmp_path) not in str(refused.value)


def test_a_memory_url_without_a_name_is_private_and_with_one_is_shared() -> None:
    AgentMemory.open("memory://").write("a.md", "x")
    assert AgentMemory.open("memory://").list() == ()
    AgentMemory.open("memory://shared-by-name").write("a.md", "x")
    assert AgentMemory.open("memory://shared-by-name").read("a.md") == "x"


@pytest.mark.parametrize("root", [None, 3, b"bytes", ["a"]])
def test_a_root_of_another_type_is_refused(root: str) -> None:
    with pytest.raises(TypeError, match="root must be a"):
        AgentMemoryService(root)


def test_an_empty_root_an_unknown_scheme_and_unknown_options_are_refused() -> None:
    with pytest.raises(ValueError, match="root is empty"):
        AgentMemoryService("")
    with pytest.raises(BackendNotAvailableError, match="nosuch://"):
        AgentMemoryService("nosuch://somewhere")
    with pytest.raises(TypeError, match="takes no storage options"):
        AgentMemoryService("memory://", storage_options={"key": "secret"})
    with pytest.raises(TypeError, match="already open"):
        AgentMemoryService(MemoryBackend(), storage_options={"key": "secret"})


def test_a_tilde_in_a_root_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    AgentMemory.open("~/memories").write("a.md", "x")
    assert (tmp_path / "memories" / "a.md").read_text() == "x"
