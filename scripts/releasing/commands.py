"""The programs that a release runs, without the checkout on the path; no message names the host of an index."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
HOST: Final = "127.0.0.1"
"""The address of the servers that a release starts."""
_LEFT_OUT: Final = ("AGENT_MEMORY", "AWS_", "PIP_", "PYTHON", "SOURCE_DATE_EPOCH", "VIRTUAL_ENV")
_ADDRESS: Final = re.compile(r"(?<=//)[^/\s'\"]+|(?<=host=')[^']*")
_LINES: Final = 40


class ReleaseError(Exception):
    """The release cannot go on; the text says why, and what to do."""


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a program: those of this process that name no checkout, index or store, and more."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_LEFT_OUT)}
    return kept | dict.fromkeys(("NO_PROXY", "no_proxy"), HOST) | dict(more)


def run(*command: str | Path, cwd: Path, env: Mapping[str, str]) -> str:
    """Run a program and return its output, both streams as one.

    Raises:
        ReleaseError: it failed; with the last lines of its output.
    """
    words = list(map(str, command))
    done = subprocess.run(
        words, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        last = without_hosts("\n".join(done.stdout.splitlines()[-_LINES:]))
        raise ReleaseError(f"{shlex.join([Path(words[0]).name, *words[1:]])}: exit code {done.returncode}\n{last}")
    return done.stdout


def git(*words: str) -> bytes:
    """Return what git prints in the checkout."""
    return subprocess.run(["git", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


def without_hosts(text: str) -> str:
    """Return a text with the hosts of its URLs replaced, and with the credentials before them."""
    return _ADDRESS.sub("…", text)
