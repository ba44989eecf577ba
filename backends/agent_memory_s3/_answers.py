"""Translation of the exceptions of s3fs, botocore and aiohttp; the only module that knows them.

s3fs raises `OSError` with ambiguous errno values (412 and 416 are both EINVAL), so this module decides by the code and
the HTTP status of the reply.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from http.client import HTTPException
from types import TracebackType
from typing import Any

from agent_memory.errors import UnsupportedOperationError
from agent_memory.object_store.engine import InvalidResponse, NoResponse, PermanentError, UnknownOutcome
from agent_memory.object_store.responses import (
    NO_TLS,
    REDIRECTED,
    REFUSED,
    UNKNOWN_HOST,
    UNTRUSTED,
    Reachability,
    refusal_of,
)
from agent_memory_s3._connection import RedirectedError, may_have_sent
from agent_memory_s3._credentials import AUTHORITY, CredentialsError, UnusableFileError, is_of_a_file
from agent_memory_s3._replies import ANSWER_BYTES, OversizedError, retry_after

_CONDITIONS = {"IfMatch", "IfNoneMatch", "CopySourceIfMatch"}
_NO_CREDENTIALS = (
    "there are no credentials: give the options key and secret, or profile,"
    " or the variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
)
_NOT_OBTAINED = "the credentials could not be obtained"
_LOG_IN = "the login has expired, or cannot be read: log in again"
DAMAGED_FILE = "a file of the AWS configuration or credentials is damaged: correct it"
_NO_KEYS = "their provider, such as a credential_process, returned none"
_NO_SETTING = "a setting of the profile, such as role_arn, is not valid"
_NO_ENDPOINT = "the configured endpoint must be a URL: http:// or https://, then a host, and optionally a port"
_NEVER_SENT = {
    "NoCredentialsError": _NO_CREDENTIALS,
    "PartialCredentialsError": "the credentials are incomplete: both a key and its secret are needed",
    "ConfigParseError": f"{_NOT_OBTAINED}: {DAMAGED_FILE}",
    "InvalidConfigError": f"{_NOT_OBTAINED}: {_NO_SETTING}",
    "InvalidRegionError": "the configured region is not a valid region name",
    "TokenRetrievalError": _LOG_IN,
    "SSOTokenLoadError": _LOG_IN,
    "UnauthorizedSSOTokenError": _LOG_IN,
    "EndpointResolutionError": _NO_ENDPOINT,
    "UnknownServiceError": "no request could be made (UnknownServiceError)",
}
_TRUST = (
    f"{UNTRUSTED}: name a file with the certificate of its authority in the option client_kwargs={{'verify': FILE}},"
    " or in the variable AWS_CA_BUNDLE"
)
_OVERSIZED = f"the answer is not S3's: its body has more than {ANSWER_BYTES >> 20} MiB"
_READS = {"get_object", "head_object", "list_objects_v2", "list_object_versions", "list_multipart_uploads",
          "get_bucket_versioning"}  # fmt: skip
_CLIENTS = {"aiobotocore", "aiohttp", "botocore", "fsspec", "s3fs"}
_ON_THE_WIRE = {"HTTPClientError", "ConnectionError", "IncompleteReadError", "ChecksumError", "ResponseParserError"}
"""The exceptions of botocore that can come after a request was sent; the others come before."""
_NOT_CONNECTED = {"ClientConnectorError", "ConnectTimeoutError", "ConnectionTimeoutError", "ProxyConnectionError",
                  "ConnectionRefusedError", "gaierror"}  # fmt: skip
_INTERRUPTED_TLS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
_MOST_HELD = 10
_REFUSED_CREDENTIALS = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken",
                        "InvalidAccessKeyId", "InvalidClientTokenId", "SignatureDoesNotMatch"}  # fmt: skip
_DAMAGED_SOURCE = "their source, such as a file or a credential_process, is damaged: correct it"


class S3Request(AbstractContextManager[None]):
    """A context manager for one request: translates the exceptions of s3fs.

    It is a class because every request uses it, and a generator would be slower.

    Args:
        contact: the reachability of the server.
        options: the options of the request.
        method: botocore's name of the request.
        sent: whether the request may have been sent before an exception; None: the connection knows.
    """

    __slots__ = ("_contact", "_method", "_options", "_sent")

    def __init__(
        self, contact: Reachability, options: Mapping[str, object], *, method: str = "", sent: bool | None = None
    ) -> None:
        self._contact = contact
        self._method = method
        self._options = options
        self._sent = sent

    def __exit__(self, kind: type[BaseException] | None, cause: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(cause, Exception) and not isinstance(cause, UnsupportedOperationError):
            sent = may_have_sent() if self._sent is None else self._sent
            answer = translated(cause, self._options, method=self._method, sent=sent)
            if answer is not None:
                answer = self._contact.judged(answer)
                local = isinstance(cause, CredentialsError) or (
                    isinstance(answer, PermanentError) and _response(cause) is None and not _is_mistake(cause)
                )
                raise answer from None if local else cause  # these messages need no traceback of a client


def has_directories(server: str) -> bool:
    """Whether a server, by its ``Server`` header, has real directories and keeps empty ones; S3 itself has none."""
    return "SeaweedFS" in server


def translated(
    cause: Exception, options: Mapping[str, object], *, method: str = "", sent: bool = True
) -> Exception | None:
    """Translate an exception of a request to one of `agent_memory.object_store`.

    None for an exception that neither the network nor the server caused, if the request may have been ``sent``: a
    programming error.
    """
    if isinstance(cause, CredentialsError):
        return _without_credentials(cause.__cause__ or cause)
    response = _response(cause)
    if response is None:
        if _is_invalid_endpoint(cause):
            return PermanentError(_NO_ENDPOINT)
        if not _is_mistake(cause):
            return _without_reply(cause, sent, reads=method in _READS)
        return None if sent else PermanentError(f"no request could be made ({type(cause).__name__})")
    told = response.get("ResponseMetadata", {})
    headers = told.get("HTTPHeaders", {})
    code = str(response.get("Error", {}).get("Code", ""))
    return refusal_of(
        told.get("HTTPStatusCode", 0),
        "" if code.isdigit() else code,  # botocore's code for a reply without one
        conditional=not _CONDITIONS.isdisjoint(options),
        of_object="Key" in options,
        has_code=method == "get_object",
        ranged="Range" in options,
        has_directories=has_directories(str(headers.get("server", ""))),
        retry_after=retry_after(headers),
    )


def are_refused(method: str, cause: BaseException) -> bool:
    """Whether an answer proves that a request did nothing, because the server does not accept its credentials.

    The answer to a HEAD has no code, and repeating a HEAD changes nothing.
    """
    response = _response(cause) or {}
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if method == "head_object":
        return status in (400, 401)
    return status in (400, 401, 403) and response.get("Error", {}).get("Code") in _REFUSED_CREDENTIALS


def _without_credentials(cause: BaseException) -> Exception:
    """The exception for credentials that could not be obtained, for whatever reason: no request was sent."""
    name = type(cause).__name__
    if name == "ParamValidationError":
        return PermanentError(f"{_NOT_OBTAINED}: {_NO_SETTING}")
    if name in _NEVER_SENT:
        return PermanentError(_NEVER_SENT[name])
    if not _is_of_the_network(cause):
        return PermanentError(f"{_NOT_OBTAINED}: {_DAMAGED_SOURCE} ({name})")
    if isinstance(response := getattr(cause, "response", None), Mapping):
        return _refused_by_provider(response, getattr(cause, "operation_name", name))
    why = _NO_KEYS if name == "CredentialRetrievalError" else _lasting(tuple(_held(cause)))
    if why:
        return NoResponse(f"{_NOT_OBTAINED}: {why}", sent=False, lasting=True)
    kinds = {kind.__name__ for kind in type(cause).__mro__}
    return NoResponse(f"{_NOT_OBTAINED} ({name})", sent=False, lasting=_ON_THE_WIRE.isdisjoint(kinds))


def _refused_by_provider(response: Mapping[str, Any], operation: str) -> Exception:
    """The exception for an answer of STS or another service that gives credentials: S3 got no request."""
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    answer = refusal_of(status, str(response.get("Error", {}).get("Code", "")), store=operation)
    text = f"{_NOT_OBTAINED}: {answer}"
    return NoResponse(text, sent=False, wait=answer.wait) if isinstance(answer, NoResponse) else PermanentError(text)


def _response(cause: BaseException) -> Mapping[str, Any] | None:
    """The server's reply, as parsed by botocore; None if there is none."""
    response = getattr(cause, "response", None) or getattr(cause.__cause__, "response", None)
    return response if isinstance(response, Mapping) else None


