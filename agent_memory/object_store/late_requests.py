"""The ETags that late requests may carry, which a new object must not get.

On most servers an ETag depends only on the content. So a conditional DELETE that arrives late, or a second time, also
deletes a newer file with the same name and the same bytes. A write that would create such a file gives it another ETag,
the ETag of an upload of one part. Two sources list the ETags to avoid:

- `LateRequests`: the conditional requests that this process sent.
- `FormerName`: in the metadata of a copy, the names that the content had before. Another process may have deleted it
  there, or does so next, to complete a rename.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from agent_memory.errors import ConflictError
from agent_memory.key import Key

LATE_SECONDS: Final = 300.0
"""The longest time between the sending and the arrival of a request that a network or a proxy delays."""
MOST_FORMER_NAMES: Final = 16
_MOST_OF_OWN_NAME: Final = 8
_MOST_PLACES: Final = 10_000
_MOST_ETAGS: Final = 64
_NAME_DIGITS: Final = 8
_ETAG_DIGITS: Final = 12
_TEXT = re.compile(r"[0-9a-f]{8}:[0-9a-f]{12}:[0-9a-f]{1,9}(?: [0-9a-f]{8}:[0-9a-f]{12}:[0-9a-f]{1,9})*\Z")
_MD5 = re.compile(r"[0-9a-f]{32}\Z")


class FormerName(NamedTuple):
    """A name that a content had before a copy.

    Attributes:
        name: the digest of the object's name.
        etag: the digest of the ETag that it had there.
        until: the time until which a request that deletes it there may arrive, in POSIX seconds of the store's clock.
    """

    name: str
    etag: str
    until: int

    @staticmethod
    def of(name: str, etag: str, until: float) -> FormerName:
        """Return the former name of an object that is copied."""
        return FormerName(_digest(name, _NAME_DIGITS), etag_digest(etag), int(until) + 1)

    @staticmethod
    def all_of(name: str, carried: Mapping[str, float]) -> tuple[FormerName, ...]:
        """Return the former names of an object whose own name has late requests: of the eight that may arrive last."""
        latest = sorted(carried.items(), key=lambda each: each[1])[-_MOST_OF_OWN_NAME:]
        return tuple(FormerName(_digest(name, _NAME_DIGITS), etag, int(until) + 1) for etag, until in latest)

    @staticmethod
    def to_text(names: Iterable[FormerName]) -> str:
        """The stored form of several former names, in ASCII."""
        return " ".join(f"{name}:{etag}:{until:x}" for name, etag, until in names)

    @staticmethod
    def parse(text: str) -> tuple[FormerName, ...]:
        """The inverse of `to_text`; () for any other text."""
        if not _TEXT.match(text):
            return ()
        parts = (each.split(":") for each in text.split())
        return tuple(FormerName(name, etag, int(until, 16)) for name, etag, until in parts)


class TooSoonError(Exception):
    """A late request may carry every ETag that the content can have, for some more ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def about(self, key: Key) -> ConflictError:
        """The error for the file, which is not created."""
        return ConflictError(
            "this content had this name a short time ago, and a request from that time may still arrive and delete it; "
            f"nothing was changed; try again in {max(1, round(self.seconds))} s",
            path=key.path,
        )


class LateRequests:
    """The ETags of the conditional requests that this process sent in the last minutes, by place.

    At most 10,000 places with at most 64 ETags each; the oldest are dropped first.
    """

    def __init__(self) -> None:
        self._until: dict[tuple[str, str], dict[str, float]] = {}

    def note(self, place: tuple[str, str], etag: str, now: float) -> None:
        """Remember that a request with this condition was sent; ``now`` is the store's clock."""
        carried = list(self.carried(place, now).items())[1 - _MOST_ETAGS :]
        self._until.pop(place, None)  # the place becomes the youngest
        self._until[place] = {**dict(carried), etag_digest(etag): now + LATE_SECONDS}
        if len(self._until) > _MOST_PLACES:
            self._until.pop(next(iter(self._until)))

    def carried(self, place: tuple[str, str], now: float) -> dict[str, float]:
        """The digests of the ETags that requests may still carry, each with the time until which they may arrive."""
        return {etag: until for etag, until in self._until.get(place, {}).items() if until > now}


def etag_digest(etag: str) -> str:
    """The digest of an ETag, with or without its quotes."""
    return _digest(etag.strip('"'), _ETAG_DIGITS)


def etag_of_put(data: bytes) -> str:
    """The ETag of an object that a PUT writes, on a server whose ETags depend only on the content."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def etag_of_parts(etags: Sequence[str]) -> str:
    """The ETag of an upload of parts with these ETags; "" if these are no digests of the content."""
    parts = [etag.strip('"') for etag in etags]
    if not all(map(_MD5.match, parts)):
        return ""
    whole = hashlib.md5(bytes.fromhex("".join(parts)), usedforsecurity=False).hexdigest()
    return f"{whole}-{len(parts)}"


def carried_at(names: Iterable[FormerName], name: str, now: float) -> dict[str, float]:
    """The same as `LateRequests.carried`, for the content of a copy that gets a name."""
    digest = _digest(name, _NAME_DIGITS)
    return {former.etag: former.until for former in names if former.name == digest and former.until > now}


def with_former_name(names: Iterable[FormerName], former: FormerName, now: float) -> tuple[FormerName, ...]:
    """The former names of a copy; raises `TooSoonError` if there are too many."""
    kept = [each for each in names if each.until > now and each[:2] != former[:2]]
    if len(kept) >= MOST_FORMER_NAMES:
        raise TooSoonError(min(each.until for each in kept) - now)
    return (*kept, former)


def require_another_etag(etag: str, avoided: Mapping[str, float], now: float) -> None:
    """Raise `TooSoonError` if a late request may carry an ETag."""
    if (until := avoided.get(etag_digest(etag))) is not None:
        raise TooSoonError(until - now)


def _digest(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:digits]
