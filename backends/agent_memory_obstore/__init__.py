"""A faster engine for object stores: ``s3://`` and ``az://`` with the storage option ``engine="obstore"``.

The logic is in `agent_memory.object_store`, as with s3fs; obstore is a Rust client that needs a fraction of the CPU. It
has no conditional delete, so renames and conditional deletes need ``allow_single_writer``. An append to a large file
sends the whole file; nothing can be forgotten permanently; and a forked child cannot use it after its parent did.

- this module: `ObstoreBackend`, and registration of the URLs
- ``_client``: `ObstoreStore`, one bucket of S3, and `AzureStore`, one container of Azure; each call sends one request,
  and is not retried
- ``_opening``: storage options, and opening of obstore's stores
- ``_answers``: translation of the exceptions of obstore, and certificates of authorities that it cannot use
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from agent_memory.backend import BackendFactory, hookimpl
from agent_memory.backend._checks import refuse_patched_modules
from agent_memory.errors import BackendNotAvailableError, install_hint
from agent_memory.object_store import ObjectStoreBackend
from agent_memory.object_store.options import bucket_and_prefix, take_single_writer
from agent_memory_obstore._client import ObstoreStore
from agent_memory_obstore._opening import azure_store, s3_store

__all__ = ["ObstoreBackend", "agent_memory_register_backends"]

Open: TypeAlias = Callable[[str, Mapping[str, Any]], ObstoreStore]
_PREFIX = re.compile(r"(?:(?!\.{1,2}(?:/|\Z))[^/\x00-\x1f\x7f\ud800-\udfff]+(?:/|\Z))*\Z")


class ObstoreBackend(ObjectStoreBackend):
    """Objects below ``prefix`` in a bucket of S3 or a container of Azure, through obstore.

    Args:
        bucket: the name of an existing bucket or container.
        prefix: at most 100 bytes of UTF-8, because S3 keys have at most 1,024.
        storage_options: the options of obstore's ``S3Store`` or ``AzureStore``; the timeouts in ``client_options`` have
            defaults, and ``http://`` endpoints are allowed. With ``allow_single_writer`` (no other process writes
            there) the server needs no preconditions, and renames work.
        open_store: opens the store: `s3_store` or `azure_store`.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        storage_options: Mapping[str, object] | None = None,
        open_store: Open = s3_store,
    ) -> None:
        refuse_patched_modules()
        options = dict(storage_options or {})
        allow = take_single_writer(options)
        if not _PREFIX.match(prefix.strip("/")):
            raise ValueError("obstore cannot read the prefix: a name in it is empty, '.' or '..', or has controls")
        store = open_store(bucket, options)
        self.without_parts = "; without the storage option engine=obstore it works" if store.called == "S3" else ""
        super().__init__(store, prefix, allow_single_writer=allow)


def _open(open_store: Open, url: str, options: Mapping[str, object]) -> ObstoreBackend:
    bucket, prefix = bucket_and_prefix(url)
    try:
        return ObstoreBackend(bucket, prefix, options, open_store)
    except ImportError as error:
        raise BackendNotAvailableError(f"engine='obstore' needs obstore: {install_hint('obstore')}") from error


@hookimpl
def agent_memory_register_backends(register: Callable[[str, BackendFactory], None]) -> None:
    """Add ``s3://`` and ``az://`` with this engine."""
    register("s3+obstore", partial(_open, s3_store))
    register("az+obstore", partial(_open, azure_store))
