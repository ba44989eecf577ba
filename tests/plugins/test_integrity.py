"""Chosen files are only read as the audit log tells."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemoryService, AsyncAgentMemoryService, OperationDenied
from agent_memory.audit import files as files_module
from agent_memory.plugins import integrity as integrity_module
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.plugins.configuration import plugins_from
from agent_memory.plugins.integrity import IntegrityPlugin
from tests.support.servers import S3Server

Service = AgentMemoryService


@pytest.fixture(params=["disk", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path, ministack: S3Server) -> tuple[str, dict[str, Any]]:
    if request.param == "disk":
        return f"file://{tmp_path}/root", {}
    return ministack.new_url(), {"storage_options": ministack.options}


@pytest.fixture
def service(root: tuple[str, dict[str, Any]]) -> Iterator[Service]:
    url, options = root
    with (
        AuditPlugin(url, required=True, **options) as audit,
        IntegrityPlugin(url, "MEMORY.md", "logs/*", **options) as integrity,
        AgentMemoryService(url, plugins=[audit, integrity], **options) as service,
    ):
        yield service


@pytest.fixture
def unseen(root: tuple[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A service of the same store without a log."""
    monkeypatch.setattr(integrity_module, "WAIT_SECONDS", 0.0)
    monkeypatch.setattr(files_module, "SKEW_SECONDS", 0.0)
    with AgentMemoryService(root[0], **root[1]) as service:
        yield service


def test_what_the_log_tells_is_read(service: Service) -> None:
    bob = service.agent("bob")
    bob.write("MEMORY.md", "one")
    assert bob.read("MEMORY.md") == "one"
    bob.append("MEMORY.md", "two\n", separator="\n")
    bob.append("MEMORY.md", "three\n")
    assert bob.read("MEMORY.md") == "one\ntwo\nthree\n"
    assert bob.tail("MEMORY.md", 1) == "three\n"
    bob.edit("MEMORY.md", lambda text: text.upper())
    bob.rename("MEMORY.md", "logs/a.md")
    assert bob.read("logs/a.md") == "ONE\nTWO\nTHREE\n"


@pytest.mark.parametrize(
    "change",
    [
        lambda bob: bob.write("MEMORY.md", "one\nTwo\n"),
        lambda bob: bob.write("MEMORY.md", "one\n"),
        lambda bob: bob.append("MEMORY.md", "three\n"),
        lambda bob: bob.write("logs/new.md", "unknown"),
    ],
)
def test_a_change_without_a_record_is_refused(
    service: Service, unseen: Service, change: Callable[[Any], object]
) -> None:
    bob = service.agent("bob")
    bob.append("MEMORY.md", "one\n")
    bob.append("MEMORY.md", "two\n")
    change(unseen.agent("bob"))
    path = "logs/new.md" if bob.exists("logs/new.md") else "MEMORY.md"
    with pytest.raises(OperationDenied, match="not as the audit log tells"):
        bob.read(path)
    with pytest.raises(OperationDenied, match="not as the audit log tells"):
        bob.edit(path, lambda text: text + "more")
    bob.write(path, "written again")
    assert bob.read(path) == "written again"


def test_a_changed_part_of_a_file_is_refused_as_far_as_it_has_whole_appends(service: Service, unseen: Service) -> None:
    bob = service.agent("bob")
    for number in range(3):
        bob.append("MEMORY.md", f"{number}" * 2_000 + "\n")
    unseen.write_memory_file("bob", "MEMORY.md", bob.read("MEMORY.md").replace("2", "3"))
    with pytest.raises(OperationDenied):
        bob.tail("MEMORY.md", 1)


def test_other_files_are_read_as_they_are(service: Service, unseen: Service) -> None:
    unseen.write_memory_file("bob", "other.md", "unknown")
    assert service.read_memory_file("bob", "other.md") == "unknown"


def test_a_file_that_another_process_has_just_written_is_read(root: tuple[str, dict[str, Any]]) -> None:
    url, options = root
    errors: list[BaseException] = []

    def append() -> None:
        try:
            with (
                AuditPlugin(url, required=True, **options) as audit,
                IntegrityPlugin(url, **options) as integrity,
                AgentMemoryService(url, plugins=[audit, integrity], **options) as service,
            ):
                for _ in range(5):
                    service.append_to_memory_file("bob", "MEMORY.md", "line\n")
                    service.read_memory_file("bob", "MEMORY.md")
        except BaseException as error:  # noqa: BLE001 - the test reports it
            errors.append(error)

    threads = [threading.Thread(target=append) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_an_async_service_is_refused_too(root: tuple[str, dict[str, Any]], unseen: Service) -> None:
    url, options = root

    async def reads() -> None:
        plugins = [IntegrityPlugin(url, **options)]
        async with AsyncAgentMemoryService(url, plugins=plugins, **options) as service:
            await service.agent("bob").read("MEMORY.md")

    unseen.write_memory_file("bob", "MEMORY.md", "unknown")
    with pytest.raises(OperationDenied):
        asyncio.run(reads())


def test_a_configuration_enables_it(tmp_path: Path) -> None:
    file = tmp_path / "agent-memory.toml"
    file.write_text(f"[plugins.integrity]\ntarget = 'file://{tmp_path}/root'\npaths = ['MEMORY.md']\n")
    [plugin] = plugins_from(file)
    assert isinstance(plugin, IntegrityPlugin)
    plugin.close()


def test_a_pattern_that_no_path_can_match_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="matches no path"):
        IntegrityPlugin(tmp_path / "audit.jsonl", "/absolute")
