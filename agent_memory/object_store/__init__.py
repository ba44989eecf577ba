"""Backends on object stores: the logic, for engines that send the requests.

An engine implements `ObjectStore`, one request a method; `ObjectStoreBackend` makes a backend of it: writers that
settle lost answers, one retry policy with a deadline, queues within the process. ``agent_memory_s3`` and
``agent_memory_obstore`` are two.
"""

from agent_memory.object_store.backend import ObjectStoreBackend
from agent_memory.object_store.engine import (
    Broken,
    Composes,
    Failed,
    Garbled,
    KeepsVersions,
    KeptItem,
    KeptPage,
    Listed,
    Listing,
    Missing,
    NotSatisfiable,
    Object,
    ObjectStore,
    Racing,
    Refused,
    TooLarge,
    Unanswered,
    Unreachable,
)
from agent_memory.object_store.options import bucket_and_prefix, require_endpoint, take_single_writer
from agent_memory.object_store.responses import (
    NO_OBJECT,
    NO_TLS,
    REDIRECTED,
    REFUSED,
    UNKNOWN_HOST,
    UNTRUSTED,
    FirstContact,
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
    "Broken",
    "Composes",
    "Failed",
    "FirstContact",
    "Garbled",
    "KeepsVersions",
    "KeptItem",
    "KeptPage",
    "Listed",
    "Listing",
    "Missing",
    "NotSatisfiable",
    "Object",
    "ObjectStore",
    "ObjectStoreBackend",
    "Racing",
    "Refused",
    "TooLarge",
    "Unanswered",
    "Unreachable",
    "Writer",
    "bucket_and_prefix",
    "refusal_of",
    "require_endpoint",
    "take_single_writer",
]
