"""A probe of the locks of a store on local disk: two processes edit one file at the same time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from agent_memory.backend import AnyBackend
from agent_memory.cli.probes import ScratchTree, Sight
from agent_memory.errors import AgentMemoryError
from agent_memory.key import Key
from agent_memory.registry import open_backend

_EDITS: Final = 50
_SECONDS: Final = 30
_NAME: Final = "counted.md"


def tried_in_two_processes(backend: AnyBackend, url: str, options: Mapping[str, object]) -> Sight:
    """Let this process and another one count up a number in one file; each edit must add one."""
    scratch = ScratchTree(backend)
    facts = {"url": url, "options": options, "directory": scratch.top.path}
    try:
        scratch.write(_NAME, b"0")
        command = [sys.executable, "-P", "-m", __name__]  # without modules of the current directory
        with subprocess.Popen(  # noqa: S603 - this interpreter
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as other:
            try:
                assert other.stdin  # noqa: S101
                other.stdin.write(json.dumps(facts).encode())
                other.stdin.close()
                own = _edits_while(other, scratch)
                failed = other.wait(_SECONDS) != 0
            finally:
                other.kill()
        counted = int(scratch.read(_NAME) or b"0")
    except (AgentMemoryError, OSError, ValueError, subprocess.SubprocessError) as error:
        return Sight("failed", f"two processes could not be tried: {type(error).__name__}")
    finally:
        with suppress(AgentMemoryError):
            scratch.clear()
    if failed:
        return Sight("failed", "two processes could not be tried: the other one failed")
    if lost := own + _EDITS - counted:
        return Sight("no", f"two processes lost {lost} of {own + _EDITS} edits")
    return Sight("yes", f"two processes lost none of {own + _EDITS} edits")


def _edits_while(other: subprocess.Popen[bytes], scratch: ScratchTree) -> int:
    """Edit until the other process has ended; returns the number of edits."""
    edits = 0
    while other.poll() is None and edits < _EDITS * _EDITS:
        scratch.add_one(_NAME)
        edits += 1
    return edits


def _main() -> None:
    facts = json.load(sys.stdin)
    scratch = ScratchTree(open_backend(facts["url"], facts["options"]), Key.internal(facts["directory"]))
    for _ in range(_EDITS):
        scratch.add_one(_NAME)


if __name__ == "__main__":
    _main()
