"""A Ceph cluster of one monitor and one OSD in memory, below one directory and only on the loopback interface.

It needs neither root nor a block device nor a manager. `conftest` starts its S3 gateway, ``radosgw``, like the other
servers.
"""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.servers import KEY, SECRET, free_port

_SECONDS = 120
_CONFIGURATION = """\
[global]
fsid = {fsid}
mon_host = v1:127.0.0.1:{port}
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_ipv6 = false
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
run_dir = {directory}
admin_socket =
keyring = {directory}/keyring
log_file = {directory}/$name.log
mon_data = {directory}/mon
osd_data = {directory}/osd
osd_objectstore = memstore
memstore_device_bytes = 4294967296
# Without authentication an OSD asks for its place before it knows the cluster, and is refused: it is given one.
osd_crush_update_on_start = false
osd_class_update_on_start = false
osd_crush_chooseleaf_type = 0
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 1
osd_pool_default_pgp_num = 1
osd_pool_default_pg_autoscale_mode = off
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 1000
mon_data_avail_crit = 1
"""


@contextmanager
def cluster(directory: Path) -> Iterator[list[str]]:
    """Run a cluster with an S3 user; yields the command of a gateway whose port is ``{port}``.

    Raises:
        RuntimeError: a step failed; the text is the step's output and the ends of the daemons' logs.
    """
    fsid, port, disk = str(uuid.uuid4()), free_port(), str(uuid.uuid4())
    configuration = directory / "ceph.conf"
    configuration.write_text(_CONFIGURATION.format(fsid=fsid, port=port, directory=directory))
    (directory / "keyring").touch()
    for data in ("mon", "osd"):
        (directory / data).mkdir()
    there = ["-c", str(configuration)]
    monitor = ["ceph-mon", *there, "-i", "a"]
    osd = ["ceph-osd", *there, "-i", "0"]
    monmap = str(directory / "monmap")
    with ExitStack() as running:

        def run(*command: str) -> None:
            _run(directory, *command)

        run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v1:127.0.0.1:{port}]", monmap)
        run(*monitor, "--mkfs", "--monmap", monmap)
        running.enter_context(_daemon(directory, *monitor, "-f"))
        # The monitor refuses commands during its first election, and of a client that does not know the cluster yet.
        _retry(lambda: run("ceph", *there, "osd", "new", disk))
        run(*osd, "--mkfs", "--osd-uuid", disk)
        _retry(lambda: run("ceph", *there, "osd", "crush", "add", "osd.0", "1.0", "root=default", "host=host"))
        running.enter_context(_daemon(directory, *osd, "-f"))
        user = ["--uid", "test", "--display-name", "test", "--access-key", KEY, "--secret-key", SECRET]
        run("radosgw-admin", *there, "user", "create", *user)
        frontend = "--rgw-frontends=beast endpoint=127.0.0.1:{port}"
        yield ["radosgw", *there, "-n", "client.rgw", "-f", frontend]


def _run(directory: Path, *command: str) -> None:
    try:
        done = subprocess.run(
            command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_SECONDS, check=False
        )
    except FileNotFoundError:
        raise RuntimeError(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{command[0]} does not end: {_told(error.stdout)}{_logs(directory)}") from None
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {_told(done.stdout)}{_logs(directory)}")


def _retry(step: Callable[[], None]) -> None:
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            return step()
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


@contextmanager
def _daemon(directory: Path, *command: str) -> Iterator[None]:
    with (directory / f"{command[0]}.out").open("wb") as output:
        process = subprocess.Popen(command, cwd=directory, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _told(output: bytes | None) -> str:
    return (output or b"").decode(errors="replace")[-2000:]


def _logs(directory: Path) -> str:
    files = [*directory.glob("*.out"), *directory.glob("*.log")]
    return "".join(f"\n{each.name}:\n{each.read_text(errors='replace')[-1500:]}" for each in files)
