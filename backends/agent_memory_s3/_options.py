"""Storage options: their checks when a store is opened, and the session and configuration of every client.

Without the checks s3fs and botocore fail at the first request, without the name of the option.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cache
from importlib.metadata import version
from inspect import signature
from typing import Any, Final

from agent_memory.errors import DISTRIBUTION
from agent_memory.object_store.options import require_endpoint
from agent_memory_s3._credentials import RenewableCredentials

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
_CHECKSUMS = ("request_checksum_calculation", "response_checksum_validation")


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
    given = options.get("session")
    if given is not None and not hasattr(given, "get_component"):
        raise TypeError(f"option session: a session of aiobotocore, not {type(given).__name__}")
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


def session(options: dict[str, Any]) -> Any:
    """A session that shares botocore's parsed description of S3 and parses dates faster than botocore.

    Its credentials are `RenewableCredentials`. Removes the session's own options from ``options``.
    """
    from aiobotocore.session import AioSession

    own = {name: options.pop(name) for name in signature(AioSession.__init__).parameters.keys() & options.keys()}
    made = AioSession(**own)
    made.register_component("data_loader", _loader(made.get_config_variable("data_path")))
    load = made.get_component("credential_provider").load_credentials
    credentials = RenewableCredentials(load, lambda: AioSession(**own).get_credentials())
    made.register_component("credential_provider", credentials)
    made.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=moment)
    return made


@cache
def _loader(data_path: str | None) -> Any:
    from botocore.loaders import create_loader

    return create_loader(data_path)


def moment(value: str | float) -> datetime:
    """Parse a date of a reply as botocore does; for the formats of S3, in a twentieth of the time.

    With botocore's parser, dates take three quarters of the time to read a listing.
    """
    if isinstance(value, str):
        parse = datetime.fromisoformat if value[:1].isdigit() else parsedate_to_datetime
        with suppress(ValueError):
            if (parsed := parse(value)).tzinfo:
                return parsed
    from botocore.utils import parse_timestamp

    other: datetime = parse_timestamp(value)
    return other


def user_agent(session: Any, config: Mapping[str, object]) -> dict[str, str]:
    """The configuration that sets this package as the user agent, unless the user has configured one.

    It also saves a tenth of the time of each request: botocore computes its own user agent twice per request.
    """
    chosen = {"user_agent", "user_agent_appid"} & config.keys() or session.get_config_variable("user_agent_appid")
    names = f"agent-memory/{version(DISTRIBUTION)} aiobotocore/{version('aiobotocore')}"
    return {} if chosen else {"user_agent": names}


def plain_bodies(session: Any, config: Mapping[str, object]) -> dict[str, str]:
    """The settings of checksums for a server other than AWS, without those that the user has set.

    By default, botocore sends a PUT over https in chunks with a checksum behind them (``aws-chunked``). Some servers
    refuse such a body, and some store the chunks' framing as content.
    """
    chosen = {
        *config,
        *session.get_scoped_config(),
        *(name for name in _CHECKSUMS if f"AWS_{name.upper()}" in os.environ),
    }
    return dict.fromkeys((name for name in _CHECKSUMS if name not in chosen), "when_required")
