"""Opening of obstore's stores from storage options, with retries turned off.

A request of obstore panics with some values of options, so these are refused, with the name of the option.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from agent_memory.object_store.options import host_of, is_aws_s3, require_endpoint, require_general_purpose
from agent_memory_obstore._answers import is_panic, unusable_certificates
from agent_memory_obstore._client import ANSWER_SECONDS, AzureStore, ObstoreStore

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
_BUCKET: Final = re.compile(r"[A-Za-z0-9._:$/-]+")
_PRINTABLE: Final = re.compile(r"[ -~]*")
_FREE: Final = ("certificate", "file")
"""The ends of the names of options that no request contains: certificates, and files of the host."""
_MANY_DIGITS: Final = re.compile(r"\d{10}")
_TIMES: Final = ("timeout", "interval")
"""The ends of the names of options that are times."""
_FRAME_SIZE: Final = "http2_max_frame_size"
_FRAME_SIZES: Final = range(1 << 14, 1 << 24)
_VARIABLES: Final = {
    "AWS_ACCESS_KEY_ID": "access_key_id",
    "AWS_DEFAULT_REGION": "region",
    "AWS_REGION": "region",
    "AWS_SESSION_TOKEN": "session_token",
    "AZURE_STORAGE_ACCOUNT_NAME": "account_name",
    "AZURE_STORAGE_TOKEN": "token",
}
"""The variables that a request contains in a header, with the option that replaces each."""


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
        require_general_purpose(bucket, host_of(endpoint))
    trusted = all(is_aws_s3(host_of(endpoint)) for endpoint in endpoints)
    return ObstoreStore(store, bucket, " ".join(endpoints), trusted=trusted, patient=_is_patient(options))


def azure_store(container: str, options: Mapping[str, Any]) -> ObstoreStore:
    """Open a container of Azure Blob Storage; raises as `s3_store`."""
    import obstore.store

    store = _opened(obstore.store.AzureStore, container, options, {})
    endpoints = _endpoints(_AZURE_VARIABLES, store.config)
    trusted = all(host_of(endpoint).endswith(_AZURE) for endpoint in endpoints)
    return AzureStore(store, container, " ".join(endpoints), trusted=trusted, patient=_is_patient(options))


def _opened(kind: Any, bucket: str, options: Mapping[str, Any], fixed: Mapping[str, Any]) -> Any:
    from obstore.exceptions import BaseError, GenericError

    if ours := sorted(name for name in options if name.lower() in _OURS):
        raise TypeError(f"the URL or this package sets these options: {', '.join(ours)}")
    client = options.get("client_options", {})
    if not isinstance(client, Mapping):
        raise TypeError(f"option client_options: a mapping, not {type(client).__name__}")
    refused = f"obstore's {kind.__name__} does not take these options"
    _require_bucket(bucket)
    try:
        _require_options(options)
        given = {**options, **fixed, "client_options": {**_CLIENT, **client}, "retry_config": _ONE_TRY}
        store = kind(bucket, **given)
        _require_variables(store.config)
    except (BaseError, TypeError, ValueError) as error:
        said = str(error).splitlines()[0]
        if said.endswith(_CANNOT_BUILD):
            said = unusable_certificates(client) or said
        is_value = isinstance(error, GenericError) or (isinstance(error, ValueError) and "Invalid key" not in said)
        raise (ValueError if is_value else TypeError)(f"{refused}: {said}{_options_with(options, said)}") from None
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


def _require_bucket(bucket: str) -> None:
    """Raise `ValueError` for a name that obstore cannot put into the URL of a request."""
    if not _BUCKET.fullmatch(bucket):
        raise ValueError("obstore cannot send this name of a bucket: it may have ASCII letters, digits and . - _ : $ /")


def _require_options(options: Mapping[str, Any]) -> None:
    """Raise for a value with which requests would panic.

    Raises:
        TypeError: an option has a value of another type than those of obstore.
        ValueError: a text has a character that is not printable ASCII, or a number is out of range.
    """
    for name, value in _flat(options):
        if isinstance(value, str):
            _require_text(name, value)
        elif not isinstance(value, bool | timedelta) and not callable(value):
            raise TypeError(f"option {name}: a text, or true or false, not {type(value).__name__}")


def _require_variables(config: Mapping[str, Any]) -> None:
    """Raise `ValueError` for a variable of the environment with which requests would panic.

    ``config``: the options as obstore normalized them; a variable that an option replaces is not used.
    """
    for variable, option in _VARIABLES.items():
        if option not in config:
            _require_printable(f"variable {variable}", os.environ.get(variable, ""))


def _options_with(options: Mapping[str, Any], message: str) -> str:
    """The names of the options whose value a message of obstore quotes, in brackets; empty if there are none."""
    names = [name for name, value in _flat(options) if f'"{value}"' in message]
    return f" (option {', '.join(names)})" if names else ""


def _flat(options: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in options.items():
        if not isinstance(name, str):
            raise TypeError(f"option {above}{name!r}: the name of an option is a text")
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield above + name, value


def _require_text(name: str, value: str) -> None:
    end = name.lower()
    if end.endswith(_TIMES) and _MANY_DIGITS.search(value):
        raise ValueError(f"option {name}: a number in a time has at most 9 digits")
    if end.endswith(_FRAME_SIZE) and not (value.isdecimal() and int(value) in _FRAME_SIZES):
        raise ValueError(f"option {name}: a number from {_FRAME_SIZES[0]} to {_FRAME_SIZES[-1]}, as text")
    if not end.endswith(_FREE):
        _require_printable(f"option {name}", value)


def _require_printable(source: str, value: str) -> None:
    if not _PRINTABLE.fullmatch(value):
        raise ValueError(f"{source}: only printable ASCII characters are allowed, so no line end; the value has others")
