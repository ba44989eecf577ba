"""The programs of `docs/production.md`, started as an operator starts them, with a worker killed in the middle."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.lambda_runtime import LambdaRuntime
from tests.support.production import PRODUCTION, Store, children_of, kill_a_worker, running, until
from tests.support.servers import S3Server, free_port

pytestmark = pytest.mark.long

CLIENTS, LINES, WORKERS = 8, 40, 4
KILL_AFTER, STOP_AFTER = 60, 240
_CMD = re.search(r"^CMD (\[.*\])$", (PRODUCTION / "Dockerfile").read_text(), re.MULTILINE)
assert _CMD
GUNICORN: list[str] = json.loads(_CMD[1])


@pytest.fixture(params=["disk", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "disk":
        return Store((tmp_path / "store").as_uri(), {}, tmp_path)
    server: S3Server = request.getfixturevalue("ministack")
    return Store(server.new_url(), server.environment, tmp_path)


def command(program: str, port: int) -> list[str]:
    here = ["--host", "127.0.0.1", "--port", str(port)]
    if program == "uvicorn":
        return [sys.executable, "-m", "uvicorn", "app:app", "--workers", str(WORKERS), *here]
    return [sys.executable, "-m", *GUNICORN[:-1], "--bind", f"127.0.0.1:{port}", GUNICORN[-1]]


class Clients:
    """Clients that send lines to one file at once; each repeats a request without an answer, with the same key."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.acknowledged: set[str] = set()
        self.stopping = threading.Event()

    @property
    def answers(self) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self._port}/health", timeout=5).close()
        except OSError:
            return False
        return True

    def send(self, client: int, lines: int = LINES) -> None:
        for number in range(lines):
            self._send(f"line {client}-{number}", uuid.uuid4().hex)

    def _send(self, line: str, key: str) -> None:
        headers = {"X-Forwarded-User": "ann", "Idempotency-Key": key}
        url = f"http://127.0.0.1:{self._port}/memory/log.md"
        while True:
            try:
                with urllib.request.urlopen(urllib.request.Request(url, line.encode(), headers), timeout=60):
                    self.acknowledged.add(line)
                    return
            except urllib.error.HTTPError as error:
                with error:
                    kind = json.load(error)["kind"]
                assert kind in ("outcome_unknown", "conflict"), kind
                if kind == "outcome_unknown":
                    return  # the line is in the file or not, and no repetition changes that
            except (OSError, http.client.HTTPException):
                if self.stopping.is_set():
                    return


@pytest.mark.parametrize("program", ["uvicorn", "gunicorn"])
def test_no_acknowledged_line_is_lost_when_a_worker_is_killed_and_the_server_stopped(
    program: str, store: Store
) -> None:
    port = free_port()
    clients = Clients(port)
    with running(command(program, port), store.directory, store.environment()) as server:
        until(lambda: clients.answers and len(children_of(server.pid)) == WORKERS, "the server does not start")
        with ThreadPoolExecutor(CLIENTS) as pool:
            sent = [pool.submit(clients.send, number) for number in range(CLIENTS)]
            until(lambda: len(clients.acknowledged) >= KILL_AFTER, "no lines are acknowledged")
            kill_a_worker(server.pid)
            until(lambda: len(clients.acknowledged) >= STOP_AFTER, "no lines are acknowledged after the kill")
            clients.stopping.set()
            server.send_signal(signal.SIGTERM)
            for each in sent:
                each.result()
        assert server.wait(60) == 0
    written = Counter(store.lines())
    assert clients.acknowledged <= written.keys()
    assert set(written.values()) == {1}
    assert len(store.recorded()) >= len(clients.acknowledged)


@pytest.mark.parametrize("program", ["uvicorn", "gunicorn"])
def test_the_workers_write_waiting_audit_records_when_the_server_is_stopped(program: str, store: Store) -> None:
    port = free_port()
    clients = Clients(port)
    with running(command(program, port), store.directory, store.environment(required=False)) as server:
        until(lambda: clients.answers, "the server does not start")
        clients.send(0, lines=9)
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    assert len(store.recorded()) == len(store.lines()) == 9
    assert "unanchored" not in store.verified()


