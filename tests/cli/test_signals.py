"""SIGTERM and SIGHUP end a command in order: each change that was made is in the audit log."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemoryService, cli
from agent_memory.audit import records
from agent_memory.cli import signals
from agent_memory.cli.app import app
from agent_memory.cli.auditing import log_of_store
from tests.support import sizes
from tests.support.forked import popen
from tests.support.mcp_processes import INITIALIZE, started

pytestmark = pytest.mark.usefixtures("default_hangup")
FILES = 3000 if sizes.is_long else 1000
CALL = {"jsonrpc": "2.0", "method": "tools/call"}


def folder(parent: Path) -> Path:
    """A folder of `FILES` files to import."""
    source = parent / "source"
    source.mkdir()
    for number in range(FILES):
        (source / f"{number}.md").write_text("text")
    return source


def changed(root: Path) -> set[str]:
    with AgentMemoryService(root) as service:
        return {entry.path for agent in service.agent_ids() for entry in service.list_memory_files(agent)}


def recorded(root: Path) -> set[str]:
    location = log_of_store(str(root), {})
    try:
        return {str(each["path"]) for each in records(location) if each.get("outcome") in ("ok", "unknown")}
    finally:
        location.store.close()


@pytest.mark.parametrize(
    ("ending", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGHUP, 129, marks=pytest.mark.long)]
)
def test_a_signal_during_an_import_loses_no_record(
    script: str, tmp_path: Path, ending: signal.Signals, code: int
) -> None:
    source = folder(tmp_path)
    for turn in range(10):
        root = tmp_path / f"root{turn}"
        command = [script, "--url", str(root), "import", str(source)]
        with popen(command, cwd=tmp_path, real=True) as process:
            while not [*root.glob("agent_memory/*/*.md")]:
                assert process.poll() is None
            process.send_signal(ending)
            process.send_signal(ending)
            _, errors = process.communicate()
        assert b"Traceback" not in errors
        assert changed(root) <= recorded(root)
        if process.returncode:  # otherwise the import ended before the signal
            assert process.returncode == code
            assert 0 < len(changed(root)) < FILES
            return
    pytest.fail("each import ended before its signal")


SIGNALLED_AT_A_LOCK = """
import os, signal, sys, threading, time, traceback, types
from agent_memory import cli

enter = threading.Condition.__enter__
main, caller, ending, signals = threading.get_ident(), sys.argv.pop(1), int(sys.argv.pop(1)), []

def signalled_inside(self):
    taken = enter(self)
    if threading.get_ident() == main and not signals:
        names = [frame.f_code.co_name for frame, _ in traceback.walk_stack(sys._getframe(1))]
        if names[0] == caller and "transfer_all" in names and threading.active_count() > 1:
            time.sleep(0.2)  # the threads go on until they need this lock
            signals.append(os.kill(os.getpid(), ending))
    return taken

names = {**globals(), "__name__": "threading"}  # a frame of this function is one of that module
threading.Condition.__enter__ = types.FunctionType(signalled_inside.__code__, names)
cli.main()
"""


@pytest.mark.parametrize(("ending", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("caller", ["acquire", "wait", "result"])
def test_a_signal_leaves_no_lock_taken(caller: str, ending: signal.Signals, code: int, tmp_path: Path) -> None:
    source, root = folder(tmp_path), tmp_path / "root"
    words = [caller, str(int(ending)), "--url", str(root), "import", str(source)]
    with popen([sys.executable, "-c", SIGNALLED_AT_A_LOCK, *words], cwd=tmp_path, real=True) as process:
        _, errors = process.communicate()
    assert process.returncode == code, errors
    assert b"Traceback" not in errors
    assert changed(root) <= recorded(root)


@pytest.mark.parametrize(("ending", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_to_a_server_over_stdio_loses_no_record(
    script: str, tmp_path: Path, ending: signal.Signals, code: int
) -> None:
    root = tmp_path / "root"
    with started([script, "--url", str(root), "mcp"], cwd=tmp_path) as process:
        assert process.stdin
        assert process.stdout
        for message in [INITIALIZE, *(created(number) for number in range(20))]:
            process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
        for _ in range(11):
            assert process.stdout.readline()
        process.send_signal(ending)
        process.communicate()
        assert process.returncode == code
    assert len(changed(root)) >= 10
    assert changed(root) <= recorded(root)


@pytest.mark.parametrize("ended_by", [signal.SIGTERM, 0])
def test_a_signal_in_a_task_of_a_group_has_its_exit_code(ended_by: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(**_: object) -> None:
        monkeypatch.setattr(signals, "_ended_by", ended_by)
        raise BaseExceptionGroup("unhandled errors in a TaskGroup", [signals.Ended()])

    monkeypatch.setattr(app, "main", raising)
    monkeypatch.setattr(cli, "end_in_order", lambda: None)
    monkeypatch.setattr(signals, "_ended_by", 0)
    with warnings.catch_warnings(), pytest.raises(SystemExit if ended_by else BaseExceptionGroup) as raised:
        cli.main()
    assert getattr(raised.value, "code", 143) == 143


SIGNALLED_IN_THE_LOOP = """
import asyncio, os, signal, sys, threading
from agent_memory import cli

