"""One record of the audit log: a JSON line in ASCII that carries the hash of its own bytes.

``{"v":1,"alg":...,"bytes":...,"writer":...,"seq":...,"prev":...,"event":...,"time":...,<facts>,"hash":...}``

``bytes`` is the length of the line with its line feed; ``hash`` is of the bytes of the line before ``,"hash"``, SHA-256
in hexadecimal, keyed (HMAC, RFC 2104) where the writer has a key; ``prev`` is the hash of the writer's record before,
zeros for the first. A record holds no line feed but its last: whatever a name holds is escaped.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

START: Final = "0" * 64
"""What the first record of a writer has for the hash of the one before."""


def _literal(text: str) -> tuple[str, str]:
    """A text, and what any beginning of it matches."""
    return re.escape(text), "".join(f"(?:{re.escape(letter)}" for letter in text) + ")?" * len(text)


_PARTS = (
    _literal('{"v":1,"alg":"'), ("(hmac-sha256|sha256)", f"{_literal('hmac-sha256')[1]}|{_literal('sha256')[1]}"),
    _literal('","bytes":'), ("([1-9][0-9]{0,8})", ""),
    _literal(',"writer":"'), ("([0-9a-f]{16})", "[0-9a-f]*"),
    _literal('","seq":'), ("([1-9][0-9]{0,17})", ""),
    _literal(',"prev":"'), ("([0-9a-f]{64})", "[0-9a-f]*"),
    _literal('","event":"'), ("([a-z]{1,16})", ""),
    _literal('","time":"'),
)  # fmt: skip
"""The head of a line, part by part: each as a pattern, and the pattern of its beginnings."""
_HEAD = re.compile("".join(part for part, _ in _PARTS).encode())
_BEGINNINGS = [(re.compile(part.encode()), re.compile(begun.encode())) for part, begun in _PARTS]
_PRINTABLE = re.compile(rb"[ -~]*")
_JSON = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))
_HASH = b',"hash":"'
_TAIL = len(_HASH) + 64 + len(b'"}')


class Head(NamedTuple):
    """Where a record stands in its writer's chain, and what it is."""

    writer: str
    seq: int
    prev: str
    event: str
    hash: str
    keyed: bool
    whole: bool
    """Whether the line is as it was written."""


def encode(writer: str, seq: int, prev: str, event: str, seconds: float, facts: Mapping[str, object],
           key: bytes | None = None) -> tuple[bytes, str]:  # fmt: skip
    """The line of a record, and its hash; ``seconds`` is POSIX time, facts that are None are left out."""
    moment = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")
    known = {"time": moment, **{name: fact for name, fact in facts.items() if fact is not None}}
    rest = _JSON.encode(known)[1:-1]
    front = f'{{"v":1,"alg":"{"hmac-sha256" if key else "sha256"}","bytes":'
    back = f',"writer":"{writer}","seq":{seq},"prev":"{prev}","event":"{event}",{rest}'
    body = f"{front}{_length(len(front) + len(back) + _TAIL + 1)}{back}".encode("ascii")
    digest = _digest(body, key)
    return b'%b,"hash":"%b"}\n' % (body, digest.encode()), digest


def _length(others: int) -> int:
    """A number that counts its own digits too."""
    total = others + len(str(others))
    return others + len(str(total))


def head(line: bytes, key: bytes | None = None) -> Head | None:
    """Take a line, without its line feed, for a record; None if it is none."""
    match = _HEAD.match(line)
    if match is None or line[-_TAIL : -_TAIL + len(_HASH)] != _HASH or not line.endswith(b'"}'):
        return None
    alg, size, writer, seq, prev, event = match.groups()
    stated = line[-66:-2].decode("latin-1")
    keyed = alg != b"sha256"
    whole = int(size) == len(line) + 1 and _digest(line[:-_TAIL], key if keyed else None) == stated
    return Head(writer.decode(), int(seq), prev.decode(), event.decode(), stated, keyed, whole)


def _digest(body: bytes, key: bytes | None) -> str:
    return hmac.digest(key, body, "sha256").hex() if key else hashlib.sha256(body).hexdigest()


def torn_from(line: bytes) -> tuple[str, int, str] | tuple[()] | None:
    """Where a record would stand of which a line is the beginning, and no more; None if it is no beginning of one.

    That is: its writer, its number and the hash of the one before; nothing of them where the line ends earlier.
    """
    if match := _HEAD.match(line):
        torn = len(line) + 1 < int(match[2]) and _PRINTABLE.fullmatch(line, match.end())
        return (match[3].decode(), int(match[4]), match[5].decode()) if torn else None
    at = 0
    for part, begun in _BEGINNINGS:
        if (found := part.match(line, at)) is None:
            return () if line and begun.fullmatch(line, at) else None
        at = found.end()
    return None


def facts_of(line: bytes) -> dict[str, Any]:
    """All that a record says.

    Raises:
        ValueError: it is no JSON object.
    """
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found
