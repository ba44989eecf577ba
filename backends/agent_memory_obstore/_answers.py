"""What obstore raises instead of results; the one place that knows its exceptions.

They have neither status nor code: both are read from the description of the cause at the end of the text, where what a
server or a name brings along is quoted. What comes before has it as it is, and is not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

from agent_memory.errors import UnsupportedOperationError
from agent_memory.object_store import Failed, FirstContact, NotSatisfiable, TooLarge, Unanswered, refusal_of

_DESCRIPTION = "\n\nDebug source:\n"
_STATUS = re.compile(r"^ +(?:status: |code: \")(\d{3})\"?,$", re.MULTILINE)
_CODE = re.compile(r"^ +body: Some\(\n.*?<Code>(\w+)</Code>", re.MULTILINE)
_KIND = re.compile(r"^ +kind: (\w+),$", re.MULTILINE)
_UNSENT = re.compile(r"^    source: \"", re.MULTILINE)
_METADATA_SERVICE = re.compile(r"^ +\w+://[^/]+/latest/(?:api|meta-data)\b", re.MULTILINE)
_NO_RANGE = re.compile(r"^    source: (?:ParseContentRange|InvalidRangeRequest) {$", re.MULTILINE)
"""What servers answer of an empty object, or from its very end on, instead of 416."""
_REDIRECTED = re.compile(r"^ +inner: BareRedirect", re.MULTILINE)
_NEVER_SENT = {"Connect", "Builder"}


class Request(AbstractContextManager[None]):
    """One request: what obstore raises in it is raised as what it stands for.

    A class, because every request is in one, and a generator costs more.
    """

    __slots__ = ("_contact", "_translated")

    def __init__(self, contact: FirstContact, translated: Callable[[Exception], Exception | None]) -> None:
        self._contact = contact
        self._translated = translated

    def __exit__(self, kind: type[BaseException] | None, cause: BaseException | None, _: TracebackType | None) -> None:
        if cause is None:
            self._contact.made = True
        elif kind and kind.__name__ == "PanicException":
            raise RuntimeError("obstore panicked") from None  # no `Exception`, which callers would not expect
        elif isinstance(cause, Exception) and not isinstance(cause, TooLarge | UnsupportedOperationError):
            if "Server returned" in str(cause):
                self._contact.made = True
            if (answer := self._translated(cause)) is not None:
                raise self._contact.given_up(answer) from None  # the cause tells hosts, and what a server tells


def translated(
    cause: Exception,
    *,
    conditional: bool = False,
    of_object: bool = False,
    ranged: bool = False,
    keeps_directories: bool = False,
    store: str = "S3",
) -> Exception | None:
    """The answer, as `agent_memory.object_store` has them, that an exception to a request stands for.

    None for an exception that is not obstore's: a mistake of code. See `agent_memory.object_store.refusal_of` for the
    arguments.
    """
    if isinstance(cause, NotImplementedError) or type(cause).__name__ == "NotSupportedError":
        return UnsupportedOperationError(f"obstore does not do that on {store}")
    if not isinstance(cause, OSError | ValueError) and not _is_of_obstore(cause):
        return None
    text = str(cause).rpartition(_DESCRIPTION)[2]
    status, code = _STATUS.search(text), _CODE.search(text)
    if status:
        return refusal_of(
            int(status[1]),
            code[1] if code else "",
            conditional=conditional,
            of_object=of_object,
            ranged=ranged,
            keeps_directories=keeps_directories,
            store=store,
        )
    if ranged and _NO_RANGE.search(text):
        return NotSatisfiable()
    name = type(cause).__name__
    if name == "InvalidPathError":
        return Failed(
            "there is a name in the bucket that obstore cannot read (with '..', '.' or nothing between two slashes):"
            " remove it, or list without engine='obstore', which skips it"
        )
    if isinstance(cause, ValueError):
        return Failed("obstore does not take that name")
    if _REDIRECTED.search(text):
        return Failed("the bucket is in another region: name it by the option region")
    if _UNSENT.search(text):
        return Failed("no request could be made: the credentials cannot be read")
    if _METADATA_SERVICE.search(text):
        return Unanswered("there are no credentials, and no metadata service gives any", sent=False)
    kinds = _KIND.findall(text)
    return Unanswered(f"no reply from {store} ({kinds[0] if kinds else name})", sent=_NEVER_SENT.isdisjoint(kinds))


def _is_of_obstore(cause: Exception) -> bool:
    return any(kind.__module__.startswith("obstore") for kind in type(cause).__mro__)
