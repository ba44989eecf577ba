"""What s3fs, botocore and aiohttp answer instead of results; the one place that knows their exceptions.

s3fs hides the reply behind `OSError` with reused errno (412 and 416 are both EINVAL), so this branches on the code and
the HTTP status of the reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from http.client import HTTPException
from types import TracebackType

from agent_memory.errors import UnsupportedOperationError
from agent_memory.object_store import Failed, FirstContact, Garbled, Unanswered, refusal_of
from agent_memory_s3._numbers import retry_after

_CONDITIONS = {"IfMatch", "IfNoneMatch", "CopySourceIfMatch"}
_NEVER_SENT = ("NoCredentialsError", "PartialCredentialsError", "ParamValidationError", "ProfileNotFound",
               "InvalidRegionError", "TokenRetrievalError", "SSOTokenLoadError", "UnauthorizedSSOTokenError",
               "UnknownServiceError")  # fmt: skip
_CLIENTS = {"aiobotocore", "aiohttp", "botocore", "fsspec", "s3fs"}
_ON_THE_WIRE = {"HTTPClientError", "ConnectionError", "IncompleteReadError", "ChecksumError", "ResponseParserError"}
"""The exceptions of botocore that a request raises once it is sent; the others come before."""
_NOT_CONNECTED = ("EndpointConnectionError", "ConnectTimeoutError", "ClientConnectorError", "ProxyConnectionError",
                  "ClientProxyConnectionError", "ConnectionRefusedError")  # fmt: skip


class Request(AbstractContextManager[None]):
    """One request: what s3fs raises in it is raised as what it stands for.

    A class, because every request is in one, and a generator costs more.

    Args:
        contact: of the server.
        options: of the request.
        sent: whether it may have been sent when something fails.
    """

    __slots__ = ("_contact", "_options", "_sent")

    def __init__(self, contact: FirstContact, options: Mapping[str, object], *, sent: bool = True) -> None:
        self._contact = contact
        self._options = options
        self._sent = sent

    def __exit__(self, kind: type[BaseException] | None, cause: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(cause, Exception) and not isinstance(cause, UnsupportedOperationError):
            answer = translated(cause, self._options, sent=self._sent)
            if answer is not None:
                raise self._contact.given_up(answer) from cause


def keeps_directories(server: str) -> bool:
    """Whether a server, by its ``Server`` header, keeps directories that were emptied; on S3 proper there are none."""
    return "SeaweedFS" in server


def translated(cause: Exception, options: Mapping[str, object], *, sent: bool = True) -> Exception | None:
    """The answer, as `agent_memory.object_store` has them, that a foreign exception to a request stands for.

    None for an exception that neither the network nor the server causes: a mistake of code. ``sent``: whether the
    request may have been sent.
    """
    response = getattr(cause, "response", None) or getattr(cause.__cause__, "response", None)
    if not isinstance(response, Mapping):
        return _without_reply(cause, sent) if _is_of_the_network(cause) else None
    told = response.get("ResponseMetadata", {})
    headers = told.get("HTTPHeaders", {})
    return refusal_of(
        told.get("HTTPStatusCode", 0),
        str(response.get("Error", {}).get("Code", "")),
        conditional=not _CONDITIONS.isdisjoint(options),
        of_object="Key" in options,
        ranged="Range" in options,
        keeps_directories=keeps_directories(str(headers.get("server", ""))),
        retry_after=retry_after(headers),
    )


def _without_reply(cause: Exception, sent: bool) -> Exception:
    name = type(cause).__name__
    if name in _NEVER_SENT:
        return Failed(f"no request could be made ({name})")
    if _is_garbled(cause):
        return Garbled("the server breaks HTTP: its answer cannot be read")
    if not sent or not _may_be_sent(cause):
        return Unanswered(f"no request could be made ({name})", sent=False)
    return Unanswered(f"no reply from S3 ({name})", sent=name not in _NOT_CONNECTED)


def _is_garbled(cause: Exception) -> bool:
    held = getattr(cause, "kwargs", {}).get("error")
    names = {kind.__name__ for kind in type(getattr(held, "__cause__", None)).__mro__}
    return type(held).__name__ == "ClientResponseError" and "HttpProcessingError" in names


def _may_be_sent(cause: Exception) -> bool:
    names = {kind.__name__ for kind in type(cause).__mro__}
    return "BotoCoreError" not in names or not _ON_THE_WIRE.isdisjoint(names)


def _is_of_the_network(cause: object) -> bool:
    """Whether an exception is of the system, or of a client; one of a client may hold one that is neither."""
    if isinstance(held := getattr(cause, "kwargs", {}).get("error"), Exception):
        return isinstance(held, RuntimeError) or _is_of_the_network(held)  # aiohttp's of what was closed
    modules = {kind.__module__.partition(".")[0] for kind in type(cause).__mro__}
    return isinstance(cause, OSError | EOFError | HTTPException) or not _CLIENTS.isdisjoint(modules)
