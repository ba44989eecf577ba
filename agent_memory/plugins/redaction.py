"""A filter of secrets: what looks like a credential is masked, refused or reported before it is written.

Found by the detectors of ``detect-secrets`` (extra ``redaction``) for credentials of a known form: keys and tokens of
services, private keys, passwords in URLs. Its detectors by entropy and by keyword are left out: in notes they find
mostly ordinary words.
"""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple, get_args

from agent_memory.errors import BackendNotAvailableError, OperationDenied
from agent_memory.hookspecs import Operation, hookimpl

Action = Literal["mask", "refuse", "report"]
_DETECTORS: Final = "detect_secrets"
_LEFT_OUT: Final = frozenset({"Public IP (ipv4)", "Private Key"})
"""No secret; and what is found here, because the detector knows of a key no more than its first line."""
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]*-----|\Z)", re.DOTALL
)
_PASSWORD_ALONE: Final = frozenset({"Basic Auth Credentials"})
_EDGES: Final = " \t\r\n\"'=:"
_MORE: Final = re.compile(r"(?:[A-Za-z0-9_+/=-]|\.(?=[A-Za-z0-9_]))*")
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
        self._action = action
        self._ignored = frozenset(ignore)
        self._known = _known_forms()
        try:
            self._own = [(kind, re.compile(pattern)) for kind, pattern in (patterns or {}).items()]
        except re.error as error:
            raise ValueError(f"a pattern is no regular expression: {error}") from None

    @hookimpl
    def agent_memory_filter_content(self, operation: Operation, content: bytes) -> bytes | None:
        """Mask what was found, or refuse it."""
        try:
            text = content.decode()
        except UnicodeDecodeError:
            return None
        found = sorted(each for each in self._found(text) if each.kind not in self._ignored)
        if not found:
            return None
        kinds = ", ".join(sorted({each.kind for each in found}))
        if self._action == "refuse":
            raise OperationDenied(f"{operation.path!r}: the content holds what looks like a secret: {kinds}")
        if self._action == "report":
            _log.warning("secrets agent=%s path=%s kinds=%s", operation.agent or "-", ascii(operation.path), kinds)
            return None
        return _masked(text, found).encode()

    def _found(self, text: str) -> Iterator[Found]:
        for match in _PRIVATE_KEY.finditer(text):
            yield Found(*match.span(), "Private Key")
        for kind, pattern in self._own:
            for match in pattern.finditer(text):
                yield Found(*match.span("secret" if "secret" in pattern.groupindex else 0), kind)
        for kind, pattern in self._known:
            for match in pattern.finditer(text):
                yield _whole(match, kind)


def _whole(match: re.Match[str], kind: str) -> Found:
    """What the secret is of a detector's match, which may have too much before it and too little behind."""
    if kind in _PASSWORD_ALONE:
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
        if issubclass(detector, base.RegexBasedDetector) and kind not in _LEFT_OUT
        for pattern in detector().denylist
    ]
