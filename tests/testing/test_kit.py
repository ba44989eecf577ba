"""The testing kit for its users: exports, the plugin's fixtures, the model, and the smallest contract."""

from __future__ import annotations

import subprocess
import sys
import unittest

import pytest

import agent_memory.testing
from agent_memory import AgentMemory, AgentMemoryService, ConflictError
from agent_memory.backend import ABSENT, ANY, AnyBackend, ETag, NewOrigin, WriteWhen
from agent_memory.key import Key
from agent_memory.testing import _listing, check_against_model, model_test, race
from agent_memory_memory import MemoryBackend

PLUGIN = ("-p", "agent_memory.testing.pytest_plugin")


class _Counting(MemoryBackend):
    """A backend that records its close."""

    opened: list[_Counting]

    def close(self) -> None:
        self.opened.remove(self)


class _Lossy(MemoryBackend):
    """A backend that loses empty files."""

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        etag = super().write(key, data, when, origin)
        if not data:
            self.delete(key)
        return etag


def test_all_public_names_exist_and_are_sorted() -> None:
    names = agent_memory.testing.__all__
    assert names == sorted(names)
    assert all(hasattr(agent_memory.testing, name) for name in names)
    with pytest.raises(AttributeError):
        _ = agent_memory.testing.nothing


def test_the_longest_names_of_the_contract_are_as_long_as_the_grammar_allows() -> None:
    assert len(_listing._LONGEST.encode()) == 768
    assert _listing._DEEPEST.count("/") == 31


def test_the_fixtures_of_a_test_share_one_private_store(
    agent_memory: AgentMemory, agent_memory_service: AgentMemoryService
) -> None:
    assert agent_memory_service.agent_ids() == ()
    agent_memory.write("notes.md", "hello")
    assert agent_memory_service.read_memory_file("default", "notes.md") == "hello"


def test_a_sync_test_can_use_the_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_first(agent_memory):
            agent_memory.append("log.md", "one")
            assert agent_memory.read("log.md") == "one"

        def test_second(agent_memory):
            assert agent_memory.list() == ()
        """
    )
    pytester.runpytest_subprocess("-q", *PLUGIN, "-p", "no:cacheprovider").assert_outcomes(passed=2)


@pytest.mark.long
@pytest.mark.long
def test_an_async_test_can_use_the_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.asyncio
        async def test_first(async_agent_memory, async_agent_memory_service):
            await async_agent_memory.append("log.md", "one")
            assert await async_agent_memory_service.read_memory_file("default", "log.md") == "one"

        @pytest.mark.anyio
        async def test_second(async_agent_memory, anyio_backend):
            assert await async_agent_memory.list() == ()

        @pytest.fixture
        def anyio_backend():
            return "asyncio"
        """
    )
    options = (*PLUGIN, "-o", "asyncio_default_fixture_loop_scope=function", "-W", "error", "-p", "no:cacheprovider")
    pytester.runpytest_subprocess(*options).assert_outcomes(passed=2)


def test_a_session_without_a_model_test_does_not_import_hypothesis() -> None:
    code = "import agent_memory.testing.pytest_plugin, sys; print('hypothesis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.long
def test_the_smallest_contract_class_needs_one_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from agent_memory.testing import BackendContract
        from agent_memory_memory import MemoryBackend

        class TestMyBackend(BackendContract):
            rounds, many_files, model_examples = 2, 10, 2

            @pytest.fixture
            def backend(self):
                return MemoryBackend()
        """
    )
    result = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "-W", "error")
    outcomes = result.parseoutcomes()
    assert outcomes.pop("passed") > 200
    assert outcomes == {}


@pytest.mark.long
def test_a_failed_contract_shows_the_compared_values(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from agent_memory.testing import BackendContract
        from agent_memory_memory import MemoryBackend

        class Shortening(MemoryBackend):
            def read(self, key, start=None, end=None, when=None):
                return super().read(key, 0, 3)

        class TestShortening(BackendContract):
            @pytest.fixture
            def backend(self):
                return Shortening()
        """
    )
    result = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider", "-k", "replaces_the_whole_file")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*assert b'a l' == b'a long first state'*"])


@pytest.mark.long
def test_the_model_detects_a_backend_that_loses_files() -> None:
    with pytest.raises(AssertionError):
        check_against_model(_Lossy(), examples=200, steps=30)


def test_a_model_test_opens_and_closes_its_backends() -> None:
    opened: list[_Counting] = []

    def opener() -> AnyBackend:
        backend = _Counting()
        backend.opened = opened
        opened.append(backend)
        return backend

    suite = unittest.defaultTestLoader.loadTestsFromTestCase(model_test(opener, opener, examples=3, steps=5))
    result = unittest.TestResult()
    suite.run(result)
    assert (result.testsRun, result.failures, result.errors) == (1, [], [])
    assert opened == []


def test_a_race_returns_each_result_or_agent_memory_error_in_order() -> None:
    backend = MemoryBackend()
    file = Key.tree().join("file")

    def stale() -> object:
        return backend.write(file, b"x", ETag("never"))

    first, *others = race([lambda: 1, stale, stale])
    assert first == 1
    assert [type(other) for other in others] == [ConflictError, ConflictError]
    backend.write(file, b"x", ABSENT)


def test_a_race_raises_any_other_exception() -> None:
    with pytest.raises(ZeroDivisionError):
        race([lambda: 1 / 0, lambda: 1])
