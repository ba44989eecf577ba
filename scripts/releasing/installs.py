"""Every way to install the project that the docs show, and each extra, tried in an environment of its own."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Final, NamedTuple

from scripts.releasing.commands import HOST, ReleaseError, environment, run

PROJECT: Final = "agent-memory-files"
FOR_DEVELOPERS: Final = {"dev", "docs", "ecosystem", "lint", "release", "servers"}
"""The extras that only a checkout needs."""
_ADAPTER: Final = "agent_memory.integrations"
MODULES: Final = {
    "s3": "s3fs agent_memory_s3",
    "obstore": "obstore agent_memory_obstore",
    "cli": "agent_memory.cli",
    "anthropic": f"{_ADAPTER}.anthropic",
    "mcp": "mcp agent_memory.mcp_server",
    "web": "starlette jinja2 agent_memory.web",
    "search": "re2 agent_memory.tools",
    "otel": "opentelemetry.trace agent_memory.plugins.opentelemetry",
    "testing": "agent_memory.testing agent_memory.testing.pytest_plugin",
    "agent-framework": f"{_ADAPTER}.agent_framework",
    "claude-agent-sdk": f"{_ADAPTER}.claude_agent_sdk",
    "deepagents": f"{_ADAPTER}.deepagents",
    "google-adk": f"{_ADAPTER}.google_adk {_ADAPTER}.google_adk_memory {_ADAPTER}.google_adk_sessions",
    "langchain": f"{_ADAPTER}.langchain",
    "langgraph": f"{_ADAPTER}.langgraph {_ADAPTER}.langgraph_saver",
    "openai-agents": f"{_ADAPTER}.openai_agents",
    "pydantic-ai": f"{_ADAPTER}.pydantic_ai",
    "pydantic-ai-harness": f"{_ADAPTER}.pydantic_ai_memory",
    "strands": f"{_ADAPTER}.strands",
}
"""What each extra of a user makes importable."""
_COMMAND: Final = re.compile(r"\bpip3? install ([^`\n]+)")
_EXTRAS: Final = re.compile(rf"{PROJECT}\[([^\]]*)\]")
_SECONDS: Final = 60
_BUCKET: Final = "memories"
_IMPORTS: Final = """
import importlib, importlib.metadata, json, sys
modules = [importlib.import_module(name) for name in sys.argv[2:]]
print(json.dumps([importlib.metadata.version(sys.argv[1]), [module.__file__ for module in modules]]))
"""


class Install(NamedTuple):
    """One command `pip install`: its words, and the pages that have it; without pages it is for an extra of its own."""

    words: tuple[str, ...]
    pages: tuple[str, ...] = ()

    @property
    def extras(self) -> list[str]:
        """The extras of this project that it installs."""
        return [extra for found in _EXTRAS.findall(" ".join(self.words)) for extra in re.split(r"\s*,\s*", found)]

    def __str__(self) -> str:
        return shlex.join(self.words)


def commands_of(text: str, name: str) -> list[tuple[str, ...]]:
    """Return the words of each `pip install` in a page that names a package, without those of a comment or a pipe."""
    found = []
    for command in _COMMAND.findall(text.replace("\\\n", " ")):
        lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(takewhile(lambda word: word.strip("();<>|&"), lexer))
        if any(re.match(rf"{re.escape(name)}(?![\w.-])", word) for word in words):
            found.append(tuple(words))
    return found


def installs(pages: Mapping[str, str], extras: Iterable[str]) -> list[Install]:
    """Return each different command of the pages, and one for each extra of a user that none of them installs."""
    found: dict[tuple[str, ...], list[str]] = {}
    for page, text in pages.items():
        for words in commands_of(text, PROJECT):
            found.setdefault(words, []).append(page)
    every = [Install(words, tuple(dict.fromkeys(names))) for words, names in found.items()]
    known = {extra for install in every for extra in install.extras} | FOR_DEVELOPERS
    return every + [Install((f"{PROJECT}[{extra}]",)) for extra in extras if extra not in known]


def sample_of(readme: str) -> tuple[str, str]:
    """Return the first Python sample of a page and its output, which is the next block of text."""
    found = re.search(r"^```python\n(.*?)^```\n+```text\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ReleaseError("README.md has no sample in Python with its output in the next block")
    return found[1], found[2]


class Environments(NamedTuple):
    """Makes environments, one at a time, in which nothing but the index of the release is found.

    Attributes:
        pip: the pip that installs into them.
        work: the directory below which they are made.
        variables: those of pip.
    """

    pip: Path
    work: Path
    variables: dict[str, str]

    @contextmanager
    def fresh(self, words: Iterable[str]) -> Iterator[tuple[Path, Path]]:
        """Install into a new environment; give its directory of programs and an empty one, and remove both."""
        place = self.work / "environment"
        try:
            (place / "empty").mkdir(parents=True)
            env = environment(self.variables)
            run(sys.executable, "-m", "venv", "--without-pip", place / "venv", cwd=place, env=env)
            programs = place / "venv/bin"
            for command in (("install", "-q", *words), ("check",)):
                run(self.pip, "--python", programs / "python", *command, cwd=place / "empty", env=env)
            yield programs, place / "empty"
        finally:
            shutil.rmtree(place, ignore_errors=True)


class Trial(NamedTuple):
    """Tries one environment as a user would.

    Attributes:
        version: the version that must have been installed.
        sample: the sample of the README, and its output.
        s3: the variables with which any AWS tool reaches a server with a bucket.
    """

    version: str
    sample: tuple[str, str]
    s3: dict[str, str]

    def run(self, install: Install, programs: Path, directory: Path) -> list[str]:
        """Import, and run what the extras bring; return the names of what was run.

        Raises:
            ReleaseError: something failed.
        """
        env = environment({"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(directory)})
        self._import(install, programs, directory, env)
        program, output = self.sample
        if (printed := run(programs / "python", "-c", program, cwd=directory, env=env)) != output:
            raise ReleaseError(f"the sample of README.md printed:\n{printed}")
        done = ["import", "sample"]
        if "cli" in install.extras:
            command = programs / "agent-memory"
            run(command, "demo", cwd=directory, env=env)
            run(command, "--url", "./memories", "doctor", cwd=directory, env=env)
            done += ["demo", "doctor"]
            for extra in ("s3", "obstore"):
                if extra in install.extras:
                    options = ["-o", "engine=obstore"] if extra == "obstore" else []
                    url = f"s3://{_BUCKET}/{extra}"
                    run(command, "--url", url, *options, "doctor", cwd=directory, env=env | self.s3)
                    done.append(f"doctor on S3 by {extra}")
        return done

    def _import(self, install: Install, programs: Path, directory: Path, env: dict[str, str]) -> None:
        names = ["agent_memory", *(name for extra in install.extras for name in MODULES[extra].split())]
        printed = run(programs / "python", "-c", _IMPORTS, PROJECT, *names, cwd=directory, env=env)
        version, files = json.loads(printed.splitlines()[-1])  # after the warnings of a framework
        if version != self.version:
            raise ReleaseError(f"pip installed {PROJECT} {version}, not {self.version}")
        if outside := [file for file in files if not Path(file).is_relative_to(programs.parent)]:
            raise ReleaseError(f"not imported from the environment: {', '.join(outside)}")


@contextmanager
def s3_server(environments: Environments, page: str, port: int) -> Iterator[dict[str, str]]:
    """Start ministack as the page of the docs installs it; give the variables for its clients.

    Raises:
        ReleaseError: it did not start within a minute.
    """
    (words,) = commands_of(page, "ministack")
    ours = {"GATEWAY_PORT": str(port), "BIND_HOST": HOST}
    clients = {
        "AWS_ENDPOINT_URL": f"http://{HOST}:{port}", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
    }  # fmt: skip
    apart = environments._replace(work=environments.work / "s3")
    with apart.fresh(words) as (programs, directory):
        server = subprocess.Popen(
            [programs / "ministack"], cwd=directory, env=environment(ours),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            _wait_for(port)
            bucket = f"get_session().create_client('s3').create_bucket(Bucket={_BUCKET!r})"
            code = f"from botocore.session import get_session; {bucket}"
            run(programs / "python", "-c", code, cwd=directory, env=environment(clients))
            yield clients
        finally:
            server.terminate()
            server.wait()


def _wait_for(port: int) -> None:
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection((HOST, port)):
            return
        time.sleep(0.1)
    raise ReleaseError(f"the S3 server did not start within {_SECONDS} seconds")


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
