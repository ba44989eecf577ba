"""The backend for object stores, over an engine that sends the requests.

An engine implements `ObjectStore`, one request for each method; ``agent_memory_s3`` and ``agent_memory_obstore`` have
one. `ObjectStoreBackend` makes a backend of it.

=====================  ===========================================================================================
module                 content
=====================  ===========================================================================================
``backend``            `ObjectStoreBackend`: the five verbs, append, files in parts, erasing
``engine``             `ObjectStore`, the interface of an engine, and the exceptions that its requests raise
``responses``          for engines: the exception for an HTTP answer, by status and error code
``aws``                for engines: the hosts of AWS S3, and the kinds of buckets that are refused
``options``            for engines: what their URLs and storage options have in common
``bucket``             `Bucket`: requests below the backend's prefix, with a deadline and this package's errors
``retry``              `Attempts`: the requests of one operation, with back-off, until its deadline
``conditional_write``  `Write`: one write, repeated until it is known whether it took effect
``states``             the states that a write is conditional on, and the errors if the object is in another one
``write_log``          the records of recent writers in an object's metadata, which settle a lost answer
``recent_writes``      a cache of the versions that this process wrote, so that an append need not read them
``late_requests``      the ETags that late requests may carry, and that a new object must not get
``multipart``          `Composer`: an append to a large object, whose bytes the server copies
``upload``             `UploadInParts`: a new file of any size, as a multipart upload
``trial``              finds out on scratch objects which preconditions the server keeps
``upload_trial``       the same for multipart uploads
``tried_servers``      `TriedServer`: the results of trials, for all stores of this process
``race``               `Races`: sends several changes at once, of which a precondition lets at most one through
``conditions``         `Conditions`: the results of a trial
``scratch``            `ScratchObject`: the object of a trial, and uploads of it
``preconditions``      `Preconditions`: refuses changes that rely on preconditions which the server does not keep
``single_writer``      preconditions that are checked by the client, for a bucket with a single writer
``directories``        `Directories`: keeps a name from being both a file and a directory
``erasing``            deletes every version and every incomplete upload of a tree
``cleanup``            removes leftovers of a failed operation from the server
=====================  ===========================================================================================
"""

from agent_memory.object_store.aws import is_aws_s3, require_general_purpose
from agent_memory.object_store.backend import ObjectStoreBackend
from agent_memory.object_store.engine import (
    AccessDenied,
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
    UnsupportedRequest,
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
from agent_memory.runtime.host_clock import HostClock

__all__ = [
    "NO_OBJECT",
    "NO_TLS",
    "REDIRECTED",
    "REFUSED",
    "UNKNOWN_HOST",
    "UNTRUSTED",
    "AccessDenied",
    "HostClock",
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
    "UnsupportedRequest",
    "WriteConflict",
    "Writer",
    "bucket_and_prefix",
    "is_aws_s3",
    "refusal_of",
    "require_endpoint",
    "require_general_purpose",
    "take_single_writer",
]
