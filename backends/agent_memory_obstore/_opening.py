"""Storage options to obstore's stores, which are told to try everything once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from agent_memory_obstore._azure import AzureStore
from agent_memory_obstore._client import ObstoreStore

_CLIENT = {"connect_timeout": "5s", "read_timeout": "15s", "timeout": "1h", "user_agent": "agent-memory"}
_ONE_TRY = {"max_retries": 0}
_OF_S3FS = {"key": "access_key_id", "secret": "secret_access_key", "token": "session_token", "client_kwargs": "region",
            "config_kwargs": "client_options"}  # fmt: skip
_AWS = (".amazonaws.com", ".amazonaws.com.cn")
_AWS_VARIABLES = ("AWS_ENDPOINT",)
_AZURE = (".core.windows.net", ".core.chinacloudapi.cn", ".core.usgovcloudapi.net")
_AZURE_VARIABLES = ("AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT", "AZURE_STORAGE_USE_EMULATOR")


def s3_store(bucket: str, options: dict[str, Any]) -> ObstoreStore:
    """A bucket on S3; one delete is one request, as its count is promised.

    Raises:
        ImportError: obstore is not installed.
        TypeError: an option ``S3Store`` does not take.
    """
    import obstore.store

    if theirs := sorted(options.keys() & _OF_S3FS.keys()):
        hints = ", ".join(f"{name!r} is {_OF_S3FS[name]!r}" for name in theirs)
        raise TypeError(f"with engine='obstore' s3:// takes obstore's options: {hints}")
    store = _opened(obstore.store.S3Store, bucket, {**options, "disable_bulk_delete": True})
    return ObstoreStore(store, bucket, trusted=_is_within(_AWS, _AWS_VARIABLES, options))


def azure_store(container: str, options: dict[str, Any]) -> ObstoreStore:
    """A container of Azure Blob Storage; errors as `s3_store`."""
    import obstore.store

    store = _opened(obstore.store.AzureStore, container, options)
    return AzureStore(store, container, trusted=_is_within(_AZURE, _AZURE_VARIABLES, options))


def _opened(kind: Any, bucket: str, options: Mapping[str, Any]) -> Any:
    from obstore.exceptions import BaseError

    client = {**_CLIENT, **options.get("client_options", {})}
    endpoint = str(options.get("endpoint", "https://"))
    if endpoint.startswith("http://"):
        client.setdefault("allow_http", True)
    elif not endpoint.startswith("https://"):  # what the Rust side would panic at
        raise TypeError("endpoint begins with http:// or https://")
    try:
        return kind(bucket, **{**options, "client_options": client, "retry_config": _ONE_TRY})
    except (BaseError, ValueError) as error:
        said = str(error).splitlines()[0]
        raise TypeError(f"obstore's {kind.__name__} does not take these options: {said}") from None


def _is_within(domains: tuple[str, ...], variables: tuple[str, ...], options: Mapping[str, Any]) -> bool:
    """Whether requests go to the provider itself: an option or a variable names no endpoint, or one of its."""
    named = [str(value) for name, value in options.items() if name.endswith(("endpoint", "endpoint_url", "emulator"))]
    named += [value for name, value in os.environ.items() if name.upper().startswith(variables)]
    return all((urlsplit(each).hostname or "").endswith(domains) for each in named)
