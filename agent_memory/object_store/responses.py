"""The exception for an HTTP answer of an object store, by status and error code, of S3 and of similar stores."""

from __future__ import annotations

import re

from agent_memory.errors import UnsupportedOperationError
from agent_memory.object_store.engine import (
    AccessDenied,
    InvalidResponse,
    NoResponse,
    NotFound,
    NotSatisfiable,
    PermanentError,
    PreconditionFailed,
    Unreachable,
    UnsupportedRequest,
    WriteConflict,
)

_CODE = re.compile(r"[A-Za-z0-9._-]{1,64}")
_THROTTLED = {"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests",
              "BandwidthLimitExceeded", "RequestThrottled", "ServerBusy"}  # fmt: skip
_NO_BUCKET = {"NoSuchBucket": "bucket", "ContainerNotFound": "container"}
_THROTTLED_SECONDS = 0.5
UNKNOWN_HOST = "the host of the endpoint is not known"
UNTRUSTED = "the certificate of the endpoint is not trusted"
NO_TLS = "the endpoint does not speak TLS: is it http:// rather than https://?"
REDIRECTED = "the server redirects to another address, which is not followed: set the right endpoint or region"
REFUSED = "the endpoint refuses the connection"
NO_OBJECT = "the answer is not an S3 object: it has no ETag"
_MEANT = {
    "PreconditionFailed": 412,
    "ConditionalRequestConflict": 409,
    "NoSuchKey": 404,
    "NoSuchUpload": 404,
    "NotImplemented": 501,
    "MethodNotAllowed": 405,
    "BlobAlreadyExists": 412,  # Azure's 409 for a blob that should be absent: no conflict, but a failed precondition
}
"""Statuses of codes. A code is more reliable than the status: S3 may send one after it began an answer with 200."""
_AGAIN = {"RequestTimeout", "OperationAborted", "InternalError", "ServiceUnavailable"}


def refusal_of(
    status: int,
    code: str,
    *,
    conditional: bool = False,
    of_object: bool = False,
    has_code: bool = False,
    ranged: bool = False,
    has_directories: bool = False,
    retry_after: float = 0.0,
    store: str = "S3",
) -> Exception:
    """The exception for an answer that is not a result; see `ObjectStore` for the possible ones.

    Args:
        status: the HTTP status.
        code: the store's error code, from the answer's body; may be empty.
        conditional: the request had a precondition.
        of_object: the request was about one object.
        has_code: an object store's answer would have a code for a missing object; an answer to a HEAD has none.
        ranged: the request was for a range.
        has_directories: as `PreconditionFailed`.
        retry_after: the seconds to wait, as the answer demands.
        store: the store's name in messages.
    """
    code = code if _CODE.fullmatch(code) else ""  # no other text may appear in a message or a log
    status = _MEANT.get(code, status)
    if code in _NO_BUCKET:
        return PermanentError(f"the {_NO_BUCKET[code]} does not exist")
    if conditional and status == 412:
        return PreconditionFailed(has_directories)
    if conditional and status == 409 and code != "OperationAborted":
        return WriteConflict()
    if conditional and status == 501:
        return UnsupportedOperationError("this server does not take conditional requests")
    if status == 404 and (of_object or code == "NoSuchUpload"):
        return PermanentError(f"the answer is not {store}'s: it has no code") if has_code and not code else NotFound()
    if status == 416 and ranged:
        return NotSatisfiable()
    return _failure(store, status, code, retry_after)


def _failure(store: str, status: int, code: str, retry_after: float) -> Exception:
    shown = f"{store} answered {code or status}"
    if code in _THROTTLED or status == 429:
        return NoResponse(shown, sent=False, wait=max(_THROTTLED_SECONDS, retry_after))
    if status in (405, 501):
        return UnsupportedRequest(f"this server does not support the request: {shown}")
    if status >= 500 or status < 300 or code in _AGAIN or status in (408, 409):
        return NoResponse(shown, wait=retry_after, answered=status == 500)
    if 300 <= status < 400:  # not followed: a request is signed for one host
        return PermanentError(REDIRECTED)
    if status in (401, 403):  # also for a wrong clock, or an archived object
        return AccessDenied(f"access denied by {store}" + (f" ({code})" if code not in ("", "AccessDenied") else ""))
    return PermanentError(shown)


class Reachability:
    """Whether a server ever answered this process; the engine sets ``made`` at an answer, ``of_store`` at a store's.

    If a server never answered, a wrong address is more likely than a restart of the server.
    """

    def __init__(self) -> None:
        self.made = False
        self.of_store = False

    def judged(self, answer: Exception) -> Exception:
        """Before any answer, change a `NoResponse` to `PermanentError` if it is lasting, else to `Unreachable`."""
        if self.made or not isinstance(answer, NoResponse) or isinstance(answer, InvalidResponse):
            return answer
        if answer.lasting:
            return PermanentError(str(answer))
        hint = "; the endpoint may have another address, or https:// rather than http://" if answer.sent else ""
        return Unreachable(f"{answer}{hint}", sent=answer.sent, wait=answer.wait)
