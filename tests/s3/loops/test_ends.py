"""An event loop that ends amid obstore's requests on it is let go, and the process works on."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.servers import S3Server

ENDS = """
import asyncio, gc, json, logging, sys, time, weakref
from agent_memory import AgentMemory, AsyncAgentMemory
from agent_memory_obstore import _home
logging.basicConfig(level=logging.ERROR)  # interrupted appends are warnings
memory = AsyncAgentMemory.open(sys.argv[1], storage_options=json.loads(sys.argv[2]))
same = AgentMemory.open(memory._tree.backend)

def quiet(loop, context):  # of answers that came as the loop ended, as asyncio itself says it
    if context["message"] != "Future exception was never retrieved":
        loop.default_exception_handler(context)

def unraisable(error):  # of coroutines that Python clears away from the inside out: none of our code runs then
    if str(error.exc_value) != "coroutine already executing":
        sys.__unraisablehook__(error)

sys.unraisablehook = unraisable

async def begin():
    asyncio.get_running_loop().set_exception_handler(quiet)
    await memory.write("a.md", "x")
    assert _home.HOME.is_here()
    tasks = [asyncio.ensure_future(memory.append(f"{number}.md", "y")) for number in range(20)]
    await asyncio.sleep(float(sys.argv[4]))
    for task in tasks:
        task._log_destroy_pending = False  # what asyncio itself says of who leaves them
    return weakref.ref(asyncio.get_running_loop())

def cancelled():
    return asyncio.run(begin())

def closed():
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(begin())
    finally:
        loop.close()

def dropped():
    return asyncio.new_event_loop().run_until_complete(begin())

for _ in range(3):
    gone = globals()[sys.argv[3]]()
    for _ in range(600):  # the answers come, or are given up after 15 seconds
        sys.last_value = sys.last_traceback = sys.last_exc = None  # Python keeps an error that was printed
        same.append("b.md", "z")  # obstore lets go of what was cancelled when it is called again
        gc.collect()
        if gone() is None:
            break
        time.sleep(0.05)
    assert gone() is None
    assert asyncio.run(memory.read("a.md")) == "x"
"""


@pytest.mark.parametrize(
    "how",
    ["cancelled", "closed", pytest.param("dropped", marks=pytest.mark.long)],  # under load one in some hundred stays
)
@pytest.mark.parametrize("after", [0.0, 0.002, 0.01, 0.03])
def test_a_loop_that_ends_amid_requests_is_let_go(server: S3Server, how: str, after: float) -> None:
    options = json.dumps(server.options)
    command = [sys.executable, "-W", "ignore", "-c", ENDS, server.new_url(), options, how, str(after)]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ}, timeout=240)
    assert ended.returncode == 0, ended.stderr
    if how == "closed":  # without cancelling its tasks: obstore prints of each answer that it comes too late
        assert "agent_memory" not in ended.stderr
    else:
        assert ended.stderr == ""