def no_profile(cause: Exception) -> str:
    """The message for botocore's ``ProfileNotFound``."""
    return f"there is no profile {getattr(cause, 'kwargs', {}).get('profile', '')!r} in the AWS configuration"


def _without_reply(cause: Exception, sent: bool, reads: bool) -> Exception:
    name = type(cause).__name__
    if name == "ProfileNotFound":
        return PermanentError(no_profile(cause))
    if name in _NEVER_SENT:
        return PermanentError(_NEVER_SENT[name])
    if name == "ParamValidationError":
        what = "the name of the bucket" if "bucket name" in str(cause) else "the options for requests"
        return PermanentError(f"no request could be made: check {what}")
    if name == "CredentialRetrievalError":
        return NoResponse(f"{_NOT_OBTAINED}: {_NO_KEYS}", sent=False, lasting=True)
    if _is_garbled(cause):
        return InvalidResponse("the server breaks HTTP: its answer cannot be read")
    held = tuple(_held(cause))
    if wrong := _lasting(held):
        return NoResponse(wrong, sent=False, lasting=True)
    if not sent or not _may_be_sent(cause):
        return NoResponse(f"no request could be made ({name})", sent=False)
    if any(isinstance(each, RedirectedError) for each in held):
        return PermanentError(REDIRECTED)
    if any(isinstance(each, OversizedError) for each in held):
        return (PermanentError if reads else UnknownOutcome)(_OVERSIZED)
    kinds = {kind.__name__ for each in held for kind in type(each).__mro__}
    why = REFUSED if any(isinstance(each, ConnectionRefusedError) for each in held) else name
    unknown = name == "EndpointConnectionError" and len(held) == 1
    return NoResponse(f"no reply from S3 ({why})", sent=_NOT_CONNECTED.isdisjoint(kinds) and not unknown)


