"""Functions and classes that authors of backends use; none of them is part of the contract (`agent_memory.backend`).

- A listing: `PageBuilder`.
- Preconditions and sizes: `require`, `refuse_larger_read`, `refuse_over_most`; etags of a storage without its own:
  `content_etag`, `digest_etag`.
- Errors: `translating`, `storage_failure`, `not_found`, `taken_name`, `named`; of many files, `raise_failures`.
- Time: `HostClock`, `Deadline`, `current_deadline`, `deadline_or_default`; waiting for a lock in a blocking backend:
  `TryLater`, `may_try_later`, `trying_later`.
- Objects that own a descriptor, a lock or a connection: `Uncopied`; recognising a store: `STORE_RECORD`, `store_id`.
"""

from __future__ import annotations

from agent_memory.backend._checks import content_etag, digest_etag, refuse_larger_read, refuse_over_most, require
from agent_memory.backend._deadline import (
    Deadline,
    HostClock,
    TryLater,
    current_deadline,
    deadline_or_default,
    may_try_later,
    trying_later,
)
from agent_memory.backend._errors import named, not_found, raise_failures, storage_failure, taken_name, translating
from agent_memory.backend._pages import PageBuilder
from agent_memory.backend._store_id import STORE_RECORD, store_id
from agent_memory.backend._types import Uncopied

__all__ = [
    "STORE_RECORD",
    "Deadline",
    "HostClock",
    "PageBuilder",
    "TryLater",
    "Uncopied",
    "content_etag",
    "current_deadline",
    "deadline_or_default",
    "digest_etag",
    "may_try_later",
    "named",
    "not_found",
    "raise_failures",
    "refuse_larger_read",
    "refuse_over_most",
    "require",
    "storage_failure",
    "store_id",
    "taken_name",
    "translating",
    "trying_later",
]
