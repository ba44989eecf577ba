"""Preconditions of calls: the values of the contract, and the SHA-256 of a content."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from agent_memory.backend import ABSENT, ANY, PRESENT, ETag, ReadWhen, When, WriteWhen
from agent_memory.errors import InvalidContentError

_SHA256: Final = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True)
class SHA256:
    """The precondition that a file's content has this digest; the call reads the file to compare it.

    Args:
        digest: the 64 hexadecimal digits of the SHA-256, for example `WriteResult.sha256`.

    Raises:
        InvalidContentError: ``digest`` is no SHA-256.
    """

    digest: str

    def __post_init__(self) -> None:
        digest = self.digest.lower() if isinstance(self.digest, str) else ""
        if not _SHA256.match(digest):
            raise InvalidContentError("SHA256 takes the 64 hexadecimal digits of a SHA-256, as a str")
        object.__setattr__(self, "digest", digest)


WriteCondition: TypeAlias = WriteWhen | SHA256
"""``ANY``, ``ABSENT``, ``PRESENT``, an etag, or a `SHA256`."""
EditCondition: TypeAlias = Literal[When.ANY, When.PRESENT] | ETag | SHA256
"""``ANY``, ``PRESENT``, an etag, or a `SHA256`."""
DeleteCondition: TypeAlias = ReadWhen | SHA256
"""``ANY``, an etag, or a `SHA256`."""
SourceCondition: TypeAlias = Literal[When.PRESENT] | ETag
"""``PRESENT``, or an etag."""
RestoreCondition: TypeAlias = Literal[When.PRESENT, When.ABSENT] | ETag
"""``PRESENT``, ``ABSENT``, or an etag."""


def require_condition(when: object, *states: When, by_content: bool = True) -> None:
    """Raise unless a call allows a precondition.

    Args:
        when: the precondition.
        states: the values without an etag that the call allows.
        by_content: whether it allows a `SHA256`.

    Raises:
        TypeError: ``when`` is anything else, for example None or a str.
    """
    if when in states if isinstance(when, When) else isinstance(when, (ETag, SHA256) if by_content else ETag):
        return
    allowed = ", ".join(state.name for state in states)
    digest = ", an ETag or a SHA256" if by_content else " or an ETag"
    given = when.name if isinstance(when, When) else type(when).__name__
    advice = "; stat() has the etag of a file" if when is None else ""
    raise TypeError(f"when must be {allowed}{digest}, not {given}{advice}")


def state_of_source(when: SourceCondition) -> ReadWhen:
    """Return the precondition for the backend: ``ANY`` for ``PRESENT``, because the call refuses a missing source.

    Raises:
        TypeError: ``when`` is neither ``PRESENT`` nor an etag.
    """
    require_condition(when, PRESENT, by_content=False)
    return when if isinstance(when, ETag) else ANY


def state_of_restore(when: RestoreCondition) -> WriteWhen:
    """Return the precondition for the backend; ``PRESENT`` requires nothing of the current file.

    Raises:
        TypeError: ``when`` is neither ``PRESENT``, ``ABSENT`` nor an etag.
    """
    require_condition(when, PRESENT, ABSENT, by_content=False)
    return ANY if when is PRESENT else when


class DefaultCondition:
    """The type of `BY_MISSING`."""


BY_MISSING: Final = DefaultCondition()
"""The default precondition of an edit: ``ANY`` if ``missing`` is given, and ``PRESENT`` otherwise."""


def checked_edit(when: EditCondition | DefaultCondition, missing: object) -> EditCondition:
    """Return the precondition of an edit.

    Raises:
        TypeError: ``when`` is no precondition of an edit; or it is ``ANY`` without ``missing``, or another one with it.
    """
    if isinstance(when, DefaultCondition):
        return PRESENT if missing is None else ANY
    require_condition(when, *((ANY, PRESENT) if when is ANY or missing is not None else (PRESENT,)))
    if when is ANY and missing is None:
        raise TypeError("when=ANY needs missing=, the text of which the edit creates a missing file")
    if when is not ANY and missing is not None:
        raise TypeError("missing= creates a missing file, so it excludes every precondition but when=ANY")
    return when
