"""The appends that an audit log has recorded, with their digests, for an undo."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from agent_memory.audit.log import LogLocation, log_at
from agent_memory.audit.records import records
from agent_memory.audit.salts import Salts
from agent_memory.core.versions.origin import MadeBy
from agent_memory.core.versions.undo import RecordedAppend, RecordedAppends


def recorded_appends(log: str | os.PathLike[str] | LogLocation, agent: str | None) -> RecordedAppends:
    """Return the appends to the files of one agent, from records that are as they were written.

    Without the salt of the agent, which forgetting destroys, there are none, because nothing proves their bytes.
    """
    location = log if isinstance(log, LogLocation) else log_at(log)
    try:
        of_version: dict[str, list[RecordedAppend]] = defaultdict(list)
        unversioned: dict[str, list[RecordedAppend]] = defaultdict(list)
        if digest_of := Salts(location).known_digests(agent):
            for record in records(location):
                if record.get("agent") == agent and (append := _append(record, digest_of)):
                    version = record.get("version")
                    (of_version[version] if version else unversioned[record.get("path", "")]).append(append)
        return RecordedAppends(of_version, unversioned)
    finally:
        if location is not log:
            location.store.close()


def _append(record: Mapping[str, Any], digest_of: Callable[[str], str]) -> RecordedAppend | None:
    """The append of a record; None if the record is of another operation, or lacks a fact."""
    if record.get("operation") != "append" or record.get("outcome") != "ok":
        return None
    try:
        time = datetime.fromisoformat(record["time"]).timestamp()
        by = MadeBy("append", record.get("actor"), record.get("tool_call_id"), time).shortened()
        return RecordedAppend(by, record["size"], record["given"], partial(_is_of, digest_of, record["digest"]))
    except KeyError:
        return None


def _is_of(digest_of: Callable[[str], str], digest: str, sha256: str) -> bool:
    return digest_of(sha256) == digest
