"""`conform`: run the whole contract against any URL, without a test file, and return a report."""

from __future__ import annotations

import io
import itertools
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, cast
from unittest.mock import patch

import pytest
from hypothesis import Phase, settings

from agent_memory.backend import AnyBackend
from agent_memory.backend._deadline import default_seconds
from agent_memory.core import tree_flows
from agent_memory.core.blocking import BlockingStore
from agent_memory.errors import AgentMemoryError, FileOperationError, UnsupportedOperationError
from agent_memory.key import Key
from agent_memory.registry import open_backend
from agent_memory.runtime.runners import close_backend
from agent_memory.testing.contract import BackendContract

_LONGEST = 300
_OPERATION_SECONDS = 15.0
_MOST_FAILED = 3
"""Consecutive tests in which the storage failed; after them, the remaining tests are not tried."""
_STALLED = "not tried, because the storage failed in the tests before"
_OF_OTHERS = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")
"""Environment variables with pytest options that are meant for other tests."""
_HERE = str(Path(__file__).parent)
_PYTEST = [__file__, "-c", os.devnull, "--rootdir", _HERE, "--confcutdir", _HERE, "--noconftest"]
_PYTEST += ["--import-mode=importlib", "-p", "no:cacheprovider", "-W", "ignore", "-o", "python_classes=_Contract"]
"""Arguments with which pytest collects `_Contract` of this module, and reads no configuration."""


Outcome: TypeAlias = Literal["kept", "broken", "not promised", "not tried"]


class Promise(NamedTuple):
    """One test of the contract: its part (the first word of its class), the promise that it tests, and the outcome.

    "not promised": the backend does not state the promise, or refuses it with `UnsupportedOperationError`. "not tried":
    the storage failed (`FileOperationError`), so the test says nothing about the backend.
    """

    part: str
    text: str
    outcome: Outcome
    detail: str


class _Roots:
    """Backends below one URL: an empty root for each test, all in one directory."""

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        first, chain, others = url.partition("::")
        self._url, query, rest = (first, chain, others) if chain and "://" in first else url.partition("?")
        self._behind = query + rest  # a query, or the location of the archive in `zip://x::file:///a.zip`
        self._options = dict(options)
        self._run = f"contract-{secrets.token_hex(4)}"
        self._numbers = itertools.count(1)

    def new(self) -> str:
        """The URL of an empty root."""
        return f"{self._url.rstrip('/')}/{self._run}/{next(self._numbers):04d}{self._behind}"

    def open(self, url: str) -> AnyBackend:
        """Open a new backend."""
        return open_backend(url, self._options)

    def check(self) -> None:
        """Open a root and list it; raises if the store cannot be used at all."""
        url = self.new()
        store = BlockingStore(self.open(url))
        try:
            store.list(Key.tree(), limit=1)
        except FileOperationError as error:
            place = url.removeprefix(self._url.rstrip("/"))
            raise type(error)(f"a new store at the URL with {place!r} at its end: {error.args[0]}") from error
        finally:
            store.close()

    def clear(self) -> str | None:
        """Delete the directory of all roots; returns its name if that is refused or fails."""
        backend = self.open(self._url + self._behind)
        try:
            _delete(backend, Key.tree().join(self._run))
        except AgentMemoryError:
            return self._run
        finally:
            close_backend(backend)
        return None


def _empty(backend: AnyBackend) -> None:
    """Delete the files that a test left; below a higher root their names may be too long to be listed."""
    with suppress(AgentMemoryError):  # `_Roots.clear` reports it at the end
        _delete(backend, Key.tree())


def _delete(backend: AnyBackend, top: Key) -> None:
    BlockingStore(backend).run(tree_flows.delete_tree, top, missing_ok=True)


def conform(
    url: str,
    options: Mapping[str, object],
    *,
    rounds: int,
    begun: Callable[[int], object] = lambda _: None,
    advance: Callable[[], object] = lambda: None,
) -> tuple[list[Promise], str | None]:
    """Test the backend of a URL against every promise of the contract that its `Capabilities` state.

    Args:
        url: a path or URL; the tests create their own roots below it, and empty them afterwards.
        options: for the backend; ``allow_single_writer`` also tells the tests that there is no other writer.
        rounds: the number of runs of each race.
        begun: called with the number of tests.
        advance: called after each test.

    Returns:
        The outcome of each promise, and the directory below the URL that could not be deleted afterwards, if any.

    Raises:
        BackendNotAvailableError: no installed backend opens the URL.
        ReadError: the store cannot be reached or listed.
        KeyboardInterrupt: the tests were interrupted.
        RuntimeError: pytest did not run all tests.

    A storage that stalls does not block the run: an operation has 15 seconds, and after three consecutive tests in
    which the storage failed, the remaining tests are not tried.
    """
    _Contract.roots = roots = _Roots(url, options)
    _Contract.rounds = rounds
    _Contract.single_writer = options.get("allow_single_writer") is True
    roots.check()
    listener = _Listener(begun, advance)
    with tempfile.TemporaryDirectory() as name, redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", name)
        try:
            with patch.dict(os.environ), default_seconds(_OPERATION_SECONDS), _not_shrinking():
                for variable in _OF_OTHERS:
                    os.environ.pop(variable, None)
                code = pytest.main(_PYTEST, plugins=[listener])
        finally:
            left = roots.clear()
    listener.check(code)
    return listener.promises, left


