"""The backend for object stores, over an engine that sends the requests.

An engine implements `agent_memory.object_store.engine.ObjectStore`, one request for each method; ``agent_memory_s3``
and ``agent_memory_obstore`` have one. `ObjectStoreBackend` makes a backend of it.

The modules, from a call down to its requests, for example from `ObjectStoreBackend.append` to a PUT:

=====================  ===========================================================================================
**the call**
``backend``            `ObjectStoreBackend`: the five verbs, append, files in parts, erasing
``directories``        `Directories`: keeps a name from being both a file and a directory
``preconditions``      `Preconditions`: refuses changes that rely on preconditions which the server does not enforce,
                       or `SingleWriterStore` checks them, for a bucket with a single writer
``trial``              `Trial`: finds out on scratch objects which preconditions the server enforces
**one write**
``conditional_write``  `Write`: one write, repeated until it is known whether it took effect
``states``             the states that a write is conditional on, the errors if the object is in another one, and a
                       cache of the states that this process wrote, so that an append need not read them
``write_log``          `WriteLog`: the records of recent writers in an object's metadata, which settle a lost answer
``late_requests``      the ETags that late requests may carry, and that a new object must not get
**large files**
``multipart``          `Composer`: an append to a large object, whose bytes the server copies
``upload``             `UploadInParts`: a new file of any size, as a multipart upload
**requests**
``bucket``             `Bucket`: names below the prefix, HEAD and LIST, deadlines and this package's errors
``retry``              `Attempts`: the requests of one operation, with back-off, until its deadline; `Cleanup`: removes
                       leftovers of a failed operation from the server
``erasing``            deletes every version and every incomplete upload of a tree
**for engines**
``engine``             `ObjectStore`, the interface of an engine, and the exceptions that its requests raise
``responses``          the exception for an HTTP answer, by status and error code
``options``            the URLs and storage options that all engines have in common, and the hosts of AWS S3
=====================  ===========================================================================================
"""

from agent_memory.object_store.backend import ObjectStoreBackend
from agent_memory.object_store.write_log import Writer

__all__ = ["ObjectStoreBackend", "Writer"]
