"""The facts that doctor tells beside the promises: the store's record, its files in git, its filesystem, its limits."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent_memory.backend import AnyBackend
from agent_memory.backend.helpers import STORE_RECORD
from agent_memory.core import tree_flows
from agent_memory.core.blocking import BlockingStore
from agent_memory.core.store_record import StoreRecord
from agent_memory.core.versions.settings import VersionSettings
from agent_memory.errors import AgentMemoryError, ReadError, UnsupportedOperationError
from agent_memory.key import RESERVED, Key
from agent_memory.object_store import ObjectStoreBackend

_GIT: Final = ("git", "--literal-pathspecs", "-c", "core.fsmonitor=false", "-c", "safe.bareRepository=explicit",
               "ls-files", "-z", "--", RESERVED)  # fmt: skip
_GIT_ENVIRONMENT: Final = {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
"""A repository's configuration is not trusted: git starts none of its programs, and reaches no server."""
_GIT_SECONDS: Final = 10
_DAMAGED: Final = (
    f"the record of the store, {STORE_RECORD.storage}, is damaged, so nothing may be changed. Restore it from a "
    "backup. Without one, move it away: the store gets a new record, and its earlier versions are no longer found"
)


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
    VersionSettings.of(record)
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


_MOUNTS: Final = Path("/proc/self/mountinfo")
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
_WITHOUT_LOCKS: Final = re.compile(r"fuse(?:\..+)?|9p|virtiofs|vboxsf|prl_fs|fakeowner|cifs|smb3")
"""Filesystems whose locks may not reach other mounts of the same files: other containers, machines, or the host."""
_LEAST_FIELDS: Final = 5


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


_WRITES: Final = 2
_SLOW: Final = 2.0
"""Writes a second of one file below which the rate is a limit: some services allow one."""


def limits(backend: AnyBackend, top: Key) -> list[str]:
    """Try `forget` and an append to a large file, below a scratch key; return what is limited."""
    found: list[str] = []
    for tried in (_of_forget, _of_large_appends):
        try:
            limit = tried(backend, top)
        except AgentMemoryError:  # the probes of promises tell what fails
            continue
        found += [limit] if limit else []
    return found


def _of_forget(backend: AnyBackend, top: Key) -> str | None:
    store, key = BlockingStore(backend), top.join("forgotten.md")
    store.write(key, b"x")
    try:
        effect = store.run(tree_flows.forget, key)
    except AgentMemoryError as error:
        return f"forget does not work: {str(error).rpartition(f'{key.path!r}: ')[2]}"
    if effect.versions_searched:
        return None
    return "the server has no versions: forget and redact delete plainly and look for no earlier versions"


def _of_large_appends(backend: AnyBackend, top: Key) -> str | None:
    if not isinstance(backend, ObjectStoreBackend):
        return None
    if BlockingStore(backend).call(backend.appends_in_parts, top.join("large.log")):
        return None
    return (
        f"a file over {backend.max_bytes:,} bytes takes no appends: the server or the engine does not copy parts of a"
        " file on a precondition, so an append sends the whole file"
    )


def limited_rate(backend: AnyBackend, top: Key) -> float | None:
    """The writes a second of one file, if the server limits them: it takes writes of several files faster.

    None also if the writes fail, because the probes of promises tell this.
    """
    if not isinstance(backend, ObjectStoreBackend):
        return None
    store, keys = BlockingStore(backend), [top.join(f"rate-{number}.md") for number in range(_WRITES + 1)]

    def seconds(written: Sequence[Key]) -> float:
        began = time.monotonic()
        for number, key in enumerate(written):
            store.write(key, b"%d" % number)
        return max(time.monotonic() - began, 1e-9)

    try:
        store.write(keys[0], b"x")
        several, one = seconds(keys[1:]), seconds(keys[:1] * _WRITES)
    except AgentMemoryError:
        return None
    rate = _WRITES / one
    return rate if rate < _SLOW and one > 2 * several else None