def _lasting(held: tuple[BaseException, ...]) -> str | None:
    """The lasting problem with the endpoint, or with a file of TLS, that the exceptions show; or None."""
    for each in held:
        if isinstance(each, UnusableFileError):
            return str(each)
        if isinstance(each, ssl.SSLError) and is_of_a_file(each):
            return AUTHORITY
        if isinstance(each, socket.gaierror):
            return UNKNOWN_HOST
        if isinstance(each, ssl.SSLCertVerificationError):
            return _TRUST
        if isinstance(each, ssl.SSLError) and not isinstance(each, _INTERRUPTED_TLS):
            return NO_TLS
    return None


def _held(cause: BaseException) -> Iterator[BaseException]:
    """An exception and the exceptions that it contains, at most `_MOST_HELD`."""
    left: list[object] = [cause]
    for _ in range(_MOST_HELD):
        if not left:
            return
        if isinstance(each := left.pop(), BaseException):
            yield each
            left += [each.__cause__, getattr(each, "kwargs", {}).get("error")]


def _is_garbled(cause: Exception) -> bool:
    held = getattr(cause, "kwargs", {}).get("error")
    names = {kind.__name__ for kind in type(getattr(held, "__cause__", None)).__mro__}
    return type(held).__name__ == "ClientResponseError" and "HttpProcessingError" in names


def _is_mistake(cause: Exception) -> bool:
    return not _is_of_the_network(cause) and not _is_invalid_endpoint(cause)


def _is_invalid_endpoint(cause: Exception) -> bool:
    return isinstance(cause, ValueError) and str(cause).startswith("Invalid endpoint")


def _may_be_sent(cause: Exception) -> bool:
    names = {kind.__name__ for kind in type(cause).__mro__}
    return "BotoCoreError" not in names or not _ON_THE_WIRE.isdisjoint(names)


def _is_of_the_network(cause: object) -> bool:
    """Whether an exception is of the system or of a client, and not only the wrapper of a client around another one."""
    if isinstance(held := getattr(cause, "kwargs", {}).get("error"), Exception):
        return isinstance(held, RuntimeError) or _is_of_the_network(held)  # aiohttp's error for a closed session
    modules = {kind.__module__.partition(".")[0] for kind in type(cause).__mro__}
    return isinstance(cause, OSError | EOFError | HTTPException) or not _CLIENTS.isdisjoint(modules)
