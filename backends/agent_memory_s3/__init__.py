"""The S3 backend: ``s3://bucket/prefix`` through s3fs's coroutines, with S3's conditional writes.

The logic is in `agent_memory.object_store`. ``storage_options`` are the options of s3fs (``endpoint_url``, ``key``,
``secret``, ``profile`` ...) and ``allow_single_writer``.

- this module: `S3Backend`, and opening of URLs
- ``_client``: `S3Store`, one bucket; each call sends one request and is not retried
- ``_connection``: a filesystem of s3fs with its client, without resending or redirects; all uses of private names
- ``_credentials``: the credentials of a session, which are read anew if a server refuses them, and the files of TLS
- ``_answers``: translation of the exceptions of s3fs, botocore and aiohttp
- ``_options``: checks of storage options, and a session of aiobotocore that starts fast
- ``_replies``: checks that a reply answers the request; bounded bodies, numbers and dates in replies
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agent_memory.backend import BackendFactory, hookimpl
from agent_memory.backend._checks import refuse_patched_modules
from agent_memory.errors import AgentMemoryError, BackendNotAvailableError, install_hint
from agent_memory.object_store import ObjectStoreBackend
from agent_memory.object_store.options import bucket_and_prefix, take_single_writer
from agent_memory_s3._answers import DAMAGED_FILE, no_profile
from agent_memory_s3._client import S3Store

__all__ = ["S3Backend", "agent_memory_register_backends"]


class S3Backend(ObjectStoreBackend):
    """Objects below ``prefix`` in a bucket.

    Args:
        bucket: the name of an existing bucket.
        prefix: at most 100 bytes of UTF-8, because S3 keys have at most 1,024.
        storage_options: the options of s3fs; ``max_pool_connections`` and the timeouts in ``config_kwargs`` have
            defaults. With ``allow_single_writer`` (no other process writes there) the server needs no preconditions.
    """

    def __init__(self, bucket: str, prefix: str = "", storage_options: Mapping[str, object] | None = None) -> None:
        refuse_patched_modules()
        options = dict(storage_options or {})
        allow = take_single_writer(options)
        super().__init__(S3Store(bucket, options), prefix, allow_single_writer=allow)


def _open(url: str, options: Mapping[str, object]) -> S3Backend:
    bucket, prefix = bucket_and_prefix(url)
    try:
        return S3Backend(bucket, prefix, options)
    except AgentMemoryError:
        raise
    except ImportError as error:
        raise BackendNotAvailableError(f"s3:// needs {error.name or 's3fs'}: {install_hint('s3')}") from error
    except (TypeError, ValueError):
        raise
    except Exception as error:
        if type(error).__name__ == "ProfileNotFound":
            raise ValueError(no_profile(error)) from None
        if type(error).__name__ == "ConfigParseError":
            raise ValueError(f"s3:// cannot be opened: {DAMAGED_FILE}") from None
        raise BackendNotAvailableError(f"s3:// cannot be opened with these options: {type(error).__name__}") from error


@hookimpl
def agent_memory_register_backends(register: Callable[[str, BackendFactory], None]) -> None:
    """Add ``s3://``."""
    register("s3", _open)
