"""The stateful test: random operations through `AgentMemory`, compared with a plain dict after every step.

Every given backend must return the results, and raise the error classes, of the dict. Several backends run side by
side.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias
from unittest import TestCase

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from agent_memory.backend import ANY, AnyBackend, Entry
from agent_memory.core.precondition import SHA256
from agent_memory.errors import AgentMemoryError, ConflictError, FileAlreadyExistsError, PartialOperationError
from agent_memory.key import Key
from agent_memory.memory import AgentMemory, TreeResult, WriteResult
from agent_memory.runtime.runners import close_backend
from agent_memory.service import AgentMemoryService
from agent_memory.testing._model import DictMemory, sha256

__all__ = ["DictMemory", "MemoryMachine", "check_against_model", "model_test"]

OpenBackend: TypeAlias = Callable[[], AnyBackend]

# So few that they are used repeatedly, as a file at one time and as a directory at another.
_PATHS = ["a", "a/b", "a/b/c", "a/b/c/d", "a/c", "ab", "ab/c", "a-b", "a.b/c", "b", "b/a", "b/é", "é", "é/メモ"]
_BAD_PATHS = ["../a", "/a", "a:b", "a//b", "./b"]  # the last two are other spellings of a/b and b
_paths = st.sampled_from(_PATHS) | st.sampled_from(_PATHS) | st.sampled_from(_PATHS) | st.sampled_from(_BAD_PATHS)
_lookups = st.sampled_from(["read", "read_bytes", "stat", "exists"])
_prefixes = st.sampled_from(["", "a/", *_PATHS])
_texts = st.sampled_from(["", "x", "line\n", "one\r\ntwo", "a\x1eb\u2028c", "\0", "é\U0001f600", "\ud800"]) | st.text(
    max_size=30
)
_bytes = st.sampled_from([b"", b"\xff", b"x", b"line\n"]) | st.binary(max_size=30)
_digests = st.sampled_from(["none", "none", "right", "right", "RIGHT", "wrong"])
_changes = st.sampled_from(["same", "upper", "add", "empty", "delete", "surrogate", "fail"])
_missing = st.none() | st.sampled_from(["", "x", "\ud800"])
_after = st.none() | st.sampled_from(["", *_PATHS])
_limits = st.none() | st.integers(1, 3)


class MemoryMachine(RuleBasedStateMachine):
    """Runs each step on a `DictMemory`, and on the memory of one new agent on each of ``backends``.

    The backends stay open between runs; each run has its own agent, and deletes the agent's files.
    """

    backends: ClassVar[Sequence[AnyBackend]] = ()
    _runs: ClassVar[itertools.count[int]] = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        agent = f"model-{next(self._runs)}"
        self.model = DictMemory()
        self._agreed = True
        self.memories = [AgentMemoryService(backend).agent(agent) for backend in self.backends]

    @rule(path=_paths, verb=_lookups)
    def look_up(self, path: str, verb: str) -> None:
        self._same(lambda memory: getattr(memory, verb)(path))

    @rule(path=_paths, content=_texts | _bytes, digest=_digests)
    def write(self, path: str, content: str | bytes, digest: str) -> None:
        when = self._when(path, digest)
        self._same(lambda memory: memory.write(path, content, when=when))

    @rule(path=_paths, content=_texts)
    def create(self, path: str, content: str) -> None:
        self._same(lambda memory: memory.create(path, content))

    @rule(path=_paths, content=_texts, digest=_digests)
    def append(self, path: str, content: str, digest: str) -> None:
        when = self._when(path, digest)
        self._same(lambda memory: memory.append(path, content, when=when))

    @rule(path=_paths, change=_changes, missing=_missing, digest=_digests)
    def edit(self, path: str, change: str, missing: str | None, digest: str) -> None:
        arguments: dict[str, Any] = {"missing": missing} if missing is not None else {}
        if missing is None and (when := self._when(path, digest)) is not ANY:
            arguments = {"when": when}
        self._same(lambda memory: memory.edit(path, _CHANGES[change], **arguments))

    @rule(path=_paths, digest=_digests)
    def delete(self, path: str, digest: str) -> None:
        when = self._when(path, digest)
        self._same(lambda memory: memory.delete(path, when=when))

    @rule(path=_prefixes)
    def delete_tree(self, path: str) -> None:
        self._same(lambda memory: memory.delete_tree(path))

    @rule(path=_paths, new_path=_paths, verb=st.sampled_from(["rename", "copy"]))
    def transfer(self, path: str, new_path: str, verb: str) -> None:
        self._same(lambda memory: _transferred(memory, verb, path, new_path))

    @rule(path=_prefixes, recursive=st.booleans(), name_prefix=_prefixes, after=_after, limit=_limits)
    def list(self, path: str, recursive: bool, name_prefix: str, after: str | None, limit: int | None) -> None:
        part = {"recursive": recursive, "name_prefix": name_prefix, "after": after, "limit": limit}
        self._same(lambda memory: memory.list(path, **part))

    @rule(paths=st.lists(_paths, max_size=3), missing_ok=st.booleans())
    def read_many(self, paths: Sequence[str], missing_ok: bool) -> None:
        self._same(lambda memory: memory.read_many(paths, missing_ok=missing_ok))

    @rule(path=_paths, lines=st.integers(1, 3))
    def tail(self, path: str, lines: int) -> None:
        self._same(lambda memory: memory.tail(path, lines))

    @rule(path=_prefixes)
    def is_directory(self, path: str) -> None:
        self._same(lambda memory: memory.is_directory(path))

    def teardown(self) -> None:
        """Compare all remaining files, then delete them."""
        if not self._agreed:
            return  # an error here would hide the step that differed
        for memory in self.memories:
            assert {str(entry): memory.read_bytes(str(entry)) for entry in memory.list()} == self.model.files
            memory.delete_tree("")
            assert memory.list(recursive=False) == ()

    def _same(self, call: Callable[[Any], object]) -> None:
        expected = _outcome(call, self.model)
        outcomes = [_outcome(call, memory) for memory in self.memories]
        self._agreed = outcomes == [expected] * len(outcomes)
        assert self._agreed, f"{outcomes} instead of {expected}"

    def _when(self, path: str, kind: str) -> Any:
        if kind == "none":
            return ANY
        name = path if path in self.model.files else ""
        right = sha256(self.model.files.get(name, b""))
        return SHA256({"right": right, "RIGHT": right.upper(), "wrong": sha256(b"wrong")}[kind])


def check_against_model(*backends: AnyBackend, examples: int = 100, steps: int = 50) -> None:
    """Run random operations on the backends, side by side, and on a dict; raise if they differ.

    Args:
        backends: open backends of either kind; the test uses agents named ``model-0``, ``model-1`` and so on.
        examples: the number of sequences of operations.
        steps: the maximum number of operations in a sequence.

    Raises:
        AssertionError: a result or an error differs from that of the dict; Hypothesis prints the shortest sequence
            that it found.
    """

    class Machine(MemoryMachine):
        _runs = itertools.count()

    Machine.backends = backends
    with _quiet_log():
        run_state_machine_as_test(Machine, settings=_settings(examples, steps))


def model_test(*openers: OpenBackend, examples: int = 100, steps: int = 50) -> type[TestCase]:
    """A test class for pytest or unittest that tests the backends of ``openers``; see `check_against_model`.

    Example:
        >>> TestModel = model_test(lambda: MyBackend("scratch"))
    """

    class ModelTest(TestCase):
        def test_random_operations_do_what_they_do_on_a_dict(self) -> None:
            with ExitStack() as opened:
                backends = [open_backend() for open_backend in openers]
                for backend in backends:
                    opened.callback(close_backend, backend)
                check_against_model(*backends, examples=examples, steps=steps)

    return ModelTest


@contextmanager
def _quiet_log() -> Iterator[None]:
    # Every refusal logs a WARNING; thousands of them would hide the one sequence that failed.
    log = logging.getLogger("agent_memory")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def _settings(examples: int, steps: int) -> settings:
    # A slow store is not an error of this test.
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=slow,
    )


def _transferred(memory: Any, verb: str, path: str, new_path: str) -> TreeResult:
    """Rename or copy; by reading and writing if the store refuses because the content had the name minutes ago."""
    try:
        result: TreeResult = getattr(memory, verb)(path, new_path)
    except (ConflictError, PartialOperationError):  # nothing else runs here
        source, target = Key.tree().join(path).path, Key.tree().join(new_path).path
        for name in _files(memory, source):
            if not memory.exists(new := target + name[len(source) :]):
                memory.write(new, memory.read_bytes(name))
            if verb == "rename":
                memory.delete(name)
        return TreeResult(target, len(_files(memory, target)), 0)
    return result


def _files(memory: Any, path: str) -> Sequence[str]:
    """The file with a name, or the files below it."""
    return [path] if memory.exists(path) else [str(entry) for entry in memory.list(path)]


def _outcome(call: Callable[[Any], object], memory: AgentMemory | DictMemory) -> object:
    """The result of a call, or the class of its error; with the reason, if the name is taken."""
    try:
        return _comparable(call(memory))
    except FileAlreadyExistsError as error:
        return type(error), error.taken_by
    except (AgentMemoryError, _ChangeFailed) as error:
        return type(error)


def _comparable(result: object) -> object:
    if isinstance(result, Entry):
        return result.path, result.size, result.is_directory
    if isinstance(result, WriteResult):
        return replace(result, etag=None)
    if isinstance(result, tuple):
        return tuple(_comparable(item) for item in result)
    return result


class _ChangeFailed(Exception):
    """The error of a caller's own function."""


def _fail(text: str) -> str:
    raise _ChangeFailed(text)


_CHANGES: dict[str, Callable[[str], str | None]] = {
    "same": lambda text: text,
    "upper": str.upper,
    "add": lambda text: text + "+",
    "empty": lambda _: "",
    "delete": lambda _: None,
    "surrogate": lambda _: "\ud800",
    "fail": _fail,
}
