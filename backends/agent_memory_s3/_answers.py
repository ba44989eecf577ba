"""What s3fs, botocore and aiohttp answer instead of results; the one place that knows their exceptions.

s3fs hides the reply behind `OSError` with reused errno (412 and 416 are both EINVAL), so this branches on the code and
the HTTP status of the reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_memory.errors import UnsupportedOperationError
from agent_memory.object_store import Failed, Missing, NotSatisfiable, Racing, Refused, Unanswered

_THROTTLED = {"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests",
              "BandwidthLimitExceeded", "RequestThrottled"}  # fmt: skip
_CONDITIONS = {"IfMatch", "IfNoneMatch", "CopySourceIfMatch"}
_THROTTLED_SECONDS = 0.5
_AGAIN = {"RequestTimeout", "OperationAborted", "InternalError", "ServiceUnavailable"}
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
    conditional = not _CONDITIONS.isdisjoint(options)
    response = getattr(cause, "response", None) or getattr(cause.__cause__, "response", None)
    if not isinstance(response, Mapping):
        return _without_reply(type(cause).__name__)
    code = str(response.get("Error", {}).get("Code", ""))
    told = response.get("ResponseMetadata", {})
    status, headers = told.get("HTTPStatusCode", 0), told.get("HTTPHeaders", {})
    if code == "NoSuchBucket":
        return Failed("the bucket does not exist")
    if conditional and status == 412:
        return Refused(keeps_directories(str(headers.get("server", ""))))
    if conditional and status == 409 and code != "OperationAborted":
        return Racing()
    if conditional and status == 501:
        return UnsupportedOperationError("this server does not take conditional requests")
    if status == 404 and "Key" in options:
        return Missing()
    if status == 416 and "Range" in options:
        return NotSatisfiable()
    return _refused(code, status, headers)


def _refused(code: str, status: int, headers: Mapping[str, Any]) -> Exception:
    shown = f"S3 answered {code or status}"
    if code in _THROTTLED or status == 429:
        return Unanswered(shown, sent=False, wait=_retry_after(headers))
    if status == 501:
        return Failed(f"this server does not know how: {shown}")
    if status >= 500 or status < 400 or code in _AGAIN or status in (408, 409):
        return Unanswered(shown)
    return Failed("access denied by S3" if status == 403 else shown)


def _retry_after(headers: Mapping[str, Any]) -> float:
    try:
        return max(_THROTTLED_SECONDS, float(headers.get("retry-after", 0)))
    except ValueError:  # a date
        return _THROTTLED_SECONDS


def _without_reply(name: str) -> Exception:
    if name in _NEVER_SENT:
        return Failed(f"no request could be made ({name})")
    return Unanswered(f"no reply from S3 ({name})", sent=name not in _NOT_CONNECTED)
