"""gevent: an object store is refused when it is opened, with advice that works; local disk works."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.sizes import also

pytestmark = pytest.mark.skipif(find_spec("gevent") is None, reason="gevent is not installed")

_PROGRAM = """
import sys
from gevent import monkey
monkey.patch_all({patches})
from agent_memory import AgentMemory, AsyncAgentMemory, UnsupportedOperationError
for memory in (AgentMemory, AsyncAgentMemory):
    try:
        memory.open(sys.argv[1], storage_options={options})
    except UnsupportedOperationError as error:
        print(error)
"""
_ON_DISK = """
from gevent import monkey
monkey.patch_all()
import sys
from threading import Thread
from agent_memory import AgentMemory
memory = AgentMemory.open(sys.argv[1])
appends = [Thread(target=memory.append, args=("log.md", "x"), kwargs={"separator": "\\n"}) for _ in range(20)]
for append in appends: append.start()
for append in appends: append.join()
print(len(memory.read("log.md").split()))
"""


def printed(program: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "patches", ["", *also(["thread=False", "select=False", "thread=False, select=False, queue=False"])]
)
@pytest.mark.parametrize(("url", "options"), [
    ("s3://bucket", {}), pytest.param("s3://bucket", {"engine": "obstore"}, marks=pytest.mark.long),
    pytest.param("az://container", {"account_name": "a"}, marks=pytest.mark.ecosystem),
])  # fmt: skip
def test_a_storage_with_an_io_loop_is_refused_with_advice(url: str, options: dict[str, str], patches: str) -> None:
    told = printed(_PROGRAM.format(patches=patches, options=options), url)
    assert len(told) == 2
    assert all("gevent replaced modules of Python" in line for line in told)
    assert all("in a process without these patches" in line for line in told)


@pytest.mark.long
def test_an_object_store_opens_if_gevent_replaced_nothing_that_it_needs() -> None:
    patches = "thread=False, select=False, socket=False, queue=False"
    assert printed(_PROGRAM.format(patches=patches, options={}), "s3://bucket") == []


@pytest.mark.long
def test_the_sync_classes_work_on_local_disk_with_all_patches(tmp_path: Path) -> None:
    assert printed(_ON_DISK, str(tmp_path / "root")) == ["20"]
