"""A filter of secrets: what looks like a credential is masked, refused or reported before it is written.

Found by the detectors of ``detect-secrets`` (extra ``redaction``) for credentials of a known form: keys and tokens of
services, private keys, passwords in URLs. Its detectors by entropy and by keyword are left out: in notes they find
mostly ordinary words.
"""

from __future__ import annotations

import bisect
import importlib
import logging
import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple, get_args

from agent_memory.errors import BackendNotAvailableError, OperationDenied
from agent_memory.hookspecs import Operation, hookimpl

Action = Literal["mask", "refuse", "report"]
_DETECTORS: Final = "detect_secrets"
_NO_SECRETS: Final = frozenset({"Public IP (ipv4)"})
_LINE_OF_KEY: Final = r"(?:[ \t]*\r?\n[ \t>]*(?:[A-Za-z][A-Za-z-]*: [^\r\n]*|[A-Za-z0-9+/=]+)?(?=[ \t]*(?:\r?\n|\Z)))*"
_OURS: Final = {  # where the detector's pattern knows too little of the secret, or takes time by the square
    "Private Key": (
        r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
        rf"(?:(?:(?!-----BEGIN).)*?-----END [A-Z0-9 ]*-----|{_LINE_OF_KEY})",
        r"---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----"
        rf"(?:(?:(?!---- BEGIN).)*?---- END SSH2 ENCRYPTED PRIVATE KEY ----|{_LINE_OF_KEY})",
        rf"PuTTY-User-Key-File-\d:[^\r\n]*(?:(?:(?!PuTTY-User).)*?Private-MAC: [0-9a-f]+|{_LINE_OF_KEY})",
    ),
    "Basic Auth Credentials": (
        r"://[^\s/:@\"'<>]*:(?!\d{1,5}[,;)'\]&]|(?:\$[A-Z_][A-Z0-9_]*|%[A-Za-z_]+%|\*+|\[[^\]\s]*\])@)"
        r"(?P<secret>[^\s/\"<>{}]+)@",  # braces and angles are of placeholders; a short number is a port
    ),
    "JSON Web Token": (r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_=-]+\.[A-Za-z0-9_=-]+(?:\.[A-Za-z0-9_+/=-]+)?",),
    "NPM tokens": (r":_authToken=[ \t]*(?P<secret>[A-Za-z0-9_-]{16,})",),
}
_ESCAPE: Final = re.compile(r"\\+[nrt\"]|\"")  # of JSON in JSON, too
_FILLING: Final = "\ufffc"
_EDGES: Final = " \t\r\n\"'=:"
_SECRET_GROUP: Final = 16
"""Of a match with one group of so many characters, the group is the secret; a shorter one is a part of it."""
_MORE: Final = re.compile(r"[A-Za-z0-9_+=-]*")
_log = logging.getLogger("agent_memory")


class Found(NamedTuple):
    """Where a secret stands in a text, and of what kind it is."""

    start: int
    end: int
    kind: str


class RedactionPlugin:
    """Looks for secrets in every text that is about to be written; of an append, in the appended text alone.

    A secret that is split over two appends, or written by an operation that moves files, is not found. Content that is
    not UTF-8 is not looked at. What was found is never told, only its kind.

    Args:
        action: "mask" writes ``[redacted: KIND]`` instead, "refuse" raises `OperationDenied`, "report" logs a warning.
        patterns: regular expressions of secrets of your own, each with its kind; of one with a group ``secret`` that
            part is the secret.
        ignore: kinds to let pass, as they are told.

    Raises:
        BackendNotAvailableError: ``detect-secrets`` is not installed.
        ValueError: another action, or a pattern that is no regular expression.
    """

    def __init__(
        self, action: Action = "mask", *, patterns: dict[str, str] | None = None, ignore: Collection[str] = ()
    ) -> None:
        if action not in get_args(Action):
            raise ValueError(f"action is one of {', '.join(get_args(Action))}, not {action!r}")
        if isinstance(ignore, str) or not all(isinstance(kind, str) for kind in ignore):
            raise ValueError("ignore is a list of kinds")
        if not isinstance(patterns or {}, dict) or any("]" in kind or "\n" in kind for kind in patterns or {}):
            raise ValueError("patterns is a table of regular expressions by kind; a kind is a line without ']'")
        self._action = action
        self._ignored = frozenset(ignore)
        self._known = _known_forms()
        self._ours = [(kind, re.compile(form, re.DOTALL)) for kind, forms in _OURS.items() for form in forms]
        try:
            self._own = [(kind, re.compile(pattern)) for kind, pattern in (patterns or {}).items()]
        except re.error as error:
            raise ValueError(f"a pattern is no regular expression: {error}") from None
        kinds = sorted({kind for kind, _ in (*self._known, *self._ours, *self._own)})
        self._mark = re.compile(rf"\[redacted: (?:{'|'.join(map(re.escape, kinds))})\]")

    @hookimpl
    def agent_memory_filter_content(self, operation: Operation, content: bytes) -> bytes | None:
        """Mask what was found, or refuse it."""
        try:
            text = content.decode()
        except UnicodeDecodeError:
            return None
        marks = [match.span() for match in self._mark.finditer(text)]
        found = sorted(
            each
            for each in self._found_in(_Reading(text, marks))
            if each.kind not in self._ignored and each.start < each.end and not _covered(marks, each)
        )
        if not found:
            return None
        kinds = ", ".join(sorted({each.kind for each in found}))
        if self._action == "refuse":
            raise OperationDenied(f"{operation.path!r}: the content holds what looks like a secret: {kinds}")
        if self._action == "report":
            _log.warning("secrets agent=%s path=%s kinds=%s", operation.agent or "-", ascii(operation.path), kinds)
            return None
        return _masked(text, found).encode()

    def _found_in(self, reading: _Reading) -> Iterator[Found]:
        yield from self._found(reading.text)
        if reading.plain != reading.text:
            yield from map(reading.in_text, self._found(reading.plain))

    def _found(self, text: str) -> Iterator[Found]:
        for kind, pattern in (*self._ours, *self._own):
            for match in pattern.finditer(text):
                group = "secret" if "secret" in pattern.groupindex and match["secret"] is not None else 0
                start, end = match.span(group)
                yield Found(start, end, kind)
        for kind, pattern in self._known:
            for match in pattern.finditer(text):
                yield _whole(match, kind)


