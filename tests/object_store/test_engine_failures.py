"""Every request of every operation meets every kind of engine failure: an `AgentMemoryError` is raised in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from contextvars import ContextVar
from functools import cache, partial
from itertools import product
from random import Random
from typing import Any, NamedTuple, TypeVar

import pytest

from agent_memory.backend import ABSENT, PRESENT
from agent_memory.backend._deadline import deadline_scope
from agent_memory.backend.helpers import Deadline
from agent_memory.errors import AgentMemoryError, FileAlreadyExistsError, FileOperationError, OutcomeUnknownError
from agent_memory.key import TEMPORARY_SUFFIX, Key
from agent_memory.object_store import ObjectStoreBackend, Writer
from agent_memory.object_store.engine import (
    Listing,
    NoResponse,
    NotFound,
    NotSatisfiable,
    PermanentError,
    PreconditionFailed,
    RequestError,
    RetainedPage,
    RetainedVersion,
    TooLarge,
    Unreachable,
    WriteConflict,
)
from agent_memory.object_store.retry import Attempts
from agent_memory.object_store.trial import race
from tests.simulation import ComposingClient, Faults, SimulatedStore
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import LEAST_PART
from tests.support import sizes
from tests.support.loops import looped

T = TypeVar("T")
KEY, NEW = Key.tree().join("d/log.md"), Key.tree().join("e/new.md")
SMALL, LARGE, MORE = b"base\n", b"x" * (LEAST_PART + 9) + b"\n", b"more\n"
SECONDS = 20.0
REQUESTS = ("is_trusted", "get", "head", "put", "delete", "list", "list_versions", "delete_version", "list_uploads",
            "abort_upload", "begin_upload", "copy_part", "put_part", "complete_upload")  # fmt: skip
_inside: ContextVar[bool] = ContextVar("inside", default=False)


class Failure(NamedTuple):
    """The error of a request; ``applied``: it took effect first; ``again``: all later requests fail too."""

    text: str
    error: Callable[[], BaseException]
    applied: bool = False
    again: bool = False


FAILURES = (
    Failure("unanswered", lambda: NoResponse("lost")),
    Failure("unanswered from now on", lambda: NoResponse("lost"), again=True),
    Failure("unanswered, done", lambda: NoResponse("lost"), applied=True),
    Failure("not sent", lambda: NoResponse("no credentials", sent=False)),
    Failure("not sent from now on", lambda: NoResponse("no credentials", sent=False), again=True),
    Failure("out of reach from now on", lambda: Unreachable("refused", sent=False), again=True),
    Failure("closed from now on", lambda: Unreachable("closed"), again=True),
    Failure("closed from now on, done", lambda: Unreachable("closed"), applied=True, again=True),
    Failure("failed", lambda: PermanentError("access denied")),
    Failure("failed from now on", lambda: PermanentError("access denied"), again=True),
    Failure("timeout", TimeoutError),
    Failure("timeout from now on", TimeoutError, again=True),
)
"""Failures outside the code: the operation reports the true outcome, or that the outcome is unknown."""
ANSWERS = (NotFound, PreconditionFailed, WriteConflict, NotSatisfiable, lambda: TooLarge(9, 1))
"""Answers that do not fit every request."""
CLEANING = {"abort_upload", "delete scratch"}
"""The clean-up requests of a failed operation."""
OF_SCRATCH = ("delete", "complete_upload", "begin_upload", "put_part", "put", "head")
"""The requests that are called otherwise if they are about a scratch object."""
RACED = {f"{name} scratch" for name in OF_SCRATCH}
"""The requests of a trial that are sent at once: one that fails does not stop those that are sent already."""
MISTAKES = (ImportError, TypeError, AttributeError, KeyError, ValueError, RuntimeError, OSError, ZeroDivisionError)


class Engine(ComposingClient):
    """The simulated server's client with every optional part of an engine."""

    async def is_trusted(self) -> bool:
        return False

    async def list(self, prefix: str, *, delimited: bool, limit: int, after: str | None = None) -> Listing:
        found = await super().list(prefix, delimited=delimited, limit=limit, after=after)
        below = {name[len(prefix) :] for name in self._store.objects if name.startswith(prefix)}
        levels = {f"{prefix}{name.partition('/')[0]}/" for name in below if "/" in name} if delimited else set[str]()
        return found._replace(prefixes=sorted(levels), has_directories=True)

    async def copy_part(
        self, name: str, upload: str, number: int, *, source: str, if_match: str, span: tuple[int, int]
    ) -> str:
        data = self._store.get(source, if_match).data[span[0] : span[1] + 1]
        return await super().put_part(name, upload, number, data)

    async def list_versions(self, prefix: str, after: tuple[str, str] | None) -> RetainedPage:  # noqa: ARG002 - only one page
        return RetainedPage(
            [RetainedVersion(name, "v") for name in self._store.objects if name.startswith(prefix)], None
        )

    async def has_versioning(self) -> bool:
        return True

    async def delete_version(self, version: RetainedVersion) -> None:
        self._store.delete(version.name, None)

    async def list_uploads(self, prefix: str, after: tuple[str, str] | None) -> RetainedPage:  # noqa: ARG002 - only one page
        return RetainedPage([RetainedVersion(each.name, id_) for id_, each in self._store.uploads.items()], None)