class _Contract(BackendContract):
    """The contract of the backend that `conform` currently tests."""

    roots: ClassVar[_Roots]
    workers = 4
    model_examples = 5
    model_steps = 20

    @pytest.fixture
    def url(self) -> str:
        return self.roots.new()

    @pytest.fixture
    def backend(self, url: str) -> Iterator[AnyBackend]:
        backend = self.roots.open(url)
        if backend.timeout is not None:
            backend.timeout = _OPERATION_SECONDS
        yield backend
        _empty(backend)
        close_backend(backend)

    @pytest.fixture
    def another_backend(self, url: str, backend: AnyBackend) -> Iterator[AnyBackend]:
        if self.single_writer:  # the caller assured that there is no other writer
            yield backend
            return
        another = self.roots.open(url)
        yield another
        close_backend(another)


@contextmanager
def _not_shrinking() -> Iterator[None]:
    """Make Hypothesis stop at the first failure: shrinking would wait again for a storage that stalls."""
    settings.register_profile("before the contract", settings.default)
    settings.register_profile("contract", settings.default, phases=(Phase.explicit, Phase.generate))
    settings.load_profile("contract")
    try:
        yield
    finally:
        settings.load_profile("before the contract")


class _Listener:
    def __init__(self, begun: Callable[[int], object], advance: Callable[[], object]) -> None:
        self._begun = begun
        self._advance = advance
        self._part = ""
        self._expected = 0
        self._ended = 0
        self._raised: BaseException | None = None
        self._failed_in_a_row = 0
        self.promises: list[Promise] = []

    def check(self, code: int) -> None:
        """Raise unless all tests ran."""
        if code == pytest.ExitCode.INTERRUPTED:
            raise KeyboardInterrupt
        if not self._expected or self._ended < self._expected:
            raise RuntimeError(f"pytest ended with {code!r} after {self._ended} of {self._expected} tests")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._expected = len(session.items)
        self._begun(self._expected)

    def pytest_runtest_setup(self) -> None:
        if self._failed_in_a_row >= _MOST_FAILED:
            pytest.skip(_STALLED)

    def pytest_runtest_makereport(self, item: pytest.Function, call: pytest.CallInfo[None]) -> None:
        """Store the part and the error of a test before its report is made."""
        self._part = re.split("(?<=[a-z])(?=[A-Z])", item.function.__qualname__)[0].lower()
        self._raised = call.excinfo.value if call.excinfo else None
        is_untried = isinstance(self._raised, pytest.skip.Exception) and self._raised.msg == _STALLED
        if (call.when == "call" or self._raised) and not is_untried:
            failed = isinstance(self._raised, FileOperationError)
            self._failed_in_a_row = self._failed_in_a_row + 1 if failed else 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.promises.append(self._promise(report))
        if report.when == "teardown":
            self._ended += 1
            self._advance()

    def _promise(self, report: pytest.TestReport) -> Promise:
        part, text = self._part, report.nodeid.rpartition("::test_")[2].replace("_", " ")
        if report.outcome == "passed":
            return Promise(part, text, "kept", "")
        if report.outcome == "skipped":
            reason = _reason(report)
            return Promise(part, text, "not tried" if reason == _STALLED else "not promised", reason)
        if isinstance(self._raised, UnsupportedOperationError):
            return Promise(part, text, "not promised", _without_name(self._raised))
        if isinstance(self._raised, FileOperationError):
            return Promise(part, text, "not tried", _without_name(self._raised))
        with suppress(AttributeError):
            return Promise(part, text, "broken", _shortened(cast(Any, report.longrepr).reprcrash.message))
        return Promise(part, text, "broken", _shortened(report.longreprtext))


def _without_name(error: BaseException) -> str:
    return _shortened(str(error).partition("': ")[2] or str(error))


def _reason(report: pytest.TestReport) -> str:
    return str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr).removeprefix("Skipped: ")


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
