"""The error tree: the base classes of each error, its attributes, and the drawing in the docstring."""

from __future__ import annotations

import builtins
import copy
import errno
import pickle
import re

import pytest

import agent_memory
from agent_memory import AgentMemory, AgentMemoryService, errors
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    AgentNotFoundError,
    AppendError,
    BackendNotAvailableError,
    ConflictError,
    FileAlreadyExistsError,
    FileOperationError,
    FileTooLargeError,
    InvalidAgentIdError,
    InvalidContentError,
    InvalidPathError,
    OperationDenied,
    OutcomeUnknownError,
    PartialOperationError,
    PathTraversalError,
    ReadError,
    UnsupportedOperationError,
    WriteError,
)
from tests.support.loops import looped

# Every class with its direct bases and its kind: both are promises to callers.
TREE: dict[type[AgentMemoryError], tuple[str, set[type[BaseException]]]] = {
    AgentMemoryError: ("error", {Exception}),
    InvalidPathError: ("invalid_path", {AgentMemoryError, ValueError}),
    PathTraversalError: ("path_traversal", {InvalidPathError}),
    InvalidAgentIdError: ("invalid_agent_id", {InvalidPathError, AgentNotFoundError}),
    AgentNotFoundError: ("agent_not_found", {AgentMemoryError, LookupError}),
    InvalidContentError: ("invalid_content", {AgentMemoryError, ValueError}),
    AgentMemoryFileNotFoundError: ("file_not_found", {AgentMemoryError, FileNotFoundError}),
    FileAlreadyExistsError: ("file_exists", {AgentMemoryError, FileExistsError}),
    ConflictError: ("conflict", {AgentMemoryError}),
    FileTooLargeError: ("file_too_large", {AgentMemoryError}),
    OperationDenied: ("operation_denied", {AgentMemoryError, PermissionError}),
    UnsupportedOperationError: ("unsupported_operation", {AgentMemoryError}),
    BackendNotAvailableError: ("backend_not_available", {AgentMemoryError, ImportError}),
    FileOperationError: ("file_operation", {AgentMemoryError, OSError}),
    ReadError: ("read", {FileOperationError}),
    WriteError: ("write", {FileOperationError}),
    AppendError: ("append", {FileOperationError}),
    PartialOperationError: ("partial_operation", {FileOperationError}),
    OutcomeUnknownError: ("outcome_unknown", {FileOperationError}),
}
CARRYING: list[AgentMemoryError] = [
    *(error("it failed") for error in TREE),
    InvalidPathError("no", "punctuation", "a.md", "'a?.md'"),
    PathTraversalError("no", "parent", "a", "'../a'"),
    InvalidAgentIdError("no", "agent-id", "a", "'a b'"),
    PartialOperationError("1 of 2 files are left", ("a",), ("b", "c")),
]


def _subclasses(error: type[AgentMemoryError]) -> set[type[AgentMemoryError]]:
    return {error}.union(*map(_subclasses, error.__subclasses__()))


def _drawn() -> dict[str, tuple[str, set[str]]]:
    """The drawing in the module's docstring: each class with its parent and the classes in parentheses."""
    drawn: dict[str, tuple[str, set[str]]] = {}
    above: dict[int, str] = {}
    for found in re.finditer(r"^( {4}[│├└─ ]*)(\w+)(?: \(([^)]*)\))?", errors.__doc__ or "", re.MULTILINE):
        depth = (len(found[1]) - 4) // 4
        above[depth] = found[2]
        drawn[found[2]] = (above.get(depth - 1, "Exception"), set(re.findall(r"\w+", found[3] or "")))
    return drawn


def test_every_error_is_in_the_table() -> None:
    ours = {error for error in _subclasses(AgentMemoryError) if error.__module__ == errors.__name__}
    assert ours == set(TREE)


@looped("error", TREE)
def test_each_error_has_the_documented_bases_and_kind(error: type[AgentMemoryError]) -> None:
    kind, bases = TREE[error]
    assert error.kind == kind
    assert set(error.__bases__) == bases
    assert error.__doc__


@looped("error", TREE)
def test_the_drawing_in_the_docstring_shows_the_real_bases(error: type[AgentMemoryError]) -> None:
    parent, beside = _drawn()[error.__name__]
    assert {parent, *beside} == {base.__name__ for base in error.__bases__}


def test_the_drawing_shows_exactly_the_errors() -> None:
    assert list(_drawn()) == [error.__name__ for error in TREE]


def test_kinds_are_unique_and_valid_metric_labels() -> None:
    kinds = [error.kind for error in TREE]
    assert len(set(kinds)) == len(kinds)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", kind) for kind in kinds)


