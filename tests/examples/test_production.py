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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from agent_memory import agent_id
from tests.support.lambda_runtime import LambdaRuntime
from tests.support.production import PRODUCTION, Store, children_of, kill_a_worker, replace_a_worker, running, until
from tests.support.servers import S3Server, free_port

pytestmark = pytest.mark.long

CLIENTS, LINES, WORKERS = 8, 40, 4
KILL_AFTER, STOP_AFTER = 60, 240
_CMD = re.search(r"^CMD (\[.*\])$", (PRODUCTION / "Dockerfile").read_text(), re.MULTILINE)
assert _CMD
GUNICORN: list[str] = json.loads(_CMD[1])
UVICORN = ["--timeout-worker-healthcheck", "30"]  # as on the page


@pytest.fixture(params=["disk", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "disk":
        return Store((tmp_path / "store").as_uri(), {}, tmp_path)
    server: S3Server = request.getfixturevalue("ministack")
    return Store(server.new_url(), server.environment, tmp_path)


def command(program: str, port: int) -> list[str]:
    here = ["--host", "127.0.0.1", "--port", str(port)]
    if program == "uvicorn":
        return [sys.executable, "-m", "uvicorn", "app:app", *UVICORN, "--workers", str(WORKERS), *here]
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
def test_each_line_is_acknowledged_while_one_worker_and_then_all_are_restarted(program: str, store: Store) -> None:
    port = free_port()
    clients = Clients(port)
    with running(command(program, port), store.directory, store.environment()) as server:
        until(lambda: clients.answers and len(children_of(server.pid)) == WORKERS, "the server does not start")
        with ThreadPoolExecutor(CLIENTS) as pool:
            sent = [pool.submit(clients.send, number) for number in range(CLIENTS)]
            until(lambda: len(clients.acknowledged) >= KILL_AFTER, "no lines are acknowledged")
            replace_a_worker(server.pid, signal.SIGTERM)
            before = children_of(server.pid)
            server.send_signal(signal.SIGHUP)
            until(
                lambda: not before & (now := children_of(server.pid)) and len(now) == WORKERS,
                "the server does not start all workers again",
            )
            for each in sent:
                each.result()
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    assert len(clients.acknowledged) == CLIENTS * LINES
    assert sorted(store.lines()) == sorted(clients.acknowledged)
    assert "unanchored" not in store.verified()


def answer(port: int, path: str, *, body: bytes | None = None, user: bytes = b"ann") -> tuple[int, bytes]:
    """The status and the body of one request; it is an append if there is a body."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.putrequest("GET" if body is None else "POST", path)
        connection.putheader("X-Forwarded-User", user)
        if body is not None:
            connection.putheader("Idempotency-Key", uuid.uuid4().hex)
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        return response.status, response.read()


@pytest.fixture(params=["uvicorn", "gunicorn"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[int, Store]]:
    """The port of a server with a store on local disk."""
    port, store = free_port(), Store((tmp_path / "store").as_uri(), {}, tmp_path)
    with running(command(request.param, port), tmp_path, store.environment()):
        until(lambda: Clients(port).answers, "the server does not start")
        yield port, store


def test_a_line_or_a_user_that_is_not_utf_8_is_refused(disk: tuple[int, Store]) -> None:
    port, store = disk
    for body, user, name in ((b"caf\xe9", b"ann", "the line"), (b"caf\xc3\xa9", b"j\xf6rg", "X-Forwarded-User")):
        status, text = answer(port, "/memory/log.md", body=body, user=user)
        assert (status, json.loads(text)) == (422, {"kind": "invalid_content", "message": f"{name} is not UTF-8"})
    assert answer(port, "/memory/log.md", body=b"line", user=b"")[0] == 422
    assert answer(port, "/memory/log.md")[0] == 404
    assert "Traceback" not in (store.directory / "output.log").read_text()


def test_a_user_has_the_agent_that_other_programs_give_to_the_name(disk: tuple[int, Store]) -> None:
    port, store = disk
    assert answer(port, "/memory/log.md", body=b"line", user="jörg".encode())[0] == 200
    assert json.loads(store.command("--json", "agents"))["agents"] == [agent_id("jörg")]
    assert store.command("--agent", agent_id("jörg"), "audit", "show", "--actor", "jörg") != ""


@pytest.mark.parametrize("program", ["uvicorn", "gunicorn"])
def test_a_server_whose_bucket_does_not_exist_is_alive_and_not_ready(
    program: str, ministack: S3Server, tmp_path: Path
) -> None:
    port, store = free_port(), Store(ministack.new_url(), ministack.environment, tmp_path)
    with running(command(program, port), tmp_path, store.environment()):
        until(lambda: Clients(port).answers, "the server does not start")
        assert answer(port, "/memory/log.md", body=b"line")[0] == 200
        assert answer(port, "/ready") == (200, b'{"status":"ok"}')
    rows = json.loads(store.command("--json", "--agent", "ready", "audit", "show"))["records"]
    assert rows == []  # a probe leaves no record
    missing = store._replace(url="s3://no-such-bucket/memories")
    with running(command(program, port), tmp_path, missing.environment()):
        until(lambda: Clients(port).answers, "the server does not start")
        status, text = answer(port, "/ready")
        assert (status, json.loads(text)["kind"]) == (503, "read")


_WORKER = [sys.executable, "-m", "celery", "-A", "tasks", "worker"]
_LAMBDA = [sys.executable, "-c", "import lambda_function"]


@pytest.mark.parametrize("program", ["uvicorn", "gunicorn", "celery", "lambda"])
def test_a_program_without_a_configuration_does_not_start(program: str, tmp_path: Path) -> None:
    environment = Store((tmp_path / "store").as_uri(), {}, tmp_path).environment()
    del environment["AGENT_MEMORY_CONFIG"]
    environment |= {"AWS_LAMBDA_FUNCTION_NAME": "memories", "CELERY_BROKER_URL": "memory://"}
    words = {"celery": _WORKER, "lambda": _LAMBDA}.get(program) or command(program, free_port())
    with running(words, tmp_path, environment) as process:
        process.wait(60)
    assert "AGENT_MEMORY_CONFIG is not set: there would be no audit log" in (tmp_path / "output.log").read_text()


def test_the_configuration_masks_credentials_and_sends_checkpoints(tmp_path: Path) -> None:
    port, store = free_port(), Store((tmp_path / "store").as_uri(), {}, tmp_path)
    text = (PRODUCTION / "agent-memory.toml").read_text()
    for given, here in (("s3://my-bucket/memories", store.url), ("/var/lib/agent-memory-checkpoints", str(tmp_path))):
        assert text.count(given) == 1
        text = text.replace(given, here)
    (tmp_path / "own.toml").write_text(text)
    environment = {**store.environment(), "AGENT_MEMORY_CONFIG": str(tmp_path / "own.toml"), "AGENT_MEMORY_PLUGINS": ""}
    with running(command("gunicorn", port), tmp_path, environment) as server:
        until(lambda: Clients(port).answers, "the server does not start")
        assert answer(port, "/memory/log.md", body=b"AKIAIOSFODNN7EXAMPLF")[0] == 200
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    assert store.lines() == ["[redacted: AWS Access Key]"]
    assert "unanchored" not in store.command("audit", "verify", "--checkpoints", str(tmp_path / "heads.jsonl"))


def test_the_commands_to_erase_a_user_and_of_every_day_succeed(tmp_path: Path) -> None:
    store = Store((tmp_path / "store").as_uri(), {}, tmp_path)
    for user in ("jörg", "ann"):
        store.command("--agent", agent_id(user), "append", "log.md", "line")
    page = (PRODUCTION.parents[1] / "docs" / "production.md").read_text()
    (erase,) = re.findall(r"```sh\n(id=.*?)```", page, re.DOTALL)
    (prune,) = re.findall(r"\| clean \| `(.+?)`", page)
    (verify,) = re.findall(r"\| verify \| `(.+?)`", page)
    (tmp_path / "heads.jsonl").touch()
    script = f"{prune} && {verify}\n{erase}\n[ $? = 3 ] && agent-memory agents"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**store.environment(), "AGENT_MEMORY_CONFIG": "", "AGENT_MEMORY_PLUGINS": "", "PATH": path}
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "ann"


def test_gunicorn_listens_on_other_interfaces_only_in_a_container(tmp_path: Path) -> None:
    image = re.search(r"GUNICORN_CMD_ARGS=(\S+)", (PRODUCTION / "Dockerfile").read_text())
    assert image
    for arguments, bind in (("", "127.0.0.1:8000"), (image[1], "0.0.0.0:8000")):
        words = [sys.executable, "-m", GUNICORN[0], "--print-config", *GUNICORN[1:]]
        with running(words, tmp_path, {**os.environ, "GUNICORN_CMD_ARGS": arguments}) as process:
            assert process.wait(60) == 0
        printed = (tmp_path / "output.log").read_text()
        assert re.findall(r"^bind +=\s*(.+)$", printed, re.MULTILINE) == [f"['{bind}']"]


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
    mcp_server = PRODUCTION.parent / "mcp-server"
    succeeds(str(Path(sys.executable).parent / "hadolint"), str(mcp_server / "Dockerfile"))
    unit = (mcp_server / "agent-memory-mcp.service").read_text()
    command = str(Path(sys.executable).parent / "agent-memory")
    (tmp_path / "agent-memory-mcp.service").write_text(unit.replace("/opt/agent-memory/venv/bin/agent-memory", command))
    succeeds("systemd-analyze", "verify", str(tmp_path / "agent-memory-mcp.service"))


def test_each_timeout_is_shorter_than_the_next_one() -> None:
    found = {
        "app.py": r"\nSECONDS = (\d+)",
        "gunicorn.conf.py": r"graceful_timeout = (\d+)",
        "agent-memory.service": r"TimeoutStopSec=(\d+)",
        "kubernetes.yaml": r"terminationGracePeriodSeconds: (\d+)",
    }
    text = {name: (PRODUCTION / name).read_text() for name in found}
    call, server, unit, pod = (int(re.findall(pattern, text[name])[0]) for name, pattern in found.items())
    (waits,) = re.findall(r"sleep: {seconds: (\d+)}", text["kubernetes.yaml"])
    (ready,) = re.findall(r"READY_SECONDS = (\d+)", text["app.py"])
    (probe,) = re.findall(r"timeoutSeconds: (\d+)", text["kubernetes.yaml"])
    assert int(ready) < int(probe)
    assert call < server < min(unit, pod - int(waits))