_SENDER = """\
import json
from agent_memory import OutcomeUnknownError
from tasks import app, remember
folder = {folder!r}
app.conf.update(
    broker_url="filesystem://", result_backend=f"file://{{folder}}/results",
    broker_transport_options={{"data_folder_in": f"{{folder}}/queue", "data_folder_out": f"{{folder}}/queue"}},
)
if __name__ == "__main__":
    sent = {{f"line {{number}}": remember.delay("ann", "log.md", f"line {{number}}") for number in range({lines})}}
    for each in sent.values():
        assert isinstance(each.get(timeout=120, propagate=False), (int, OutcomeUnknownError))
    print(json.dumps([line for line, each in sent.items() if each.successful()]))
"""


@pytest.mark.parametrize("killed", [True, False])
def test_no_finished_task_is_lost_when_a_process_of_celery_is_killed_and_the_worker_stopped(
    killed: bool, store: Store
) -> None:
    environment = store.environment(required=killed)
    for name in ("queue", "results", "app"):
        (store.directory / name).mkdir()
    (store.directory / "app" / "sender.py").write_text(
        _SENDER.format(folder=str(store.directory), lines=CLIENTS * LINES)
    )
    command = [sys.executable, "-m", "celery", "-A", "sender", "worker", "--concurrency", str(WORKERS)]
    with running(command, store.directory, environment) as worker:
        sending = [sys.executable, "sender.py"]
        with subprocess.Popen(sending, cwd=store.directory / "app", env=environment, stdout=subprocess.PIPE) as sender:
            if killed:
                until(lambda: len([*(store.directory / "results").iterdir()]) >= KILL_AFTER, "no task is done")
                kill_a_worker(worker.pid)
            output, _ = sender.communicate(timeout=300)
        assert sender.returncode == 0
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    done, written = json.loads(output), Counter(store.lines())
    assert len(done) >= CLIENTS * LINES - killed
    assert set(done) <= written.keys()
    assert set(written.values()) == {1}
    assert len(store.recorded()) >= len(done)
    assert killed or "unanchored" not in store.verified()


def test_a_lambda_function_that_is_frozen_and_killed_appends_each_event_once(store: Store) -> None:
    function = {"AWS_LAMBDA_FUNCTION_NAME": "memories"}
    with LambdaRuntime() as runtime:
        environment = {**store.environment(), **function, "AWS_LAMBDA_RUNTIME_API": runtime.address}
        start = [sys.executable, "-m", "awslambdaric", "lambda_function.handler"]
        with running(start, store.directory, environment) as process:
            for number in range(20):
                event = {"user": "ann", "path": "log.md", "line": f"line {number}"}
                first = runtime.invoke(event, f"request-{number}")
                os.kill(process.pid, signal.SIGSTOP)
                until(lambda: Path(f"/proc/{process.pid}/stat").read_text().split()[2] == "T", "it is not frozen")
                os.kill(process.pid, signal.SIGCONT)
                assert runtime.invoke(event, f"request-{number}") == first
    assert store.lines() == [f"line {number}" for number in range(20)]
    assert len({record["writer"] for record in store.recorded()}) == 1  # the service was opened once


def succeeds(*words: str) -> None:
    done = subprocess.run(words, cwd=PRODUCTION, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_manifests_are_valid(tmp_path: Path) -> None:
    succeeds(sys.executable, "-m", "kubernetes_validate", "--strict", "kubernetes.yaml")
    succeeds(str(Path(sys.executable).parent / "hadolint"), "Dockerfile")
    unit = (PRODUCTION / "agent-memory.service").read_text()
    (tmp_path / "agent-memory.service").write_text(unit.replace("/opt/agent-memory/venv/bin/gunicorn", sys.executable))
    succeeds("systemd-analyze", "verify", str(tmp_path / "agent-memory.service"))
    assert f"/{' '.join(GUNICORN)}\n" in unit


def test_each_timeout_is_shorter_than_the_next_one() -> None:
    found = {
        "app.py": r"SECONDS = (\d+)",
        "gunicorn.conf.py": r"graceful_timeout = (\d+)",
        "agent-memory.service": r"TimeoutStopSec=(\d+)",
        "kubernetes.yaml": r"terminationGracePeriodSeconds: (\d+)",
    }
    text = {name: (PRODUCTION / name).read_text() for name in found}
    call, server, unit, pod = (int(re.findall(pattern, text[name])[0]) for name, pattern in found.items())
    (waits,) = re.findall(r"sleep: {seconds: (\d+)}", text["kubernetes.yaml"])
    assert call < server < min(unit, pod - int(waits))
