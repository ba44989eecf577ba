"""Inspect a store without hooks and views: its names, its record, its files in git, and its filesystem."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent_memory.audit.location import DIRECTORY
from agent_memory.backend import AnyBackend, Page
from agent_memory.backend.helpers import STORE_RECORD
from agent_memory.core import tree_flows
from agent_memory.core.blocking import BlockingStore
from agent_memory.core.flows import Effect
from agent_memory.core.store_record import StoreRecord
from agent_memory.core.versions.settings import limits_in
from agent_memory.errors import AgentMemoryError, ReadError, UnsupportedOperationError
from agent_memory.key import AGENTS, RESERVED, Key, is_agent_id

_GIT: Final = ("git", "--literal-pathspecs", "-c", "core.fsmonitor=false", "-c", "safe.bareRepository=explicit",
               "ls-files", "-z", "--", RESERVED)  # fmt: skip
_GIT_ENVIRONMENT: Final = {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
"""A repository's configuration is not trusted: git starts none of its programs, and reaches no server."""
_GIT_SECONDS: Final = 10
_DAMAGED: Final = (
    f"the record of the store, {STORE_RECORD.storage}, is damaged, so nothing may be changed. Restore it from a "
    "backup. Without one, move it away: the store gets a new record, and keeps versions once they are turned on again"
)
_MOUNTS: Final = Path("/proc/self/mountinfo")
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
_WITHOUT_LOCKS: Final = re.compile(r"fuse(?:\..+)?|9p|virtiofs|vboxsf|prl_fs|fakeowner|cifs|smb3")
"""Filesystems whose locks may not reach other mounts of the same files: other containers, machines, or the host."""
_LEAST_FIELDS: Final = 5


@dataclass
class Agents:
    """The agents' directory: agent ids, other names and files, and the number of names that are not valid keys."""

    ids: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    skipped: int = 0


@dataclass
class AgentTree:
    """One agent's tree: the number of files and of invalid names, and the names that are both file and directory."""

    agent: str
    files: int = 0
    skipped: int = 0
    doubles: list[str] = field(default_factory=list)


@dataclass
class LogSize:
    """The size of an audit log in a store; an audit log is never deleted."""

    files: int = 0
    bytes: int = 0


def log_size(backend: AnyBackend) -> LogSize:
    """The size of the store's own audit log."""
    listed = _listed(backend, Key.internal(DIRECTORY))
    return LogSize(len(listed.entries), sum(entry.size for entry in listed.entries))


def first_page(backend: AnyBackend, prefix: Key, limit: int = 1) -> Page:
    """A page with the first names of this level."""
    return BlockingStore(backend).list(prefix, recursive=False, limit=limit)


def agents_of(backend: AnyBackend) -> Agents:
    """The agents of a store, and the other entries of their directory."""
    listed = _listed(backend, AGENTS, recursive=False)
    found = Agents(skipped=listed.skipped)
    for entry in listed.entries:
        name = entry.key.relative_to(AGENTS).path
        (found.ids if entry.is_directory and is_agent_id(name) else found.strays).append(name)
    return found


def tree_of(backend: AnyBackend, agent: str) -> AgentTree:
    """Inspect the tree of one agent."""
    listed = _listed(backend, Key.agent(agent))
    files = {entry.path for entry in listed.entries}
    directories = {parent for path in files for parent in _parents(path)}
    return AgentTree(agent, len(files), listed.skipped, sorted(files & directories))


def _listed(backend: AnyBackend, prefix: Key, recursive: bool = True) -> Effect:
    return BlockingStore(backend).run(tree_flows.list_all, prefix, recursive)


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


@dataclass(frozen=True)
class StoreFacts:
    """The record of a store; ``problem``: why this release may not change the store, None if it may."""

    id: str | None = None
    format: int | None = None
    features: tuple[str, ...] = ()
    least_release: str | None = None
    problem: str | None = None


def store_facts(backend: AnyBackend) -> StoreFacts | None:
    """Read the record of a store; None if there is none, or if it cannot be read, which a probe tells as well."""
    try:
        data = BlockingStore(backend).read(STORE_RECORD).data
    except AgentMemoryError:
        return None
    try:
        record = StoreRecord.parse(data)
        problem = _problem(record)
    except ReadError:
        return StoreFacts(problem=_DAMAGED)
    return StoreFacts(record.id or None, record.format, tuple(sorted(record.features)), record.least_release, problem)


def _problem(record: StoreRecord) -> str | None:
    try:
        record.require_known()
    except UnsupportedOperationError as error:
        return str(error)
    limits_in(record)
    return None


def tracked_by_git(root: Path | None) -> tuple[str, ...]:
    """The own files of a store on the local disk that git tracks, relative to the root; empty without git."""
    if root is None:
        return ()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(  # noqa: S603 - the git on the user's PATH
            _GIT, cwd=root, env=environment | _GIT_ENVIRONMENT, capture_output=True, check=True, timeout=_GIT_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return ()  # no git, no such directory, no repository, or one that git does not trust
    return tuple(map(os.fsdecode, filter(None, done.stdout.split(b"\0"))))


def filesystem_warning(root: Path | None) -> str | None:
    """Return what to know about the filesystem of a root on local disk; None if there is nothing to know."""
    if root is None or not _MOUNTS.exists():
        return None
    kind = filesystem_at(root.resolve(), _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape"))
    if kind is None or not _WITHOUT_LOCKS.fullmatch(kind):
        return None
    return (
        f"{kind} may pass no locks on to other mounts of the same files (another container, another machine, the host):"
        " programs on two mounts can lose each other's edits without an error. Doctor sees only this mount; let all "
        "programs that change the store use it"
    )


def filesystem_at(path: Path, mountinfo: str) -> str | None:
    """Return the type of the filesystem of a path, from the text of ``/proc/self/mountinfo``."""
    depth, kind = 0, None
    for line in mountinfo.splitlines():
        facts, separator, source = line.partition(" - ")
        fields = facts.split(" ")
        if not separator or len(fields) < _LEAST_FIELDS:
            continue
        top = Path(_OCTAL.sub(lambda octal: chr(int(octal[1], 8)), fields[_LEAST_FIELDS - 1]))
        if path.is_relative_to(top) and len(top.parts) >= depth:  # a later mount covers an earlier one
            depth, kind = len(top.parts), source.split(" ")[0]
    return kind
