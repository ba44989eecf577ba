"""The rows of `lost_updates.py`: which store is opened, with which packages, and which calls add a line."""

from __future__ import annotations

import functools
import platform
import sqlite3
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from _lost_update_frameworks import CONTRACTS, FrameworkStore
from _lost_update_stores import (
    Appends,
    ClaudeInserts,
    ClaudeReplaces,
    ConditionalPuts,
    Database,
    FsspecAppends,
    FsspecRewrites,
    PlainFile,
    RemoteBackend,
    Store,
    StrandsFacts,
    StrandsSessions,
    ToolInserts,
)

OURS = "agent-memory-files"


class Subject(NamedTuple):
    """One row of a table."""

    name: str
    calls: str
    packages: tuple[str, ...]
    open: Callable[[str], Store]
    release: str = ""

    @property
    def missing(self) -> list[str]:
        """The packages that are not installed."""
        return [package for package in self.packages if not installed(package)]

    @property
    def version(self) -> str:
        return self.release or ", ".join(f"{package} {installed(package)}" for package in self.packages)


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(checkout)" if package == OURS else ""


def own(framework: str) -> Subject:
    """The local store of a framework."""
    contract = CONTRACTS[framework]
    opens = functools.partial(FrameworkStore, framework, False)
    return Subject(f"{contract.packages[0]}, `{contract.own}`", contract.calls, contract.packages, opens)


def ours(framework: str) -> Subject:
    """Our adapter for a framework."""
    contract = CONTRACTS[framework]
    opens = functools.partial(FrameworkStore, framework, True)
    packages = (OURS, contract.packages[-1])  # an adapter does not need what only the framework's local store needs
    return Subject(f"agent-memory, `{contract.ours}`", contract.calls, packages, opens)


INSERT = "the command `insert` at line 0; the tool has no append"
REPLACE = "the command `str_replace`: the last line, `END`, by the line and `END`"
MESSAGE = "`append_message` to one session, as an agent calls it for each message"
FACT = "`add` of a fact to one topic"
REWRITE = "`cat_file`, then `pipe_file`"
EITHER = (
    Subject("agent-memory, `append`", "`append(path, line)`", (OURS,), Appends),
    Subject("agent-memory, `MemoryTool` insert", INSERT, (OURS,), ToolInserts),
)
LOCAL = (
    *EITHER,
    Subject("Python, `open`", "`open(path, 'a')`, one `write`", (), PlainFile, f"Python {platform.python_version()}"),
    Subject("Python, `sqlite3`", "one `INSERT` and its commit", (), Database, f"SQLite {sqlite3.sqlite_version}"),
    Subject("fsspec, `open`", "`open(path, 'ab')`, one `write`", ("fsspec",), FsspecAppends),
    Subject("fsspec, `pipe_file`", REWRITE, ("fsspec",), FsspecRewrites),
    Subject("Claude's local memory tool, insert", INSERT, ("anthropic",), ClaudeInserts),
    Subject("Claude's local memory tool, str_replace", REPLACE, ("anthropic",), ClaudeReplaces),
    own("deepagents"),
    own("langgraph"),
    Subject("Strands, `FileSessionManager`", MESSAGE, ("strands-agents",), StrandsSessions),
    Subject("Strands, `FileMemoryStore`", FACT, ("strands-agents",), StrandsFacts),
)
S3 = (
    *(each._replace(name=f"{each.name}, on S3", packages=(OURS, "s3fs")) for each in EITHER),
    Subject(
        "botocore, `If-Match`",
        "`get_object`, then `put_object` with `IfMatch`, again after a conflict: a loop written by hand",
        ("botocore",),
        ConditionalPuts,
    ),
    Subject("s3fs, `open`", "`open(path, 'ab')`, one `write`", ("s3fs",), FsspecAppends),
    Subject("s3fs, `pipe_file`", f"{REWRITE}; S3 has no append", ("s3fs",), FsspecRewrites),
    Subject(
        "deepagents-backends, `S3Backend`",
        "`aedit(file, END, line + END)` of one file; it has no append",
        ("deepagents-backends",),
        RemoteBackend,
    ),
    Subject("Strands, `S3SessionManager`", MESSAGE, ("strands-agents", "boto3"), StrandsSessions),
    Subject("Strands, `FileMemoryStore` on `S3Storage`", FACT, ("strands-agents", "boto3"), StrandsFacts),
)
ADAPTERS = tuple(ours(framework) for framework in CONTRACTS)
FRAMEWORKS = tuple(
    subject
    for framework, contract in CONTRACTS.items()
    for subject in (*([own(framework)] if contract.open_own else []), ours(framework))
)
SUBJECTS = {subject.name: subject for subject in (*LOCAL, *S3, *FRAMEWORKS)}
"""All rows by their names, for the processes that add lines."""