class _Reading:
    """A text, and as it reads without JSON's escapes: the same places, with line ends for those and for quotes.

    What was masked before is one word in it, so that a secret is found of which somebody masked a part.
    """

    def __init__(self, text: str, marks: Sequence[tuple[int, int]]) -> None:
        self.text = text
        self._escapes: list[tuple[int, int]] = []
        plain = _ESCAPE.sub(self._line_end, text) if "\\" in text else text
        parts: list[str] = []
        at = 0
        for start, end in marks:
            parts += plain[at:start], _FILLING * (end - start)
            at = end
        self.plain = "".join((*parts, plain[at:]))

    def in_text(self, found: Found) -> Found:
        """What was found in `plain`, with no part of an escape at its ends."""
        return Found(self._escape_at(found.start)[0], self._escape_at(found.end)[1], found.kind)

    def _escape_at(self, place: int) -> tuple[int, int]:
        """Where the escape begins and ends in whose middle a place is; else the place itself."""
        index = bisect.bisect_left(self._escapes, (place, 0)) - 1
        return self._escapes[index] if index >= 0 and place < self._escapes[index][1] else (place, place)

    def _line_end(self, escape: re.Match[str]) -> str:
        self._escapes.append(escape.span())
        return " " * (len(escape[0]) - 1) + "\n"


def _covered(marks: Sequence[tuple[int, int]], found: Found) -> bool:
    """Whether what was found is nothing but what was masked before."""
    at, place = found.start, bisect.bisect_right(marks, (found.start, math.inf)) - 1
    while 0 <= place < len(marks) and marks[place][0] <= at < marks[place][1]:
        at, place = marks[place][1], place + 1
    return at >= found.end


def _whole(match: re.Match[str], kind: str) -> Found:
    """What the secret is of a detector's match, which may have too much before it and too little behind."""
    if match.re.groups == 1 and match[1] and len(match[1]) >= _SECRET_GROUP:
        return Found(*match.span(1), kind)
    secret = match[0].rstrip(_EDGES)
    start = match.end() - len(match[0].lstrip(_EDGES))
    end = match.start() + len(secret)
    more = _MORE.match(match.string, end)
    return Found(start, more.end() if more else end, kind)


def _masked(text: str, found: Iterable[Found]) -> str:
    parts: list[str] = []
    at = 0
    for start, end, kind in found:
        if start >= at:
            parts += text[at:start], f"[redacted: {kind}]"
        at = max(at, end)
    return "".join((*parts, text[at:]))


def _known_forms() -> list[tuple[str, re.Pattern[str]]]:
    """The forms of credentials that detect-secrets knows, by their kind."""
    try:
        base: Any = importlib.import_module(f"{_DETECTORS}.plugins.base")
        known: Any = importlib.import_module(f"{_DETECTORS}.core.plugins.util")
    except ImportError as error:
        advice = "redaction needs detect-secrets: pip install 'agent-memory[redaction]'"
        raise BackendNotAvailableError(advice) from error
    by_kind: dict[str, Any] = known.get_mapping_from_secret_type_to_class()
    return [
        (kind, pattern)
        for kind, detector in by_kind.items()
        if issubclass(detector, base.RegexBasedDetector) and kind not in {*_NO_SECRETS, *_OURS}
        for pattern in detector().denylist
    ]