@looped("error", TREE)
def test_every_error_is_exported(error: type[AgentMemoryError]) -> None:
    assert getattr(agent_memory, error.__name__) is error
    assert error.__name__ in agent_memory.__all__


@looped(
    ("builtin", "error"),
    [
        (ValueError, PathTraversalError),
        (ValueError, InvalidAgentIdError),
        (LookupError, InvalidAgentIdError),
        (ValueError, InvalidContentError),
        (FileNotFoundError, AgentMemoryFileNotFoundError),
        (FileExistsError, FileAlreadyExistsError),
        (PermissionError, OperationDenied),
        (ImportError, BackendNotAvailableError),
        (OSError, OutcomeUnknownError),
    ],
)
def test_an_error_can_be_caught_as_its_builtin_base(builtin: type[Exception], error: type[AgentMemoryError]) -> None:
    assert getattr(builtins, builtin.__name__) is builtin
    with pytest.raises(builtin, match="it failed") as caught:
        raise error("it failed")
    assert isinstance(caught.value, AgentMemoryError)


def test_a_file_operation_error_is_neither_a_missing_file_nor_a_refusal() -> None:
    for error in _subclasses(FileOperationError):
        assert not issubclass(error, FileNotFoundError | FileExistsError | PermissionError | ValueError)


@looped("error", CARRYING)
def test_an_error_survives_pickling_completely(error: AgentMemoryError) -> None:
    for protocol in (0, pickle.HIGHEST_PROTOCOL):
        _assert_same(pickle.loads(pickle.dumps(error, protocol)), error)


@looped("error", CARRYING)
def test_an_error_is_copied_completely(error: AgentMemoryError) -> None:
    _assert_same(copy.copy(error), error)
    _assert_same(copy.deepcopy(error), error)


def _assert_same(twin: object, error: AgentMemoryError) -> None:
    assert type(twin) is type(error)
    assert (str(twin), twin.kind) == (str(error), error.kind)
    assert twin.args == error.args
    assert vars(twin) == vars(error)


@looped("error", CARRYING)
def test_the_text_of_an_error_is_only_its_message(error: AgentMemoryError) -> None:
    assert str(error) == error.args[0]


def test_the_error_for_a_refused_name_has_the_rule_the_suggestion_and_the_name() -> None:
    error = PathTraversalError("no", "parent", "a", "'../a'")
    assert (error.rule, error.suggestion, error.refused) == ("parent", "a", "'../a'")


def test_a_partial_operation_error_lists_the_done_and_the_remaining_files() -> None:
    error = PartialOperationError("1 of 2 files are left", ("a",), ("b",))
    assert (error.done, error.left) == (("a",), ("b",))


@looped("name", ["it's.md", "plain.md"])
def test_an_error_of_a_subtree_names_the_path_in_the_subtree_alone(name: str) -> None:
    with AgentMemoryService("memory://") as service:
        memory = service.agent("bob").subtree("secret/above")
        with pytest.raises(AgentMemoryFileNotFoundError) as failed:
            memory.read(name)
    error = failed.value
    assert str(error) == f"{name!r}: no such file"
    assert (error.path, error.agent, error.operation) == (name, "bob", "read")


def test_an_error_whose_message_names_no_path_carries_it() -> None:
    memory = AgentMemory.open("memory://").read_only()
    with pytest.raises(OperationDenied) as failed:
        memory.write("a.md", "x")
    assert (failed.value.path, failed.value.agent, failed.value.operation) == ("a.md", None, "write")


def test_the_files_of_a_partial_operation_are_named_in_the_subtree_alone() -> None:
    error = PartialOperationError("stopped", done=("d/a.md",), left=("d/b.md",))
    error.with_location("rename", None, "d", "d")
    error.with_location("read", "other", "x", "")
    assert (error.done, error.left, error.path, error.operation) == (("a.md",), ("b.md",), "", "rename")


@looped(
    ("error", "number"),
    [
        (AgentMemoryFileNotFoundError("no such file", path="a"), errno.ENOENT),
        (FileAlreadyExistsError("the name is a directory", "directory", path="a"), errno.EEXIST),
        (OperationDenied("no", path="a"), errno.EACCES),
        (WriteError("the storage failed", path="a"), None),
    ],
)
def test_an_os_error_has_the_number_of_its_class(error: OSError, number: int | None) -> None:
    assert (error.errno, copy.copy(error).errno, pickle.loads(pickle.dumps(error)).errno) == (number, number, number)
