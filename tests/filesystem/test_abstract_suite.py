"""fsspec's own suite for filesystems, on three backends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from fsspec.tests import abstract

from agent_memory import AgentMemory
from agent_memory.filesystem import AgentMemoryFileSystem, filesystem
from tests.support.servers import S3Server
from tests.support.sizes import also

_BACK: Final = "a copy back to a name is refused for a while where no condition holds for an upload (docs/s3.md)"
EXCEPTIONS: dict[str, str] = {
    f"test_copy_{what}[ministack]": _BACK
    for what in ("directory_to_new_directory", "glob_to_existing_directory", "glob_to_new_directory")
}
"""The cases that must fail, with their reasons; all others must pass. No case needs an escaping path or an empty
directory, because `supports_empty_directories` returns false."""


class Fixtures(abstract.AbstractFixtures):  # type: ignore[misc]  # fsspec has no types
    @pytest.fixture(params=["memory", *also(["local", "ministack"])])
    def fs(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AgentMemoryFileSystem]:
        if reason := EXCEPTIONS.get(request.node.name):
            request.node.add_marker(pytest.mark.xfail(reason=reason, strict=True))
        options: dict[str, Any] = {}
        url = f"memory://{tmp_path.name}-{os.getpid()}" if request.param == "memory" else str(tmp_path / "root")
        if request.param == "ministack":
            server: S3Server = request.getfixturevalue("ministack")
            url, options = server.new_url(), server.options
        with AgentMemory.open(url, storage_options=options) as memory:
            yield filesystem(memory)

    @pytest.fixture
    def fs_path(self) -> str:
        return ""

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False


@pytest.mark.long  # as TestGet and TestPut: hundreds of cases of fsspec's own code for globs
class TestCopy(Fixtures, abstract.AbstractCopyTests):  # type: ignore[misc]
    pass


@pytest.mark.long
class TestGet(Fixtures, abstract.AbstractGetTests):  # type: ignore[misc]
    pass


@pytest.mark.long
class TestPut(Fixtures, abstract.AbstractPutTests):  # type: ignore[misc]
    pass


class TestOpen(Fixtures, abstract.AbstractOpenTests):  # type: ignore[misc]
    pass


class TestPipe(Fixtures, abstract.AbstractPipeTests):  # type: ignore[misc]
    pass


def test_every_case_of_the_suite_is_run() -> None:
    suite = {name for name in vars(abstract) if name.startswith("Abstract") and name.endswith("Tests")}
    assert suite == {base.__name__ for each in Fixtures.__subclasses__() for base in each.__bases__[1:]}
