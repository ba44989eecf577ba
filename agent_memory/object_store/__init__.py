"""Backends on object stores: the logic, for engines that send the requests.

An engine implements `ObjectStore`, one request a method; `ObjectStoreBackend` makes a backend of it: writers that
settle lost answers, one retry policy with a deadline, queues within the process. ``agent_memory_s3`` and
``agent_memory_obstore`` are two.
"""

from agent_memory.object_store.backend import ObjectStoreBackend
from agent_memory.object_store.engine import (
    InvalidResponse,
    Listed,
    Listing,
    NoResponse,
    NotFound,
    NotSatisfiable,
    Object,
    ObjectStore,
    PermanentError,
    PreconditionFailed,
    RetainedPage,
    RetainedVersion,
    SupportsMultipart,
    SupportsVersions,
    TooLarge,
    UnknownOutcome,
    Unreachable,
    WriteConflict,
)
from agent_memory.object_store.options import bucket_and_prefix, require_endpoint, take_single_writer
from agent_memory.object_store.responses import (
    NO_OBJECT,
    NO_TLS,
    REDIRECTED,
    REFUSED,
    UNKNOWN_HOST,
    UNTRUSTED,
    Reachability,
    refusal_of,
)
from agent_memory.object_store.write_log import Writer

__all__ = [
    "NO_OBJECT",
    "NO_TLS",
    "REDIRECTED",
    "REFUSED",
    "UNKNOWN_HOST",
    "UNTRUSTED",
    "InvalidResponse",
    "Listed",
    "Listing",
    "NoResponse",
    "NotFound",
    "NotSatisfiable",
    "Object",
    "ObjectStore",
    "ObjectStoreBackend",
    "PermanentError",
    "PreconditionFailed",
    "Reachability",
    "RetainedPage",
    "RetainedVersion",
    "SupportsMultipart",
    "SupportsVersions",
    "TooLarge",
    "UnknownOutcome",
    "Unreachable",
    "WriteConflict",
    "Writer",
    "bucket_and_prefix",
    "refusal_of",
    "require_endpoint",
    "take_single_writer",
]