class StandIn(Engine):
    """An engine that fails as a test decides, and records its requests and those sent outside `Attempts`."""

    def __init__(self, store: SimulatedStore) -> None:
        super().__init__(store, Random(1), Faults(0, 0, 0, 0, 0, 0, 0))
        self.requests: list[str] = []
        self.outside: list[str] = []
        self.fails: Callable[[int], Failure | None] = lambda _: None


def _failing(name: str) -> Callable[..., Awaitable[Any]]:
    async def request(self: StandIn, *args: Any, **options: Any) -> Any:
        if not _inside.get():
            self.outside.append(name)
        failure = self.fails(len(self.requests))
        is_scratch = name in OF_SCRATCH and args[0].endswith(TEMPORARY_SUFFIX)
        self.requests.append(f"{name} scratch" if is_scratch else name)
        await asyncio.sleep(0)
        request = partial(getattr(Engine, name), self, *args, **options)
        if failure is None:
            return await request()
        if failure.applied:
            with suppress(RequestError):
                await request()
        raise failure.error()

    return request


for _name in REQUESTS:
    setattr(StandIn, _name, _failing(_name))


@pytest.fixture(autouse=True)
def one_race(monkeypatch: pytest.MonkeyPatch) -> None:
    """Race each kind of changes on one object, once, because each request fails in turn."""
    monkeypatch.setattr(race, "OBJECTS", 1)
    monkeypatch.setattr(race, "PASSES", 1)


@pytest.fixture(autouse=True)
def noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mark the requests that `Attempts` sends."""

    once = Attempts.once

    async def inside(self: Attempts, request: Callable[[], Awaitable[T]]) -> T:
        token = _inside.set(True)
        try:
            return await once(self, request)
        finally:
            _inside.reset(token)

    monkeypatch.setattr(Attempts, "once", inside)


class Operation(NamedTuple):
    """One operation of a backend, and the file before it; ``many``: it changes many files one by one."""

    call: Callable[[ObjectStoreBackend], Awaitable[object]]
    before: bytes | None = SMALL
    many: bool = False


async def _swap(backend: ObjectStoreBackend) -> None:
    await backend.write(KEY, MORE, (await backend.read(KEY)).etag)


async def _delete_version(backend: ObjectStoreBackend) -> None:
    await backend.delete(KEY, (await backend.read(KEY)).etag)


OPERATIONS = {
    "read": Operation(lambda b: b.read(KEY)),
    "read nothing": Operation(lambda b: b.read(KEY, 3, 3)),
    "stat": Operation(lambda b: b.stat(KEY)),
    "list": Operation(lambda b: b.list(Key.tree())),
    "list a level": Operation(lambda b: b.list(Key.tree(), recursive=False)),
    "write": Operation(lambda b: b.write(KEY, MORE)),
    "write into a new directory": Operation(lambda b: b.write(NEW, MORE)),
    "create": Operation(lambda b: b.write(NEW, MORE, ABSENT)),
    "create where a file is": Operation(lambda b: b.write(KEY, MORE, ABSENT)),
    "swap": Operation(_swap),
    "append": Operation(lambda b: b.append(KEY, MORE, when=PRESENT)),
    "append to nothing": Operation(lambda b: b.append(KEY, MORE), None),
    "append to a large file": Operation(lambda b: b.append(KEY, MORE), LARGE),
    "delete": Operation(lambda b: b.delete(KEY)),
    "delete a version": Operation(_delete_version),
    "erase": Operation(lambda b: b.erase(Key.tree()), many=True),
}


class Ended(NamedTuple):
    """The end of an operation: its error, its engine, and whether any file has changed."""

    error: BaseException | None
    engine: StandIn
    changed: bool


def ended(operation: Operation, fails: Callable[[int], Failure | None], cancelled_at: int | None = None) -> Ended:
    """Run an operation on a new server; ``fails`` gets the number of each request."""
    store = SimulatedStore()
    engine = StandIn(store)

    async def play() -> tuple[BaseException | None, bool]:
        with deadline_scope(Deadline(SECONDS, asyncio.get_running_loop().time() + SECONDS)):
            if operation.before is not None:
                await ObjectStoreBackend(engine, writer=Writer(), jitter=Random(1).random).write(KEY, operation.before)
            engine.requests.clear()
            before = contents(store)
            backend = ObjectStoreBackend(engine, writer=Writer(), jitter=Random(1).random)
            task = asyncio.ensure_future(operation.call(backend))
            engine.fails = lambda number: fails(task.cancel()) if number == cancelled_at else fails(number)
            await asyncio.wait({task})
            await backend.aclose()
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        return error, contents(store) != before

    error, changed = VirtualLoop().run(play())  # type: ignore[abstract]  # the missing methods are never called
    return Ended(error, engine, changed)


def contents(store: SimulatedStore) -> dict[str, bytes]:
    return {name: found.data for name, found in store.objects.items() if not name.endswith(".agent-memory-tmp")}


@cache
def requests_of(operation: str) -> list[int]:
    """The numbers of an operation's requests in a run without failures: of equal ones in a race, the first and last."""
    names = ended(OPERATIONS[operation], lambda _: None).engine.requests
    assert names
    return [
        number for number, name in enumerate(names) if name not in RACED or {name} != {*names[number - 1 : number + 2]}
    ]


