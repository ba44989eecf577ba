"""Translation of the exceptions of obstore, and the certificates that it cannot use; no other module knows them.

They have neither status nor code. Both are parsed from the description of the cause at the end of the text, in which
texts from a server or a name are quoted. The text before it is not parsed: there such texts are not quoted.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from agent_memory.errors import UnsupportedOperationError
from agent_memory.object_store.engine import NoResponse, NotSatisfiable, PermanentError, TooLarge, UnknownOutcome
from agent_memory.object_store.responses import (
    NO_OBJECT,
    NO_TLS,
    REFUSED,
    UNKNOWN_HOST,
    UNTRUSTED,
    Reachability,
    refusal_of,
)

_DESCRIPTION = "\n\nDebug source:\n"
_STATUS = re.compile(r"^ +(?:status: |code: \")(\d{3})\"?,$", re.MULTILINE)
_CODE = re.compile(r"^ +body: Some\(\n.*?<Code>(\w+)</Code>", re.MULTILINE)
_KIND = re.compile(r"^ +kind: (\w+),$", re.MULTILINE)
_UNSENT = re.compile(r"^    source: \"", re.MULTILINE)
_FOR_CREDENTIALS = re.compile(r"^ +method: POST,$", re.MULTILINE)
"""A POST goes to STS or to another service that gives credentials: this package sends none to a store."""
_NOT_OBTAINED = "the credentials could not be obtained"
_OF_PROVIDER = re.compile(r"^    path: \"External \w+ credential provider\",$", re.MULTILINE)
_NO_JSON = re.compile(r"^ +source: Error\(\".*\", line: \d+, column: \d+\),$", re.MULTILINE)
"""JSON that cannot be parsed: only services that give credentials send any."""
_METADATA_SERVICE = re.compile(r"^ +\w+://(?:169\.254\.\d+\.\d+\b|[^/]+/latest/(?:api|meta-data)\b)", re.MULTILINE)
_TRUST = (
    f"{UNTRUSTED}: name a file with the certificate of its authority in the variable SSL_CERT_FILE, or give the"
    " certificate itself in the option client_options={'root_certificate': PEM}"
)
_UNUSABLE = "the certificates cannot be used"
_LASTING = {
    UNKNOWN_HOST: re.compile(r"^ +\"dns error\",$", re.MULTILINE),
    _TRUST: re.compile(r"^ +error: InvalidCertificate\(", re.MULTILINE),
    NO_TLS: re.compile(r"^ +error: (?:InvalidMessage|AlertReceived|PeerIncompatible)\(", re.MULTILINE),
}
"""The lasting problems with an endpoint, each with the pattern of its description."""
_REFUSED = re.compile(r"^ +kind: ConnectionRefused,$", re.MULTILINE)
_NO_LISTING = re.compile(r"^ +source: InvalidListResponse \{$", re.MULTILINE)
_NO_ETAG = re.compile(r"^ +source: MissingEtag,$", re.MULTILINE)
_NO_CREDENTIALS = {
    "S3": "there are no credentials: give the options access_key_id and secret_access_key, or the variables"
    " AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (engine='obstore' reads no profiles); no metadata service has any",
    "Azure": "there are no credentials: give the options account_name and account_key, or the variables of Azure;"
    " no metadata service has any",
}
_NO_RANGE = re.compile(r"^    source: (?:ParseContentRange|InvalidRangeRequest) {$", re.MULTILINE)
"""The answers of servers, instead of 416, to a range of an empty object or a range from its end."""
_REDIRECTED = re.compile(r"^ +inner: BareRedirect", re.MULTILINE)
_NEVER_SENT = {"Connect", "Builder"}
_OPTION: Final = "root_certificate"


class ObstoreRequest(AbstractContextManager[None]):
    """A context manager for one request: translates the exceptions of obstore.

    It is a class because every request uses it, and a generator would be slower.
    """

    __slots__ = ("_contact", "_translated")

    def __init__(self, contact: Reachability, translated: Callable[[Exception], Exception | None]) -> None:
        self._contact = contact
        self._translated = translated

    def __exit__(self, kind: type[BaseException] | None, cause: BaseException | None, _: TracebackType | None) -> None:
        if cause is None:
            self._contact.made = True
        elif is_panic(cause):
            raise RuntimeError("obstore panicked") from None
        elif isinstance(cause, Exception) and not isinstance(cause, TooLarge | UnsupportedOperationError):
            text = _description(cause)
            if _STATUS.search(text) and not (_METADATA_SERVICE.search(text) or _FOR_CREDENTIALS.search(text)):
                self._contact.made = True
                self._contact.of_store |= bool(_CODE.search(text))
            if (answer := self._translated(cause)) is not None:
                raise self._contact.judged(answer) from None  # the cause contains hosts and texts of the server


def is_panic(error: BaseException) -> bool:
    """Whether an error is a panic in Rust, which is not an `Exception`; the class cannot be imported."""
    return type(error).__name__ == "PanicException"


def translated(
    cause: Exception,
    *,
    conditional: bool = False,
    of_object: bool = False,
    has_code: bool = False,
    reads: bool = False,
    ranged: bool = False,
    has_directories: bool = False,
    store: str = "S3",
) -> Exception | None:
    """Translate an exception of a request to one of `agent_memory.object_store.engine`.

    None for an exception that is not obstore's: a programming error. ``reads``: the request changes nothing. See
    `agent_memory.object_store.responses.refusal_of` for the other arguments.
    """
    if isinstance(cause, NotImplementedError) or type(cause).__name__ == "NotSupportedError":
        return UnsupportedOperationError(f"obstore does not support this operation on {store}")
    if not isinstance(cause, OSError | ValueError) and not _is_of_obstore(cause):
        return None
    text = _description(cause)
    if _METADATA_SERVICE.search(text):
        return NoResponse(_NO_CREDENTIALS[store], sent=False, lasting=True)
    status, code = _STATUS.search(text), _CODE.search(text)
    if _FOR_CREDENTIALS.search(text):
        return _without_credentials(text, int(status[1]) if status else 0, code[1] if code else "")
    if status:
        return refusal_of(
            int(status[1]),
            code[1] if code else "",
            conditional=conditional,
            of_object=of_object,
            has_code=has_code,
            ranged=ranged,
            has_directories=has_directories,
            store=store,
        )
    if _OF_PROVIDER.search(text):
        return PermanentError(
            f"{_NOT_OBTAINED}: the function in the option credential_provider failed, or returned none"
        )
    if _NO_JSON.search(text):
        return PermanentError(f"{_NOT_OBTAINED}: their service sent another answer than JSON")
    if ranged and _NO_RANGE.search(text):
        return NotSatisfiable()
    if _NO_ETAG.search(text):
        return PermanentError(NO_OBJECT) if reads else UnknownOutcome(NO_OBJECT)
    return _never_sent(cause, text) or _unanswered(cause, text, store)


def _without_credentials(text: str, status: int, code: str) -> NoResponse | PermanentError:
    """The exception for credentials that could not be obtained: the store got no request."""
    if not status:
        why = _lasting(text)
        kind = next(iter(_KIND.findall(text)), "no answer")
        return NoResponse(
            f"{_NOT_OBTAINED}: {why}" if why else f"{_NOT_OBTAINED} ({kind})", sent=False, lasting=bool(why)
        )
    answer = refusal_of(status, code, store="their service")
    told = f"{_NOT_OBTAINED}: {answer}"
    return NoResponse(told, sent=False) if isinstance(answer, NoResponse) else PermanentError(told)


def _never_sent(cause: Exception, text: str) -> PermanentError | None:
    if type(cause).__name__ == "InvalidPathError":
        return PermanentError(
            "there is a name in the bucket that obstore cannot read (with '..', '.' or nothing between two slashes):"
            " remove it, or list without engine='obstore', which skips it"
        )
    if isinstance(cause, ValueError):
        return PermanentError("obstore does not accept this name")
    if _REDIRECTED.search(text):
        return PermanentError("the bucket is in another region: set the option region")
    return PermanentError("no request could be made: the credentials cannot be read") if _UNSENT.search(text) else None


def _unanswered(cause: Exception, text: str, store: str) -> NoResponse:
    kinds = _KIND.findall(text)
    if "Connect" in kinds and (lasting := _lasting(text)):
        return NoResponse(lasting, sent=False, lasting=True)
    if _NO_LISTING.search(text):
        return NoResponse(f"the answer is not a listing of {store}", lasting=True)
    why = REFUSED if _REFUSED.search(text) else kinds[0] if kinds else type(cause).__name__
    return NoResponse(f"no reply from {store} ({why})", sent=_NEVER_SENT.isdisjoint(kinds))


def _lasting(text: str) -> str | None:
    why = next((why for why, form in _LASTING.items() if form.search(text)), None)
    unusable = unusable_certificates() if why == _TRUST else ""
    return f"{_UNUSABLE}: {unusable}" if unusable else why


def _description(cause: Exception) -> str:
    return str(cause).rpartition(_DESCRIPTION)[2]


def _is_of_obstore(cause: Exception) -> bool:
    return any(kind.__module__.startswith("obstore") for kind in type(cause).__mro__)


def unusable_certificates(options: Mapping[str, Any] | None = None) -> str:
    """The option or variable that gives no certificate, with advice; "" if there is none.

    Obstore reads certificates of authorities from variables and an option, and does not say which are bad.
    ``options``: those of obstore's client; None to look at the variables only.
    """
    given = next((value for name, value in (options or {}).items() if name.lower() == _OPTION), None)
    file, directory = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if isinstance(given, str) and not _loads(lambda context: context.load_verify_locations(cadata=given)):
        return f"option client_options.{_OPTION} is no certificate in PEM; give the text of its file"
    if file and not _loads(lambda context: context.load_verify_locations(file)):
        return "the variable SSL_CERT_FILE names no file with a certificate in PEM; correct it"
    if directory and not all(Path(each).is_dir() for each in directory.split(os.pathsep)):
        return "the variable SSL_CERT_DIR names no directory; correct it"
    return ""


def _loads(load: Callable[[ssl.SSLContext], None]) -> bool:
    try:
        load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    except (OSError, ValueError):
        return False
    return True
