"""Opening of obstore's stores from storage options, with retries turned off."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from agent_memory.object_store import is_aws_s3, require_endpoint, require_general_purpose
from agent_memory_obstore._answers import is_panic
from agent_memory_obstore._azure import AzureStore
from agent_memory_obstore._certificates import unusable_certificates
from agent_memory_obstore._client import ANSWER_SECONDS, ObstoreStore
from agent_memory_obstore._values import options_with, require_bucket, require_options, require_variables

_CLIENT = {"connect_timeout": "5s", "read_timeout": f"{ANSWER_SECONDS:g}s", "timeout": "1h",
           "user_agent": "agent-memory", "allow_http": True}  # fmt: skip
_ONE_TRY = {"max_retries": 0}
_CANNOT_BUILD = "builder error"
"""The end of obstore's message for, among others, certificates that it cannot use."""
_OURS = {"bucket", "bucket_name", "container", "container_name", "prefix", "config", "retry_config", "conditional_put",
         "disable_bulk_delete"}  # fmt: skip
_OF_S3FS = {"key": "access_key_id", "secret": "secret_access_key", "token": "session_token", "client_kwargs": "region",
            "config_kwargs": "client_options"}  # fmt: skip
_AWS_VARIABLES = {"AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"}
_AZURE = (".core.windows.net", ".core.chinacloudapi.cn", ".core.usgovcloudapi.net")
_AZURE_VARIABLES = {"AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT", "AZURE_STORAGE_USE_EMULATOR"}


def s3_store(bucket: str, options: Mapping[str, Any]) -> ObstoreStore:
    """Open a bucket on S3, with one request per delete and S3's own preconditions.

    Raises:
        ImportError: obstore is not installed.
        TypeError: ``S3Store`` has no such option, or not with this type of value, or callers may not set it.
        ValueError: an option or a variable of the environment has a value that is not allowed.
        UnsupportedOperationError: the bucket is none of the general purpose buckets of S3.
    """
    import obstore.store

    require_general_purpose(bucket)

    if theirs := sorted(options.keys() & _OF_S3FS.keys()):
        hints = ", ".join(f"{_OF_S3FS[name]!r} instead of {name!r}" for name in theirs)
        raise TypeError(f"with engine='obstore', s3:// takes the options of obstore: {hints}")
    fixed = {"disable_bulk_delete": True, "conditional_put": "etag"}
    store = _opened(obstore.store.S3Store, bucket, options, fixed)
    endpoints = _endpoints(_AWS_VARIABLES, store.config)
    for endpoint in endpoints:
        require_general_purpose(bucket, _host(endpoint))
    trusted = all(is_aws_s3(_host(endpoint)) for endpoint in endpoints)
    return ObstoreStore(store, bucket, " ".join(endpoints), trusted=trusted, patient=_is_patient(options))


def azure_store(container: str, options: Mapping[str, Any]) -> ObstoreStore:
    """Open a container of Azure Blob Storage; raises as `s3_store`."""
    import obstore.store

    store = _opened(obstore.store.AzureStore, container, options, {})
    endpoints = _endpoints(_AZURE_VARIABLES, store.config)
    trusted = all(_host(endpoint).endswith(_AZURE) for endpoint in endpoints)
    return AzureStore(store, container, " ".join(endpoints), trusted=trusted, patient=_is_patient(options))


def _opened(kind: Any, bucket: str, options: Mapping[str, Any], fixed: Mapping[str, Any]) -> Any:
    from obstore.exceptions import BaseError, GenericError

    if ours := sorted(name for name in options if name.lower() in _OURS):
        raise TypeError(f"the URL or this package sets these options: {', '.join(ours)}")
    client = options.get("client_options", {})
    if not isinstance(client, Mapping):
        raise TypeError(f"option client_options: a mapping, not {type(client).__name__}")
    refused = f"obstore's {kind.__name__} does not take these options"
    require_bucket(bucket)
    try:
        require_options(options)
        given = {**options, **fixed, "client_options": {**_CLIENT, **client}, "retry_config": _ONE_TRY}
        store = kind(bucket, **given)
        require_variables(store.config)
    except (BaseError, TypeError, ValueError) as error:
        said = str(error).splitlines()[0]
        if said.endswith(_CANNOT_BUILD):
            said = unusable_certificates(client) or said
        is_value = isinstance(error, GenericError) or (isinstance(error, ValueError) and "Invalid key" not in said)
        raise (ValueError if is_value else TypeError)(f"{refused}: {said}{options_with(options, said)}") from None
    except BaseException as error:
        if not is_panic(error):
            raise
        raise ValueError(f"{refused}: it panicked") from None
    return store


def _is_patient(options: Mapping[str, Any]) -> bool:
    """Whether the options set no read timeout; one that is set applies to large writes too."""
    return "read_timeout" not in {name.lower() for name in options.get("client_options", {})}


def _endpoints(variables: set[str], config: Mapping[str, str]) -> list[str]:
    """The endpoints that options and variables name, "true" for an emulator; none for the provider itself.

    ``config``: the options as obstore normalized them, with its own spelling of the names.
    """
    named = {f"option {name}": each for name, each in config.items() if "endpoint" in name or "emulator" in name}
    named |= {f"variable {name}": each for name, each in os.environ.items() if name.upper() in variables}
    for name, each in named.items():
        if "use_" not in name.lower():  # a switch
            require_endpoint(name, each)  # an invalid URL would cause a panic in Rust
    return [*named.values()]


def _host(endpoint: str) -> str:
    return urlsplit(endpoint).hostname or ""