def from_request(at: int, failure: Failure) -> Callable[[int], Failure | None]:
    """Fail one request, and all later ones if ``failure.again``."""
    return lambda number: failure if number == at or (failure.again and number > at) else None


def chain_of(error: BaseException | None) -> list[BaseException]:
    chain = []
    while error is not None:
        chain.append(error)
        error = error.__cause__
    return chain


def sent_later(end: Ended, at: int) -> set[str]:
    """The requests after one; without those of races that were under way on other scratch objects."""
    names = end.engine.requests
    return set(names[at + 1 :]) - (RACED if names[at] in RACED else set())


def thinned(*values: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Each operation with each of the values; the short run takes each eleventh."""
    return [*product(OPERATIONS, *values)][:: 1 if sizes.is_long else 11]


@looped(("name", "failure"), thinned(FAILURES))
def test_a_failure_of_any_request_raises_an_agent_memory_error_with_the_true_outcome(
    name: str, failure: Failure
) -> None:
    operation = OPERATIONS[name]
    for at in requests_of(name):
        end = ended(operation, from_request(at, failure))
        assert end.error is None or isinstance(end.error, AgentMemoryError), (at, end.engine.requests)
        if end.error and not isinstance(end.error, OutcomeUnknownError) and not operation.many:
            assert not end.changed, (at, end.engine.requests, end.error)
        assert not end.engine.outside


@looped(("name", "answer"), thinned(ANSWERS))
def test_an_answer_that_does_not_fit_the_request_raises_an_agent_memory_error(
    name: str, answer: Callable[[], Exception]
) -> None:
    for at in requests_of(name):
        for again in (False, True):
            end = ended(OPERATIONS[name], from_request(at, Failure("", answer, again=again)))
            assert end.error is None or isinstance(end.error, AgentMemoryError), (at, end.engine.requests)


@looped(("name", "mistake", "applied"), thinned(MISTAKES, (False, True)))
def test_a_programming_error_is_raised_at_once_with_its_cause(
    name: str, mistake: type[Exception], applied: bool
) -> None:
    operation = OPERATIONS[name]
    for at in requests_of(name):
        end = ended(operation, from_request(at, Failure("", lambda: mistake("a mistake"), applied)))
        is_calm = end.error is None or type(end.error) is FileAlreadyExistsError
        if is_calm and end.engine.requests[at] in {*CLEANING, "delete_version"}:
            continue  # the object to remove is already gone, or only a scratch object
        assert isinstance(end.error, FileOperationError), (at, end.engine.requests)
        assert any(type(cause) is mistake for cause in chain_of(end.error))
        assert mistake.__name__ in str(end.error)
        assert "a mistake" not in str(end.error), "what it says may be a path of the host"
        if not operation.many:
            beside = {"list"} if end.engine.requests[at] == "head" else set()  # the look-ups of directories, at once
            assert sent_later(end, at) <= CLEANING | beside, "nothing is sent again"
            assert isinstance(end.error, OutcomeUnknownError) or not end.changed


@looped("name", OPERATIONS)
def test_a_cancelled_operation_raises_cancelled_error(name: str) -> None:
    for at in requests_of(name):
        end = ended(OPERATIONS[name], lambda _: None, cancelled_at=at)
        assert isinstance(end.error, asyncio.CancelledError) or end.engine.requests[at] in CLEANING
        assert sent_later(end, at) <= CLEANING


@looped("name", OPERATIONS)
def test_every_request_is_sent_through_attempts(name: str) -> None:
    assert ended(OPERATIONS[name], lambda _: None).engine.outside == []
