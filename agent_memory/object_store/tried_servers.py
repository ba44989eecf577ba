"""`TriedServer`: what the trial of one bucket found, for all stores that this process opens there within an hour."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from agent_memory.object_store.conditions import Condition, Conditions
from agent_memory.object_store.engine import ObjectStore

REMEMBERED_SECONDS: Final = 3600.0
"""How long a result is used by stores that are opened after it; a store that is open keeps its own."""
_MOST_SERVERS: Final = 1_000
_tried: dict[tuple[str, str, str], TriedServer] = {}


@dataclass
class TriedServer:
    """The results that depend on the server alone, and not on the permissions of one store.

    Attributes:
        since: when the first result was found, in POSIX seconds of this host.
        writes: the conditions of PUT and DELETE.
        bare_etags: as `ObjectStore.bare_etags`.
        uploads: the results of races of completed uploads; by whether the object has to be absent.
    """

    since: float = field(default_factory=time.time)
    writes: Conditions = field(default_factory=Conditions)
    bare_etags: bool = False
    uploads: dict[bool, Condition] = field(default_factory=dict)


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
