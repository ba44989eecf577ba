"""Fixtures for the project's tests and for the examples in the docs; not shipped.

There are five S3 servers, each started by the first test that needs it: moto in server mode (functional tests; one
request at a time, because it is not atomic), ministack (fast and atomic, for all races), SeaweedFS (a real distributed
store, for the whole contract), in long runs Ceph RGW (which keeps only some preconditions), and rclone (not safe for
several writers). A server that does not start fails the run with its log.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, settings

from agent_memory.testing import FunctionalContract
from tests.faults.building import NO_COMPILER
from tests.support import sizes
from tests.support.ceph import cluster
from tests.support.leaving_out import LongTests
from tests.support.places import Place, in_a_versioned_bucket, on_disk
from tests.support.progress import report_quietly
from tests.support.scopes import Scheduling
from tests.support.servers import KEY, ROOTS, SECRET, Root, S3Server, free_port

pytest_plugins = ["pytester", "agent_memory.testing.pytest_plugin"]

_SECONDS_TO_START = 60
_SLOW = (
    "tests/audit/test_interrupts.py",
    "tests/audit/test_odd_facts.py",
    "tests/audit/test_processes.py",
    "tests/backends/",
    "tests/cli/",
    "tests/conversation/test_hostile_history.py",
    "tests/core/versions/test_odd_facts.py",
    "tests/examples/",
    "tests/faults/",
    "tests/integrations/",
    "tests/mcp_server/",
    "tests/object_store/",
    "tests/other_filesystems/",
    "tests/plugins/test_redaction_cost.py",
    "tests/runtime/",
    "tests/test_distribution.py",
    "tests/test_docs.py",
    "tests/test_uncopied.py",
    "tests/testing/",
    "tests/tools/test_bounds.py",
    "tests/tools/test_hostile_arguments.py",
    "tests/tools/test_kept_names.py",
    "tests/web/",
)
"""The files and folders that --fast leaves out, besides the tests that need a server."""
_ECOSYSTEM = (
    "tests/backends/obstore/test_azure.py",
    "tests/conversation/test_model_apis.py",
    "tests/examples/test_production.py",
    "tests/integrations/test_dataframes.py",
    "tests/mcp_server/test_claude_code.py",
    "tests/other_filesystems/",
)
"""The files and folders that need the extra `ecosystem`; single tests of other files have the marker `ecosystem`."""
_is_fast = False
_stderr = 2


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run the long tests")
    parser.addoption("--ecosystem", action="store_true", help="run only the tests that need the extra `ecosystem`")
    parser.addoption("--fast", action="store_true", help="run only quick tests that start no server: scripts/check")
    parser.addoption(
        "--s3-faults-page", metavar="FILE", help="write what the run of tests/object_store found to a page"
    )
    parser.addoption("--cli-page", metavar="FILE", help="write what the command line said to wrong input to a page")
    parser.addoption("--web-pictures", metavar="DIR", type=Path, help="write the pictures of docs/web.md, in a browser")
    parser.addoption("--faults-page", metavar="FILE", help="write what the run of tests/faults found to a page")


@pytest.hookimpl(tryfirst=True)  # before pytest-timeout reads it
def pytest_cmdline_main(config: pytest.Config) -> None:
    if config.getoption("--long") and config.getoption("timeout", None) is None:
        config.option.timeout = 3600


@pytest.hookimpl(trylast=True)  # after the terminal's reporter
def pytest_configure(config: pytest.Config) -> None:
    global _is_fast, _stderr
    _is_fast = config.getoption("--fast")
    _stderr = os.dup(2)  # before pytest captures it
    report_quietly(config)
    sizes.is_long = config.getoption("--long")
    most = 100 if sizes.is_long else 25
    settings.register_profile(
        "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=most
    )
    settings.load_profile("any machine")
    if not sizes.is_long:
        FunctionalContract.rounds, FunctionalContract.model_examples = 20, 10
        config.pluginmanager.register(LongTests())


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    return Scheduling(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    path = collection_path.relative_to(config.rootpath).as_posix()
    left_out: tuple[str, ...] = _SLOW if _is_fast else ()
    if not config.getoption("--ecosystem"):
        left_out += _ECOSYSTEM
    return True if f"{path}/".startswith(left_out) or path in left_out else None


@pytest.hookimpl(trylast=True)  # after -k
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = {item for item in items if _is_of_ecosystem(item) != config.getoption("--ecosystem")}
    if not config.getoption("--long"):
        left_out |= {item for item in items if item.get_closest_marker("long")}
    config.hook.pytest_deselected(items=[*left_out])
    items[:] = [item for item in items if item not in left_out]


def _is_of_ecosystem(item: pytest.Item) -> bool:
    return item.nodeid.startswith(_ECOSYSTEM) or item.get_closest_marker("ecosystem") is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """End the process, with the stacks of all threads, if pytest-timeout cannot end a test.

    Its exception waits for ever where a pool of threads or an event loop, on its way out, waits for what hangs.
    """
    seconds = float(item.config.getoption("timeout", None) or item.config.getini("timeout"))
    faulthandler.dump_traceback_later(1.2 * seconds, file=_stderr, exit=True)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped: list[pytest.TestReport] = terminalreporter.stats.get("skipped", [])
    if count := sum(NO_COMPILER in str(report.longrepr) for report in skipped):
        terminalreporter.write_line(f"left out: {count} tests of faults, which {NO_COMPILER.replace('needs', 'need')}")


@pytest.fixture(params=ROOTS)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Root:
    """An empty root on every backend; see `tests.support.servers.ROOTS`."""
    name: str = request.param
    if name == "local":
        return Root(str(tmp_path / "root"), {})
    if name == "memory":
        return Root(f"memory://{tmp_path.name}-{os.getpid()}", {})
    server: S3Server = request.getfixturevalue(name)
    return Root(server.new_url(), server.options)


@pytest.fixture
def large_root(request: pytest.FixtureRequest, root: Root) -> Root:
    """A root for files of any size: on servers that complete uploads in two steps, for one process at a time."""
    if request.node.callspec.params["root"] not in ("moto", "seaweedfs"):
        return root
    return Root(root.url, {**root.options, "allow_single_writer": True})


@pytest.fixture(params=["on_disk", "in_a_versioned_bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A root with its audit log, on disk and on S3, with every stored byte."""
    if request.param == "on_disk":
        return on_disk(tmp_path / "root")
    return in_a_versioned_bucket(request.getfixturevalue("ministack"))


