"""The results of trials: what a server does with each kind of precondition, remembered for an hour."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from agent_memory.object_store.engine import ObjectStore

ADVICE = "if only one process writes here, set the storage option allow_single_writer"
REMEMBERED_SECONDS: Final = 3600.0
"""How long stores that are opened later use a result; a store that is open keeps its own."""
_MOST_SERVERS: Final = 1_000
_tried: dict[tuple[str, str, str], TriedServer] = {}


class TrialResult(Enum):
    """What a server does with one kind of precondition; the value is the text of the refusal, "" for `ENFORCED`."""

    ENFORCED = ""
    IGNORED = "this server ignores preconditions, so concurrent writers would lose each other's writes"
    NEVER_MET = "this server refuses preconditions that hold, so no conditional write would succeed"
    NOT_TAKEN = "this server does not take conditional requests"
    NOT_ATOMIC = (
        "this server keeps preconditions of a request alone, but not in a race, so concurrent writers would lose each"
        " other's writes"
    )
    NOT_IF_MISSING = (
        "this server ignores the precondition if the file was deleted, so a writer could bring a deleted or forgotten"
        " text back, and two callers could delete one file"
    )
    NOT_RACED = (
        "this server's precondition cannot be tried in a race, because it does not keep the preconditions of writes"
    )
    NOT_SHOWN = "this server fails for a change that loses a race, so its precondition is not shown to hold in a race"
    NOT_SENT = "this engine has no conditional delete, and a delete without one may remove another writer's change"
    NOT_TRIED = "this server's preconditions have not been tried yet"


@dataclass(frozen=True)
class TrialResults:
    """The results of the trial of one server, by the kind of request that has the precondition.

    Attributes:
        create: a PUT with ``If-None-Match: *``.
        swap: a PUT with ``If-Match``.
        delete: a DELETE with ``If-Match``.
        copy: the copy of a part with ``x-amz-copy-source-if-match``.
        complete: the completion of a multipart upload of copied parts with ``If-Match``.
        create_upload: the completion of a multipart upload of new parts with ``If-None-Match: *``.
        swap_upload: the completion of a multipart upload of new parts with ``If-Match``.
    """

    create: TrialResult = TrialResult.NOT_TRIED
    swap: TrialResult = TrialResult.NOT_TRIED
    delete: TrialResult = TrialResult.NOT_TRIED
    copy: TrialResult = TrialResult.NOT_TRIED
    complete: TrialResult = TrialResult.NOT_TRIED
    create_upload: TrialResult = TrialResult.NOT_TRIED
    swap_upload: TrialResult = TrialResult.NOT_TRIED

    @property
    def appends_in_parts(self) -> bool:
        """Whether a large object can be appended to in parts."""
        return self.copy is self.complete is TrialResult.ENFORCED

    @property
    def may_append_in_parts(self) -> bool:
        """Whether a large object can be appended to in parts, or this was not tried yet."""
        return self.appends_in_parts or self.complete is TrialResult.NOT_TRIED


@dataclass
class TriedServer:
    """The results that depend on the server alone, and not on the permissions of one store.

    Attributes:
        since: when the first result was found, in POSIX seconds of this host.
        writes: the results of PUTs and DELETEs.
        bare_etags: as `ObjectStore.bare_etags`.
        uploads: the results of races of completed uploads, by whether the object has to be absent.
    """

    since: float = field(default_factory=time.time)
    writes: TrialResults = field(default_factory=TrialResults)
    bare_etags: bool = False
    uploads: dict[bool, TrialResult] = field(default_factory=dict)


def tried_server(store: ObjectStore) -> TriedServer:
    """The results for the server and bucket of a store, and for its engine; empty ones after `REMEMBERED_SECONDS`."""
    place = (type(store).__qualname__, store.server, store.identity)
    found = _tried.get(place) if store.server else None
    if found is None or not 0 <= time.time() - found.since < REMEMBERED_SECONDS:
        found = TriedServer()
        if store.server:
            _tried.pop(place, None)
            _tried[place] = found
            if len(_tried) > _MOST_SERVERS:
                del _tried[next(iter(_tried))]
    return found
