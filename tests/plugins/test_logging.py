"""The logging plugin: one line per operation, without content, and no name can forge a line."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace

import pytest

from agent_memory import (
    SHA256,
    AgentMemory,
    AgentMemoryError,
    AgentMemoryService,
    ConflictError,
    FileAlreadyExistsError,
    InvalidAgentIdError,
    InvalidPathError,
    Operation,
    OperationDenied,
    Outcome,
    ReadError,
    hookimpl,
)
from agent_memory.key import Key
from agent_memory.plugins import logging as logging_plugin
from agent_memory.plugins.logging import LoggingPlugin
from agent_memory.plugins.readonly import ReadOnlyPlugin
from agent_memory_memory import MemoryBackend


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "agent_memory")
    return caplog


OPERATION = Operation(id="1", time=0.0, kind="write", agent="bob", path="a.md")
OUTCOME = Outcome(status="ok", duration=0.0015)


def line(log: pytest.LogCaptureFixture, operation: Operation = OPERATION, outcome: Outcome = OUTCOME) -> str:
    """The log line of one operation."""
    LoggingPlugin().agent_memory_after_operation(operation, outcome)
    (record,) = log.records
    assert record.name == "agent_memory"
    return record.getMessage()


def test_logging_is_on_by_default(log: pytest.LogCaptureFixture) -> None:
    AgentMemoryService("memory://").write_memory_file("bob", "a.md", "text")
    AgentMemory.open("memory://").exists("a.md")
    assert [record.getMessage().split(" ms=")[0] for record in log.records] == [
        "write agent=bob path='a.md' size=4",
        "exists agent=- path='a.md'",
    ]


def test_a_line_has_every_given_fact(log: pytest.LogCaptureFixture) -> None:
    operation = replace(OPERATION, kind="rename", target="b.md", actor="alice", size=5)
    told = line(log, operation, replace(OUTCOME, size=7, files=3, skipped=2, attempts=4))
    assert told == (
        "rename agent=bob path='a.md' target='b.md' size=7 files=3 skipped=2 attempts=4 actor='alice' ms=1.5 outcome=ok"
    )


def test_a_line_omits_facts_that_are_not_given(log: pytest.LogCaptureFixture) -> None:
    assert line(log, replace(OPERATION, kind="read")) == "read agent=bob path='a.md' ms=1.5 outcome=ok"


def test_a_line_shows_the_given_size_until_the_outcome_has_one(log: pytest.LogCaptureFixture) -> None:
    assert "size=5 " in line(log, replace(OPERATION, size=5))


@pytest.mark.parametrize(
    ("outcome", "level"),
    [
        (Outcome(status="ok", duration=0.0), logging.INFO),
        (Outcome(status="error", duration=0.0, error="file_not_found"), logging.INFO),
        (Outcome(status="error", duration=0.0, error="file_exists"), logging.INFO),
        (Outcome(status="error", duration=0.0, error="conflict"), logging.INFO),
        (Outcome(status="ok", duration=0.0, skipped=1), logging.WARNING),
        (Outcome(status="denied", duration=0.0), logging.WARNING),
        (Outcome(status="error", duration=0.0, error="write"), logging.WARNING),
        (Outcome(status="error", duration=0.0, error="ZeroDivisionError"), logging.WARNING),
        (Outcome(status="unknown", duration=0.0, error="interrupted"), logging.WARNING),
        (Outcome(status="unknown", duration=0.0, error="outcome_unknown"), logging.WARNING),
    ],
)
def test_ordinary_outcomes_are_logged_as_info_and_others_as_warnings(
    log: pytest.LogCaptureFixture, outcome: Outcome, level: int
) -> None:
    told = line(log, outcome=outcome)
    error = "" if outcome.error is None else f" error={outcome.error}"
    assert told.endswith(f"outcome={outcome.status}{error}")
    assert log.records[0].levelno == level


def test_a_line_is_not_formatted_if_its_level_is_disabled(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "agent_memory")
    AgentMemory.open("memory://").write("a.md", "text")
    assert caplog.records == []


@pytest.mark.parametrize("fact", ["path", "target", "actor"])
@pytest.mark.parametrize("text", ["a\nwrite agent=eve", "a\x1b[31m", "\u202egnp", "a\r", "\u2028", "' outcome=ok '"])
def test_a_name_cannot_forge_a_line(log: pytest.LogCaptureFixture, fact: str, text: str) -> None:
    told = line(log, Operation(**{**asdict(OPERATION), fact: text}))
    assert f"{fact}={text!a} " in told
    assert told.isprintable()
    assert told.isascii()


def test_a_refused_name_is_logged_as_one_warning_with_its_rule(log: pytest.LogCaptureFixture) -> None:
    service = AgentMemoryService("memory://")
    with pytest.raises(InvalidPathError):
        service.read_memory_file("bob", "a\n?.md")
    with pytest.raises(InvalidAgentIdError):
        service.read_memory_file("b b", "a.md")
    assert [(record.levelno, record.getMessage()) for record in log.records] == [
        (logging.WARNING, r"refused agent=bob path='a\n?.md' rule=control"),
        (logging.WARNING, "refused agent=- path='b b' rule=agent-id"),
    ]


def test_every_outcome_of_a_real_operation_is_one_line_without_content(log: pytest.LogCaptureFixture) -> None:
    class Guard:
        @hookimpl
        def agent_memory_check_content(self, content: bytes) -> None:
            if b"denied" in content:
                raise OperationDenied("no")

    backend = MemoryBackend()
    backend.write(Key.tree().join("binary.md"), b"secret \xff")
    memory = AgentMemory.open(backend, plugins=[Guard()])
    memory.write("a.md", "secret")
    memory.append("a.md", " secret")
    memory.edit("a.md", lambda text: text + "!")
    failing: list[tuple[type[AgentMemoryError], Callable[[], object]]] = [
        (FileAlreadyExistsError, lambda: memory.create("a.md", "secret")),
        (ConflictError, lambda: memory.write("a.md", "secret", when=SHA256("0" * 64))),
        (OperationDenied, lambda: memory.write("a.md", "secret denied")),
        (ReadError, lambda: memory.read("binary.md")),
    ]
    for error, call in failing:
        with pytest.raises(error):
            call()
    outcomes = [record.getMessage().rpartition("outcome=")[2] for record in log.records]
    assert outcomes == [
        "ok",
        "ok",
        "ok",
        *(f"error error={kind}" for kind in ("file_exists", "conflict")),
        "denied",
        "error error=read",
    ]
    assert "secret" not in log.text


CRASHING = """
from agent_memory import AgentMemory, hookimpl


