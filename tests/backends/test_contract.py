"""The contract, run on every backend that needs no server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from agent_memory import AgentMemory, VersionLimits
from agent_memory.backend import AnyBackend
from agent_memory.registry import open_backend
from agent_memory.testing import BackendContract
from agent_memory_fsspec import FsspecBackend
from agent_memory_local import LocalBackend
from agent_memory_memory import MemoryBackend
from tests.backends.fsspec.folding import FoldingFileSystem

_OTHERS = ("folding case", "directory", "memory")
"""The fsspec filesystems that only the long run has."""
_numbers = itertools.count()
B = TypeVar("B", MemoryBackend, LocalBackend)


def with_versions(backend: B) -> B:
    """The backend of a store that keeps versions, which every memory on it follows."""
    AgentMemory.open(backend).versions.set_limits(VersionLimits())
    return backend


@pytest.mark.long  # the same backend as that of a named memory
class TestPrivateMemory(BackendContract):
    @pytest.fixture
    def backend(self) -> MemoryBackend:
        return MemoryBackend()


class TestNamedMemory(BackendContract):
    @pytest.fixture
    def url(self) -> Iterator[str]:
        name = f"contract-{next(_numbers)}"
        yield f"memory://{name}"
        for path in [path for path in MemoryFileSystem.store if path.startswith(f"/{name}/")]:
            del MemoryFileSystem.store[path]

    @pytest.fixture
    def backend(self, url: str) -> AnyBackend:
        return open_backend(url)

    @pytest.fixture
    def another_backend(self, url: str) -> AnyBackend:
        return open_backend(url)


class TestLocalSurvivingTheMachine(BackendContract):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> LocalBackend:
        return LocalBackend(tmp_path / "root")

    @pytest.fixture
    def another_backend(self, tmp_path: Path) -> LocalBackend:
        return LocalBackend(tmp_path / "root")


@pytest.mark.long  # it differs by the calls of fsync only
class TestLocalSurvivingTheProcess(BackendContract):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> AnyBackend:
        return open_backend(f"{(tmp_path / 'root').as_uri()}?durability=process")

    @pytest.fixture
    def another_backend(self, tmp_path: Path) -> LocalBackend:
        return LocalBackend(tmp_path / "root", durability="process")


@pytest.mark.long
class TestMemoryWithVersions(BackendContract):
    test_nothing_larger_than_max_bytes_is_written = None  # type: ignore[assignment]  # no room for the settings

    @pytest.fixture
    def backend(self) -> MemoryBackend:
        return with_versions(MemoryBackend())


@pytest.mark.long
class TestLocalWithVersions(BackendContract):
    test_nothing_larger_than_max_bytes_is_written = None  # type: ignore[assignment]  # no room for the settings

    @pytest.fixture
    def backend(self, tmp_path: Path) -> LocalBackend:
        return with_versions(LocalBackend(tmp_path / "root", durability="process"))

    @pytest.fixture
    def another_backend(self, tmp_path: Path) -> LocalBackend:
        return LocalBackend(tmp_path / "root", durability="process")


class _OnFsspec(BackendContract):
    """Any fsspec filesystem, opened without options: operations that it cannot promise are refused."""

    @pytest.fixture(params=["local", *(pytest.param(name, marks=pytest.mark.long) for name in _OTHERS)])
    def filesystem(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, str]]:
        if request.param == "local":
            yield LocalFileSystem(), str(tmp_path / "root")
        elif request.param == "folding case":
            yield FoldingFileSystem(), str(tmp_path / "root")
        elif request.param == "directory":
            yield DirFileSystem(path=str(tmp_path), fs=LocalFileSystem()), "root"
        else:
            memory = MemoryFileSystem()
            root = f"/fsspec-{next(_numbers)}"
            yield memory, root
            if memory.exists(root):
                memory.rm(root, recursive=True)

    @pytest.fixture
    def backend(self, filesystem: tuple[Any, str]) -> FsspecBackend:
        return FsspecBackend(*filesystem, allow_single_writer=self.single_writer)


class TestFsspec(_OnFsspec):
    """Opened without options: operations that no fsspec filesystem promises are refused."""


class TestFsspecWithASingleWriter(_OnFsspec):
    """Opened with the caller's promise that there is no other writer."""

    single_writer = True
