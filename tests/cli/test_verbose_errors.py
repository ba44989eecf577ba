"""With ``-v``, the last line of an error says where the error is documented."""

from __future__ import annotations

import json
from collections.abc import Callable

import click
import pytest
from click.testing import Result

from agent_memory import ConflictError, OperationDenied
from agent_memory.cli.output import Explained, report

Run = Callable[..., Result]
ERRORS = {
    "AgentMemoryFileNotFoundError (file_not_found)": ("read", "missing.md"),
    "FileAlreadyExistsError (file_exists)": ("create", "plan.md", "x"),
    "ConflictError (conflict)": ("write", "plan.md", "x", "--expected-sha256", "0" * 64),
    "PathTraversalError (path_traversal)": ("read", "../x"),
    "BackendNotAvailableError (backend_not_available)": ("--url", "nothing-opens-this://x", "ls"),
}


class OutOfHoursError(OperationDenied):
    """The error of a plugin of another package."""


@pytest.fixture(autouse=True)
def _plan(run: Run) -> None:
    run("write", "plan.md", "the plan")


@pytest.mark.parametrize(("error", "command"), ERRORS.items())
def test_an_error_tells_its_class_its_kind_and_its_section(run: Run, error: str, command: tuple[str, ...]) -> None:
    details = f"Details: {error}, see docs/errors.md#{error.partition(' ')[0].lower()}"
    for words in (("-v", *command), (*command, "--verbose")):
        line, last = run(*words).stderr.splitlines()[-2:]
        assert line.startswith("Error: ")
        assert last == details


@pytest.mark.parametrize("command", ERRORS.values())
def test_without_the_option_an_error_has_no_details(run: Run, command: tuple[str, ...]) -> None:
    assert run(*command).exit_code != 0
    assert "Details:" not in run(*command).stderr


def test_a_json_document_of_an_error_stays_the_same(run: Run) -> None:
    command = ("read", "missing.md", "--json")
    document = json.loads(run(*command).stderr)
    assert json.loads(run(*command, "-v").stderr.splitlines()[-1]) == document


def test_a_usage_error_has_no_section(run: Run) -> None:
    result = run("versions", "--keep", "1", "-v")
    assert result.exit_code == 2
    assert "Details:" not in result.stderr


def test_an_error_with_an_addition_has_the_section_of_its_cause(capsys: pytest.CaptureFixture[str]) -> None:
    report(Explained(ConflictError("the file is gone"), "your text is kept", {}), as_json=False, verbose=True)
    assert capsys.readouterr().err.splitlines() == [
        "Error: the file is gone; your text is kept",
        "Details: ConflictError (conflict), see docs/errors.md#conflicterror",
    ]


def test_an_error_of_another_package_has_the_section_of_its_base(capsys: pytest.CaptureFixture[str]) -> None:
    report(OutOfHoursError("come back tomorrow"), as_json=False, verbose=True)
    assert "Details: OperationDenied (operation_denied), see docs/errors.md#operationdenied" in capsys.readouterr().err


def test_an_error_that_is_not_of_this_package_has_no_section(capsys: pytest.CaptureFixture[str]) -> None:
    report(click.ClickException("no"), as_json=False, verbose=True)
    assert capsys.readouterr().err == "Error: no\n"


def test_the_log_is_shown_once_if_the_option_is_given_twice(run: Run) -> None:
    assert run("-v", "write", "a.md", "x", "-v").stderr.count("INFO write") == 1