call_soon, main, signals = asyncio.base_events.BaseEventLoop.call_soon, threading.get_ident(), []

def signalled_before_the_task_is_woken(*given, **named):
    if threading.get_ident() == main and not signals:
        if sys._getframe(1).f_code.co_name == "_copy_future_state":
            signals.append(os.kill(os.getpid(), signal.SIGTERM))
    return call_soon(*given, **named)

asyncio.base_events.BaseEventLoop.call_soon = signalled_before_the_task_is_woken
cli.main()
"""


def test_a_signal_in_the_event_loop_ends_a_server_over_stdio(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with started([sys.executable, "-c", SIGNALLED_IN_THE_LOOP, "--url", str(root), "mcp"], cwd=tmp_path) as process:
        assert process.stdin
        for message in [INITIALIZE, *(created(number) for number in range(20))]:
            process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
        assert process.wait() == 143
    assert changed(root) <= recorded(root)


def test_a_signal_in_the_event_loop_ends_an_export_of_pages(tmp_path: Path) -> None:
    with AgentMemoryService(tmp_path / "root") as service:
        service.write_memory_file("agent", "a.md", "text")
    words = ["--url", str(tmp_path / "root"), "export", "--html", str(tmp_path / "pages")]
    with started([sys.executable, "-c", SIGNALLED_IN_THE_LOOP, *words], cwd=tmp_path) as process:
        _, errors = process.communicate()
    assert process.returncode == 143
    assert b"Traceback" not in errors


class _ClosingForEver:
    async def __aenter__(self) -> None:
        """Nothing to open."""

    async def __aexit__(self, *_: object) -> None:
        await asyncio.Event().wait()


@pytest.fixture
def in_order(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Signals end commands in this process, each of them after the one before should have done so."""
    for name, value in {"_SECONDS_TO_END": 0.0, "_ended_by": 0, "_ended_at": 0.0}.items():
        monkeypatch.setattr(signals, name, value)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signals.end_in_order()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("in_order")
def test_a_later_signal_ends_a_service_that_does_not_close() -> None:
    steps = []

    async def flow() -> None:
        later = asyncio.get_running_loop().call_later
        for seconds in (0.1, 0.2):
            later(seconds, signal.raise_signal, signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("cancelled")

    with pytest.raises(signals.Ended):
        signals.run(_ClosingForEver(), flow)  # type: ignore[arg-type]  # a service as far as this needs one
    assert steps == ["cancelled"]


SIGNALLED_IN_A_DEL = """
import signal, sys, time
from agent_memory.cli import signals

class Closed:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)

signals.end_in_order()
try:
    Closed()
    for _ in range(6000):  # a signal just before a longer sleep would wait for its end
        time.sleep(0.01)
except signals.Ended:
    sys.exit(128 + signals.ended_by())
"""


def test_a_signal_in_a_del_is_raised_later(tmp_path: Path) -> None:
    with popen([sys.executable, "-c", SIGNALLED_IN_A_DEL], cwd=tmp_path) as process:
        _, errors = process.communicate()
    assert (process.returncode, errors) == (143, b"")


def created(number: int) -> dict[str, Any]:
    arguments = {"path": f"/memories/{number}.md", "file_text": "text"}
    return {**CALL, "id": number, "params": {"name": "create", "arguments": arguments}}


def test_a_command_that_ignores_a_hangup_goes_on(script: str, tmp_path: Path) -> None:
    command = [script, "--url", str(tmp_path / "root"), "write", "a.md"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        cwd=tmp_path,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),  # as nohup
    ) as process:
        assert process.stdin
        process.stdin.write(b"x" * 200_000)  # more than a pipe holds, so the command has started to read
        process.stdin.flush()
        process.send_signal(signal.SIGHUP)
        process.communicate()
    assert process.returncode == 0


PROGRAM = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
from agent_memory import AgentMemory
from agent_memory.plugins.audit import AuditPlugin
memory = AgentMemory.open(sys.argv[1], plugins=[AuditPlugin(sys.argv[2])])
memory.write("a.md", "text")
print("written", flush=True)
for _ in range(6000):  # a signal just before a longer sleep would wait for its end
    time.sleep(0.01)
"""


def test_a_program_with_the_documented_line_loses_no_record(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "root"), str(tmp_path / "audit.jsonl")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ}) as process:
        assert process.stdout
        assert process.stdout.readline() == b"written\n"
        process.terminate()
        process.communicate()
    assert process.returncode == 143
    assert [each["path"] for each in records(tmp_path / "audit.jsonl") if "path" in each] == ["a.md"]
