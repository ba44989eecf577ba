"""What s3fs, botocore and aiohttp answer instead of results; the one place that knows their exceptions.

s3fs hides the reply behind `OSError` with reused errno (412 and 416 are both EINVAL), so this branches on the code and
the HTTP status of the reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from agent_memory.object_store import Failed, Unanswered, refusal_of

_CONDITIONS = {"IfMatch", "IfNoneMatch", "CopySourceIfMatch"}
_NEVER_SENT = ("NoCredentialsError", "PartialCredentialsError", "ParamValidationError", "ProfileNotFound",
               "InvalidRegionError", "TokenRetrievalError", "SSOTokenLoadError", "UnauthorizedSSOTokenError",
               "UnknownServiceError")  # fmt: skip
_NOT_CONNECTED = ("EndpointConnectionError", "ConnectTimeoutError", "ClientConnectorError", "ProxyConnectionError",
                  "ClientProxyConnectionError", "ConnectionRefusedError")  # fmt: skip


def keeps_directories(server: str) -> bool:
    """Whether a server, by its ``Server`` header, keeps directories that were emptied; on S3 proper there are none."""
    return "SeaweedFS" in server


def translated(cause: Exception, options: Mapping[str, object]) -> Exception:
    """The answer, as `agent_memory.object_store` has them, that a foreign exception to a request stands for."""
    response = getattr(cause, "response", None) or getattr(cause.__cause__, "response", None)
    if not isinstance(response, Mapping):
        return _without_reply(type(cause).__name__)
    told = response.get("ResponseMetadata", {})
    headers = told.get("HTTPHeaders", {})
    return refusal_of(
        told.get("HTTPStatusCode", 0),
        str(response.get("Error", {}).get("Code", "")),
        conditional=not _CONDITIONS.isdisjoint(options),
        of_object="Key" in options,
        ranged="Range" in options,
        keeps_directories=keeps_directories(str(headers.get("server", ""))),
        retry_after=_retry_after(headers),
    )


def _retry_after(headers: Mapping[str, Any]) -> float:
    with suppress(ValueError):  # a date
        return float(headers.get("retry-after", 0))
    return 0.0


def _without_reply(name: str) -> Exception:
    if name in _NEVER_SENT:
        return Failed(f"no request could be made ({name})")
    return Unanswered(f"no reply from S3 ({name})", sent=name not in _NOT_CONNECTED)
