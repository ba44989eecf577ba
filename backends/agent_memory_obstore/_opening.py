"""Storage options to obstore's stores, which are told to try everything once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from agent_memory.object_store import require_endpoint
from agent_memory_obstore._azure import AzureStore
from agent_memory_obstore._client import ANSWER_SECONDS, ObstoreStore

_CLIENT = {"connect_timeout": "5s", "read_timeout": f"{ANSWER_SECONDS:g}s", "timeout": "1h",
           "user_agent": "agent-memory", "allow_http": True}  # fmt: skip
_ONE_TRY = {"max_retries": 0}
_OURS = {"bucket", "bucket_name", "container", "container_name", "prefix", "config", "retry_config", "conditional_put",
         "disable_bulk_delete"}  # fmt: skip
_OF_S3FS = {"key": "access_key_id", "secret": "secret_access_key", "token": "session_token", "client_kwargs": "region",
            "config_kwargs": "client_options"}  # fmt: skip
_AWS = (".amazonaws.com", ".amazonaws.com.cn")
_AWS_VARIABLES = {"AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"}
_AZURE = (".core.windows.net", ".core.chinacloudapi.cn", ".core.usgovcloudapi.net")
_AZURE_VARIABLES = {"AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT", "AZURE_STORAGE_USE_EMULATOR"}


def s3_store(bucket: str, options: Mapping[str, Any]) -> ObstoreStore:
    """A bucket on S3, where one delete is one request, and preconditions are S3's own.

    Raises:
        ImportError: obstore is not installed.
        TypeError: an option ``S3Store`` does not take, or that is not for callers to set.
    """
    import obstore.store

    if theirs := sorted(options.keys() & _OF_S3FS.keys()):
        hints = ", ".join(f"{name!r} is {_OF_S3FS[name]!r}" for name in theirs)
        raise TypeError(f"with engine='obstore' s3:// takes obstore's options: {hints}")
    fixed = {"disable_bulk_delete": True, "conditional_put": "etag"}
    store = _opened(obstore.store.S3Store, bucket, options, fixed)
    trusted = _is_within(_AWS, _AWS_VARIABLES, store.config)
    return ObstoreStore(store, bucket, trusted=trusted, patient=_is_patient(options))


def azure_store(container: str, options: Mapping[str, Any]) -> ObstoreStore:
    """A container of Azure Blob Storage; errors as `s3_store`."""
    import obstore.store

    store = _opened(obstore.store.AzureStore, container, options, {})
    trusted = _is_within(_AZURE, _AZURE_VARIABLES, store.config)
    return AzureStore(store, container, trusted=trusted, patient=_is_patient(options))


def _opened(kind: Any, bucket: str, options: Mapping[str, Any], fixed: Mapping[str, Any]) -> Any:
    from obstore.exceptions import BaseError

    if ours := sorted(name for name in options if name.lower() in _OURS):
        raise TypeError(f"the URL, or this package, says what {', '.join(ours)} would")
    client = options.get("client_options", {})
    if not isinstance(client, Mapping):
        raise TypeError("client_options is a mapping")
    try:
        return kind(bucket, **{**options, **fixed, "client_options": {**_CLIENT, **client}, "retry_config": _ONE_TRY})
    except (BaseError, TypeError, ValueError) as error:
        said = str(error).splitlines()[0]
        raise TypeError(f"obstore's {kind.__name__} does not take these options: {said}") from None


def _is_patient(options: Mapping[str, Any]) -> bool:
    """Whether nobody said how long a request may take: who does means all of them."""
    return "read_timeout" not in {name.lower() for name in options.get("client_options", {})}


def _is_within(domains: tuple[str, ...], variables: set[str], config: Mapping[str, str]) -> bool:
    """Whether requests go to the provider itself: neither options nor variables name an endpoint, or one of its.

    ``config`` is what obstore made of the options: their names in its own spelling.
    """
    named = {f"option {name}": each for name, each in config.items() if "endpoint" in name or "emulator" in name}
    named |= {f"variable {name}": each for name, each in os.environ.items() if name.upper() in variables}
    for name, each in named.items():
        if each.lower() not in ("true", "false"):  # whether there is an emulator
            require_endpoint(name, each)  # else the Rust side would panic
    return all((urlsplit(each).hostname or "").endswith(domains) for each in named.values())
