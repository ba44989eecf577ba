"""Start Python programs as processes: in the short run without the time of an interpreter's start.

See `tests.support.fork_server`. With ``--long``, and for environment variables that only a start reads, each process
is a new interpreter.
"""

from __future__ import annotations

import atexit
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from tests.support import fork_server, sizes
from tests.support.fork_server import Job

_AT_A_START: Final = ("PYTHON", "LANG", "LC_", "LD_", "MALLOC_", "TZ")
"""The beginnings of the environment variables that only the start of a process or of its interpreter reads."""
_ALWAYS: Final = (
    "agent_memory.cli.app", "agent_memory_fsspec", "agent_memory_local", "agent_memory_memory", "agent_memory_obstore",
    "agent_memory_s3", "rich.console",
)  # fmt: skip
_MODULES: Final = {"mcp": "agent_memory.mcp_server", "s3://": "aiobotocore.session"}
"""More modules to import before a fork, for a text in a word of the command."""

Stream = int | IO[bytes]


class Process(subprocess.Popen[bytes]):
    """A process that is killed if its ``with`` block raises: `subprocess.Popen` would wait for it for ever."""

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, *raised)  # type: ignore[arg-type]  # the other two


def popen(
    command: Sequence[str | bytes],
    *,
    stdin: Stream = subprocess.PIPE,
    stdout: Stream = subprocess.PIPE,
    stderr: Stream = subprocess.PIPE,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    closed: Sequence[int] = (),
    real: bool = False,
) -> Process:
    """Start a Python script, or ``[sys.executable, "-c", program, ...]``, as `subprocess.Popen` does.

    SIGINT, SIGTERM and SIGHUP have their default effect in the process, even if the tests ignore them.

    Args:
        command: the words of the command.
        stdin: a descriptor, a file, or ``PIPE``; so are the next two.
        stdout: see ``stdin``.
        stderr: see ``stdin``.
        cwd: the directory; by default the current one.
        env: the environment variables; by default those of this process.
        closed: the numbers of the standard descriptors that are closed in the process.
        real: start an interpreter also in the short run.
    """
    environment = dict(os.environ if env is None else env)
    if real or sizes.is_long or read_at_a_start(environment) != _server().variables:
        return Process(
            command, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, env=env, preexec_fn=partial(_prepare, closed)
        )
    words = [os.fsdecode(word) for word in command]
    if words[:2] == [sys.executable, "-c"]:
        name, text, args = "-c", words[2], words[3:]
    else:
        name, text, args = words[0], Path(words[0]).read_text(), words[1:]
    open_ones = [number for number in range(3) if number not in closed]
    job = Job(name, text, args, str(cwd or Path.cwd()), environment, modules_of(words), open_ones)
    return Forked(_server(), job, (stdin, stdout, stderr))


def run(
    command: Sequence[str | bytes], *, given: bytes = b"", timeout: float | None = None, **details: Any
) -> subprocess.CompletedProcess[bytes]:
    """Start a process with `popen`, write ``given`` to its stdin if that is a pipe, and wait for its end."""
    with popen(command, **details) as process:
        output, errors = process.communicate(given, timeout)
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def modules_of(words: Sequence[str]) -> list[str]:
    """The modules to import before the fork for a command of these words."""
    return [*_ALWAYS, *(name for part, name in _MODULES.items() if any(part in word for word in words))]


def requests() -> int:
    """The descriptor of the fork server's socket, for another process that sends a `Job` to it."""
    return _server().requests.fileno()


def _prepare(closed: Sequence[int]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    for descriptor in closed:
        os.close(descriptor)


def read_at_a_start(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that only the start of a process or of its interpreter reads."""
    return {name: value for name, value in environment.items() if name.startswith(_AT_A_START)}


class Server(NamedTuple):
    """The fork server of this process: the socket for requests, and the variables that its start has read."""

    requests: socket.socket
    variables: Mapping[str, str]


@cache
def _server() -> Server:
    """The fork server, started at the first use and ended with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, fork_server.__file__, str(theirs.fileno())]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], cwd="/")

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return Server(ours, read_at_a_start(os.environ))


class Forked(Process):
    """A process of the fork server, with the methods of `subprocess.Popen`."""

    text_mode, _input, _communication_started = None, None, False  # for `communicate`

    def __init__(self, server: Server, job: Job, streams: Sequence[Stream]) -> None:
        self.args = [job.name, *job.args]
        self.returncode: int | None = None
        files: list[IO[bytes] | None] = [None, None, None]
        theirs, to_close = list[int](), list[int]()
        for number, stream in enumerate(streams):
            if stream == subprocess.PIPE:
                read, write = os.pipe()
                files[number] = os.fdopen(*((read, "rb") if number else (write, "wb")))
                to_close.append(write if number else read)
                stream = to_close[-1]
            theirs.append(stream if isinstance(stream, int) else stream.fileno())
        self.stdin, self.stdout, self.stderr = files
        self._job = fork_server.send(server.requests, job, [theirs[number] for number in job.streams])
        self.pid = fork_server.reported(self._job)
        for descriptor in to_close:
            os.close(descriptor)

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._job, selectors.EVENT_READ)
                if not selector.select(timeout):
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = fork_server.reported(self._job)
            self._job.close()
        return self.returncode

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)
