"""Checks of storage options when a store is opened: s3fs and botocore fail at the first request, without a name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from inspect import signature
from typing import Any, Final

from agent_memory.object_store.options import require_endpoint

_TEXT: Final = ("a text", (str,))
_SWITCH: Final = ("true or false", (bool, int, str))
_NUMBER: Final = ("a number", (int,))
_MAPPING: Final = ("a mapping", (Mapping,))
_TYPES: Final[Mapping[str, tuple[str, tuple[type, ...]]]] = {
    **dict.fromkeys(("key", "secret", "token", "username", "password", "profile", "default_cache_type"), _TEXT),
    **dict.fromkeys(("client_kwargs", "config_kwargs", "s3_additional_kwargs", "session_vars"), _MAPPING),
    **dict.fromkeys(("max_concurrency", "default_block_size"), _NUMBER),
    **dict.fromkeys(
        ("anon", "use_ssl", "requester_pays", "version_aware", "cache_regions", "fixed_upload_size",
         "local_expiry_check", "include_builtin_handlers", "default_fill_cache"), _SWITCH
    ),
}  # fmt: skip
_ONE_OF: Final = (("key", "username"), ("secret", "password"))
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


def require_options(options: Mapping[str, Any]) -> None:
    """Raise `TypeError` or `ValueError` for an option that s3fs does not take; the message has its name, not its value.

    None is allowed for every option: it stands for the default.
    """
    _refuse_unknown(options)
    for name, (allowed, types) in _TYPES.items():
        if (value := options.get(name)) is not None and not isinstance(value, types):
            raise TypeError(f"option {name}: {allowed}, not {type(value).__name__}")
        if types == (str,) and isinstance(value, str) and not value.isprintable():
            raise ValueError(f"option {name}: the text has a line end or another control character")
    for name, other in _ONE_OF:
        if options.get(name) and options.get(other):
            raise TypeError(f"option {other}: it is another name of {name}; give one of them")
    session = options.get("session")
    if session is not None and not hasattr(session, "get_component"):
        raise TypeError(f"option session: a session of aiobotocore, not {type(session).__name__}")
    _require_endpoint(options)
    _require_nested(options)


def _refuse_unknown(options: Mapping[str, object]) -> None:
    from aiobotocore.session import AioSession
    from s3fs import S3FileSystem

    known = {*signature(S3FileSystem.__init__).parameters, *signature(AioSession.__init__).parameters}
    if unknown := options.keys() - (known - {"self", "kwargs", "asynchronous", "loop"}):
        raise TypeError(f"s3:// takes the options of s3fs, not {', '.join(sorted(unknown))}")


def _require_nested(options: Mapping[str, Any]) -> None:
    """Check the names in ``client_kwargs`` and the whole ``config_kwargs``, which s3fs passes on as they are."""
    from aiobotocore.config import AioConfig
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session

    known = signature(Session.create_client).parameters.keys() - {"self", "service_name", "config"}
    if unknown := sorted(map(str, (options.get("client_kwargs") or {}).keys() - known)):
        raise TypeError(f"option client_kwargs: the client takes no {', '.join(unknown)}")
    try:
        AioConfig(**(options.get("config_kwargs") or {}))
    except BotoCoreError as error:
        raise ValueError(f"option config_kwargs: a value is not allowed ({type(error).__name__})") from None
    except (AttributeError, KeyError, TypeError) as error:
        raise TypeError(f"option config_kwargs: {error}") from None


def _require_endpoint(options: Mapping[str, Any]) -> None:
    client = options.get("client_kwargs")
    given = [("the option endpoint_url", options)]
    given += [("client_kwargs, endpoint_url", client)] if isinstance(client, Mapping) else []
    for name, where in given:
        if (endpoint := where.get("endpoint_url")) is not None:
            return require_endpoint(name, endpoint)
    for name in _ENDPOINTS:
        if endpoint := os.environ.get(name):
            return require_endpoint(f"the variable {name}", endpoint)
    return None
