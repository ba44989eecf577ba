"""What the answer of an object store over HTTP means: S3's statuses and codes, and those that others took over."""

from __future__ import annotations

from agent_memory.errors import UnsupportedOperationError
from agent_memory.object_store.engine import (
    InvalidResponse,
    NoResponse,
    NotFound,
    NotSatisfiable,
    PermanentError,
    PreconditionFailed,
    Unreachable,
    WriteConflict,
)

_THROTTLED = {"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests",
              "BandwidthLimitExceeded", "RequestThrottled", "ServerBusy"}  # fmt: skip
_NO_BUCKET = {"NoSuchBucket": "bucket", "ContainerNotFound": "container"}
_THROTTLED_SECONDS = 0.5
UNKNOWN_HOST = "the host of the endpoint is not known"
UNTRUSTED = "the certificate of the endpoint is not trusted"
NO_TLS = "the endpoint does not speak TLS: is it http:// rather than https://?"
REDIRECTED = "the server redirects to another address, which is not followed: name the endpoint, or the region, to use"
REFUSED = "the endpoint refuses the connection"
NO_OBJECT = "the answer is no S3 object: it has no ETag"
_MEANT = {
    "PreconditionFailed": 412,
    "ConditionalRequestConflict": 409,
    "NoSuchKey": 404,
    "NoSuchUpload": 404,
    "BlobAlreadyExists": 412,  # Azure's 409 for a blob that should be absent: no race, its precondition does not hold
}
"""Statuses of codes, which say more than the answer's own: S3 also puts one into an answer that it began with 200."""
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
    """What to raise for an answer that is no result; see `ObjectStore` for which exceptions there are.

    Args:
        status: of HTTP.
        code: the store's own, from the answer's body; may be empty.
        conditional: the request had a precondition.
        of_object: it was about one object.
        has_code: a store of objects says by a code in the answer's body what is missing; not in answer to a HEAD.
        ranged: it asked for a range.
        has_directories: as `PreconditionFailed`.
        retry_after: seconds the answer asks to wait.
        store: what messages call the store.
    """
    status = _MEANT.get(code, status)
    if code in _NO_BUCKET:
        return PermanentError(f"the {_NO_BUCKET[code]} does not exist")
    if conditional and status == 412:
        return PreconditionFailed(has_directories)
    if conditional and status == 409 and code != "OperationAborted":
        return WriteConflict()
    if conditional and status == 501:
        return UnsupportedOperationError("this server does not take conditional requests")
    if status == 404 and of_object:
        return PermanentError(f"the answer is not of {store}: it has no code") if has_code and not code else NotFound()
    if status == 416 and ranged:
        return NotSatisfiable()
    return _failure(store, status, code, retry_after)


def _failure(store: str, status: int, code: str, retry_after: float) -> Exception:
    shown = f"{store} answered {code or status}"
    if code in _THROTTLED or status == 429:
        return NoResponse(shown, sent=False, wait=max(_THROTTLED_SECONDS, retry_after))
    if status == 501:
        return PermanentError(f"this server does not know how: {shown}")
    if status >= 500 or status < 300 or code in _AGAIN or status in (408, 409):
        return NoResponse(shown, wait=retry_after)
    if 300 <= status < 400:  # not followed by s3fs: a request is signed for one host
        return PermanentError(REDIRECTED)
    if status in (401, 403):  # which is of a clock that is wrong, too, or of an archived object
        return PermanentError(f"access denied by {store}" + (f" ({code})" if code not in ("", "AccessDenied") else ""))
    return PermanentError(shown)


class Reachability:
    """Whether a server ever answered this process; set ``made`` when it does, ``of_store`` when it is an object store.

    The address of a server that never did is more likely wrong than the server is about to restart.
    """

    def __init__(self) -> None:
        self.made = False
        self.of_store = False

    def judged(self, answer: Exception) -> Exception:
        """The answer; before the first contact `PermanentError` if no retry mends it, else `Unreachable`."""
        if self.made or not isinstance(answer, NoResponse) or isinstance(answer, InvalidResponse):
            return answer
        if answer.lasting:
            return PermanentError(str(answer))
        hint = "; perhaps the endpoint is another one, or https:// rather than http://" if answer.sent else ""
        return Unreachable(f"{answer}{hint}", sent=answer.sent, wait=answer.wait)