@pytest.fixture
def default_hangup() -> Iterator[None]:
    """Programs that a test starts do not inherit an ignored SIGHUP, as from ``nohup pytest``."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(scope="session", autouse=True)
def _aws_region() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel, built from this checkout."""
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(directory)]
    subprocess.run(command, cwd=Path(__file__).parent, check=True, capture_output=True)
    return next(directory.glob("*.whl"))


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    program = Path(__file__).parent / "tests/support/moto_server.py"
    command = [sys.executable, str(program), "-H", "127.0.0.1", "-p", "{port}"]
    yield from _serving("moto", command, tmp_path_factory.mktemp("moto"))


@pytest.fixture(scope="session")
def ministack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    environment = {"GATEWAY_PORT": "{port}", "BIND_HOST": "127.0.0.1"}
    yield from _serving("ministack", [_script("ministack")], tmp_path_factory.mktemp("ministack"), environment)


@pytest.fixture
def stand_in(ministack: S3Server) -> Iterator[Callable[[str], S3Server]]:
    """Start one of `tests.object_store.stand_ins.STAND_INS`, by its name, until the test ends."""
    from tests.object_store.stand_ins import standing_in

    with ExitStack() as running:
        yield lambda name: S3Server(running.enter_context(standing_in(ministack, name)).endpoint)


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    directory = tmp_path_factory.mktemp("seaweedfs")
    identity = {
        "name": "test",
        "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (directory / "s3.json").write_text(json.dumps({"identities": [identity]}))
    ports = ["s3.port", "s3.port.grpc", "master.port", "master.port.grpc", "volume.port", "volume.port.grpc",
             "filer.port", "filer.port.grpc", "admin.port", "admin.port.grpc"]  # fmt: skip
    options = [
        "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3.autoCreateBucket=false", "-webdav=false", "-admin.ui=false",
        "-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false", "-master.volumeSizeLimitMB=64",
        "-s3.iam.readOnly=false",  # the policy tests create users
        f"-s3.config={directory / 's3.json'}", f"-dir={directory}", *(f"-{port}={{port}}" for port in ports),
    ]  # fmt: skip
    command = [_script("weed"), "mini", *options]
    yield from _serving("seaweedfs", command, directory)


@pytest.fixture(scope="session")
def ceph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Ceph RGW: it accepts If-Match of a PUT only without the ETag's quotes, and ignores it everywhere else."""
    directory = tmp_path_factory.mktemp("ceph")
    with ExitStack() as running:
        try:
            command = running.enter_context(cluster(directory))
        except RuntimeError as error:
            _give_up(f"ceph does not start: {error}")
        yield from _serving("radosgw", command, directory)


@pytest.fixture(scope="session")
def rclone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server that accepts conditional requests and ignores their conditions."""
    directory = tmp_path_factory.mktemp("rclone")
    (directory / "kept").mkdir()
    options = ["--addr", "127.0.0.1:{port}", "--auth-key", f"{KEY},{SECRET}", "--vfs-cache-mode", "off"]
    command = [_script("rclone"), "serve", "s3", *options, "--config", str(directory / "none"), str(directory / "kept")]
    yield from _serving("rclone", command, directory)


@pytest.fixture(scope="session")
def https(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[S3Server], S3Server]]:
    """Return a server behind a front that speaks https; clients must trust its certificate."""
    from tests.support.tls import certificate, tls_front  # needs `cryptography`, which few environments have

    directory = tmp_path_factory.mktemp("tls")
    context = certificate(directory)
    with ExitStack() as fronts:

        @cache
        def endpoint(upstream: str) -> str:
            return fronts.enter_context(tls_front(upstream, context))

        yield lambda server: server.by_https(endpoint(server.endpoint), directory / "cert.pem")


def _serving(
    name: str, command: list[str], directory: Path, environment: dict[str, str] | None = None
) -> Iterator[S3Server]:
    """Run a server until the session ends; each ``{port}`` in its command is a free port, the first one for S3."""
    if _is_fast:
        pytest.skip(f"{name} is started without --fast")
    ports = [free_port() for part in (*command, *(environment or {}).values()) if "{port}" in part]
    numbers = iter(ports)

    def filled(part: str) -> str:
        return part.replace("{port}", str(next(numbers))) if "{port}" in part else part

    command = [filled(part) for part in command]
    variables = {**os.environ, **{key: filled(value) for key, value in (environment or {}).items()}}
    log = directory / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=directory, env=variables, stdout=output, stderr=subprocess.STDOUT)
    try:
        endpoint = f"http://127.0.0.1:{ports[0]}"
        _until(lambda: _answers(endpoint, process), f"{name} does not start", log)
        servers: list[S3Server] = []
        _until(lambda: _made(servers, endpoint), f"{name} makes no bucket", log)
        yield servers[0]
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _give_up(fault: str) -> NoReturn:
    """End the run and write the reason to standard error, because it does not reach the main process otherwise."""
    os.write(_stderr, f"\n{fault}\n".encode())
    pytest.exit(fault, returncode=1)


def _until(ready: Callable[[], bool], fault: str, log: Path) -> None:
    deadline = time.monotonic() + _SECONDS_TO_START
    while not ready():
        if time.monotonic() > deadline:
            _give_up(f"{fault}; its log:\n{log.read_text(errors='replace')[-5000:]}")
        time.sleep(0.05)


def _answers(endpoint: str, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, f"the server ended with {process.returncode}"
    try:
        urllib.request.urlopen(endpoint, timeout=1).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def _made(servers: list[S3Server], endpoint: str) -> bool:
    try:
        servers.append(S3Server(endpoint))
    except Exception:  # noqa: BLE001 - a store may listen before it can allocate
        return False
    return True


def _script(name: str) -> str:
    return shutil.which(name, path=sysconfig.get_path("scripts")) or name
