"""What doctor tells about a store itself: its record, and its own files that git tracks."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent_memory.backend import STORE_RECORD, AnyBackend
from agent_memory.core.blocking import BlockingStore
from agent_memory.core.store_record import StoreRecord
from agent_memory.core.versions.settings import VersionSettings
from agent_memory.errors import AgentMemoryError, ReadError, UnsupportedOperationError
from agent_memory.key import RESERVED

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
