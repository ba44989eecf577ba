"""Sessions of a shell in which `agent-memory` starts without the time of an interpreter's start.

In the short run a small program, first in the PATH, passes the command to the fork server of `tests.support.forked`.
With ``--long`` the shell finds the installed script.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support import sizes
from tests.support.forked import modules_of, requests

_SECONDS = 120
_ROOT = Path(__file__).parents[2]
_SCRIPT = Path(sys.executable).parent / "agent-memory"
_LAUNCHER = """\
#!{python} -IS
import os, socket, sys
sys.path.insert(0, {root!r})
from tests.support.fork_server import Job, reported, send
variables = dict(os.environ)
variables["PATH"] = variables["PATH"].partition(os.pathsep)[2]  # without this program
job = Job({script!r}, {text!r}, sys.argv[1:], os.getcwd(), variables, {modules!r}, [0, 1, 2])
answers = send(socket.socket(fileno={requests}), job, [0, 1, 2])
reported(answers)  # the number of the process
code = reported(answers)
os.kill(os.getpid(), -code) if code < 0 else os._exit(code)
"""


def output_of(script: str, environment: Mapping[str, str], programs: Path) -> str:
    """Run a script of bash to its end, and return what it prints to stdout and stderr.

    Args:
        script: its text.
        environment: its variables; the programs of this interpreter come first in its PATH.
        programs: an empty directory for the program of the short run.
    """
    found = [str(_SCRIPT.parent), environment["PATH"]]
    if not sizes.is_long:
        found.insert(0, str(_made(programs)))
    return subprocess.run(
        ["bash", "-c", script], env={**environment, "PATH": os.pathsep.join(found)}, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_SECONDS, check=True,
        pass_fds=() if sizes.is_long else (requests(),),
    ).stdout  # fmt: skip


def _made(programs: Path) -> Path:
    launcher = programs / "agent-memory"
    text = _LAUNCHER.format(
        python=sys.executable, root=str(_ROOT), requests=requests(), script=str(_SCRIPT), text=_SCRIPT.read_text(),
        modules=modules_of(["mcp", "s3://"]),
    )  # fmt: skip
    launcher.write_text(text)
    launcher.chmod(0o755)
    return programs
