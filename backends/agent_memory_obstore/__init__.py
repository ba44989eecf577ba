"""A faster engine for object stores: ``s3://bucket/prefix`` with the storage option ``engine="obstore"``.

The logic is `agent_memory.object_store`'s, as with s3fs; obstore is a Rust client, at a fraction of the CPU. It has no
conditional delete, so a file is not renamed, nor deleted on a condition, unless ``allow_single_writer``; an append to a
large file sends all of it; nothing is forgotten for good; and it does not outlive a fork.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from agent_memory.backend import BackendFactory, hookimpl
from agent_memory.errors import BackendNotAvailableError
from agent_memory.object_store import ObjectStoreBackend
from agent_memory_obstore._client import ObstoreStore

__all__ = ["ObstoreBackend", "agent_memory_register_backends"]

_CLIENT = {"connect_timeout": "5s", "read_timeout": "15s", "timeout": "1h", "user_agent": "agent-memory"}
_S3FS = {"key": "access_key_id", "secret": "secret_access_key", "token": "session_token", "client_kwargs": "region",
         "config_kwargs": "client_options"}  # fmt: skip
_AWS = (".amazonaws.com", ".amazonaws.com.cn")


class ObstoreBackend(ObjectStoreBackend):
    """Objects below ``prefix`` in a bucket, by obstore.

    Args:
        bucket: its name; the bucket must exist.
        prefix: at most 100 bytes of UTF-8, because S3 keys have 1,024.
        storage_options: those of obstore's ``S3Store``; the timeouts in ``client_options`` have defaults, ``http://``
            endpoints are allowed, and what is said of retries is not heard. With ``allow_single_writer``, because no
            other process writes there, a server without preconditions will do, and renames work.
    """

    def __init__(self, bucket: str, prefix: str = "", storage_options: Mapping[str, object] | None = None) -> None:
        options = dict(storage_options or {})
        allow = options.pop("allow_single_writer", False)
        if allow not in (True, False, "true", "false"):
            raise TypeError(f"allow_single_writer is true or false, not {allow!r}")
        store = ObstoreStore(_s3_store(bucket, options), bucket, trusted=_is_aws(options))
        super().__init__(store, prefix, allow_single_writer=allow in (True, "true"))


def _s3_store(bucket: str, options: Mapping[str, Any]) -> Any:
    from obstore.exceptions import UnknownConfigurationKeyError
    from obstore.store import S3Store

    client = {**_CLIENT, **options.get("client_options", {})}
    if str(options.get("endpoint", "")).startswith("http://"):
        client.setdefault("allow_http", True)
    if unknown := options.keys() & _S3FS.keys():
        hints = ", ".join(f"{name!r} is {_S3FS[name]!r}" for name in sorted(unknown))
        raise TypeError(f"with engine='obstore' s3:// takes obstore's options: {hints}")
    ours = {"disable_bulk_delete": True, "client_options": client, "retry_config": {"max_retries": 0}}
    try:
        return S3Store(bucket, **{**options, **ours})
    except (UnknownConfigurationKeyError, ValueError) as error:
        raise TypeError(f"obstore's S3Store does not take these options: {str(error).splitlines()[0]}") from None


def _is_aws(options: Mapping[str, Any]) -> bool:
    """Whether requests go to AWS: no endpoint is given, by an option or the environment, or one of AWS's."""
    given = [str(value) for name, value in options.items() if "endpoint" in name and "metadata" not in name]
    given += [value for name, value in os.environ.items() if name.upper().startswith("AWS_ENDPOINT")]
    return all((urlsplit(each).hostname or "").endswith(_AWS) for each in given)


def _open(url: str, options: Mapping[str, object]) -> ObstoreBackend:
    bucket, _, prefix = url.partition("://")[2].partition("/")
    if not bucket:
        raise ValueError("an S3 URL is s3://bucket/prefix")
    if "?" in prefix or "#" in prefix:
        raise ValueError("an S3 URL has no query; options go into storage_options")
    try:
        return ObstoreBackend(bucket, prefix, options)
    except ImportError as error:
        raise BackendNotAvailableError("engine='obstore' needs obstore: pip install 'agent-memory[obstore]'") from error


@hookimpl
def agent_memory_register_backends(register: Callable[[str, BackendFactory], None]) -> None:
    """Add ``s3://`` by this engine."""
    register("s3+obstore", _open)