class Crashing:
    @hookimpl
    def agent_memory_after_operation(self, operation):
        raise RuntimeError("the observer is broken")


AgentMemory.open("memory://", plugins=[Crashing()]).write("notes.md", "x")
"""


def said(program: str) -> str:
    """The standard error of a program that succeeds."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stderr


def test_a_failing_observer_is_shown_on_standard_error_without_logging_configuration() -> None:
    assert "the plugin 'Crashing' failed in agent_memory_after_operation" in said(CRASHING)
    assert "the observer is broken" in said(CRASHING)


def test_the_logging_configuration_of_an_application_decides_the_output() -> None:
    silent = 'import logging\nlogging.getLogger("agent_memory").addHandler(logging.NullHandler())\n'
    assert said(silent + CRASHING) == ""
    assert said("import logging\nlogging.basicConfig(level=logging.CRITICAL)\n" + CRASHING) == ""


def test_the_refusals_of_an_agent_are_logged_once_a_minute_with_their_number(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with AgentMemoryService("memory://", plugins=[ReadOnlyPlugin("**")]) as service:
        for _ in range(5):
            for agent in ("ann", "bob"):
                with pytest.raises(OperationDenied):
                    service.agent(agent).write("a.md", "x")
                with pytest.raises(InvalidPathError):
                    service.agent(agent).write("../a.md", "x")
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) == 4
        now += 60
        with pytest.raises(OperationDenied):
            service.agent("ann").write("a.md", "x")
        with pytest.raises(InvalidPathError):
            service.agent("ann").write("../b.md", "x")
    assert [record.getMessage().rpartition(" ")[2] for record in caplog.records[4:]] == ["left_out=4", "left_out=4"]


def test_the_memory_of_refusals_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging_plugin, "_MOST_SUBJECTS", 10)
    refusals = logging_plugin._Refusals()
    assert [refusals.count(number) for number in range(100)] == [0] * 100
    assert [refusals.count(number) for number in (99, 0)] == [None, 0]
