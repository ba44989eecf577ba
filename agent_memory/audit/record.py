"""One record of the audit log: a JSON line in ASCII that contains the hash of its own bytes.

``{"v":1,"alg":...,"bytes":...,"writer":...,"seq":...,"prev":...,"nonce":...,"event":...,"time":...,<facts>,
"hash":...}``

``bytes`` is the length of the line with its line feed. ``hash`` is the SHA-256 in hexadecimal of all bytes of the line
before ``,"hash"``, or their HMAC (RFC 2104) if the writer has a key. ``prev`` is the hash of the writer's previous
record, zeros for the first. ``nonce`` is new for each record, from the kernel, because two processes that were restored
from one image may write the same facts at the same time. The only line feed of a record is its last byte: line feeds in
names are escaped.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from agent_memory._json import parse_json

START: Final = "0" * 64
"""The previous hash in the first record of a writer."""


def _literal(text: str) -> tuple[str, str]:
    """A pattern that matches a text, and a pattern that matches any beginning of it."""
    return re.escape(text), "".join(f"(?:{re.escape(letter)}" for letter in text) + ")?" * len(text)


_PARTS = (
    _literal('{"v":1,"alg":"'), ("(hmac-sha256|sha256)", f"{_literal('hmac-sha256')[1]}|{_literal('sha256')[1]}"),
    _literal('","bytes":'), ("([1-9][0-9]{0,8})", ""),
    _literal(',"writer":"'), ("([0-9a-f]{16})", "[0-9a-f]*"),
    _literal('","seq":'), ("([1-9][0-9]{0,17})", ""),
    _literal(',"prev":"'), ("([0-9a-f]{64})", "[0-9a-f]*"),
    _literal('","nonce":"'), ("([0-9a-f]{8})", "[0-9a-f]*"),
    _literal('","event":"'), ("([a-z]{1,16})", ""),
    _literal('","time":"'),
)  # fmt: skip
"""The head of a line, part by part: the pattern of the part, and the pattern of its beginnings."""
_HEAD = re.compile("".join(part for part, _ in _PARTS).encode())
_BEGINNINGS = [(re.compile(part.encode()), re.compile(begun.encode())) for part, begun in _PARTS]
_PRINTABLE = re.compile(rb"[ -~]*")
_JSON = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))
_HASH = b',"hash":"'
_TAIL = len(_HASH) + 64 + len(b'"}')


class Head(NamedTuple):
    """The head of a record: its place in its writer's chain, its event and its hash."""

    writer: str
    seq: int
    prev: str
    nonce: str
    event: str
    hash: str
    keyed: bool
    whole: bool
    """Whether the line still has the length and the hash that it states."""


def encode(writer: str, seq: int, prev: str, event: str, seconds: float, facts: Mapping[str, object],
           key: bytes | None = None) -> tuple[bytes, str]:  # fmt: skip
    """Encode a record as a line, and return it with its hash; ``seconds`` is POSIX time, facts of None are omitted."""
    moment = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")
    known = {"time": moment, **{name: fact for name, fact in facts.items() if fact is not None}}
    rest = _JSON.encode(known)[1:-1]
    front = f'{{"v":1,"alg":"{"hmac-sha256" if key else "sha256"}","bytes":'
    back = f',"writer":"{writer}","seq":{seq},"prev":"{prev}","nonce":"{secrets.token_hex(4)}","event":"{event}",{rest}'
    body = f"{front}{_length(len(front) + len(back) + _TAIL + 1)}{back}".encode("ascii")
    digest = _digest(body, key)
    return b'%b,"hash":"%b"}\n' % (body, digest.encode()), digest


def quoted(text: str) -> bytes:
    """A text as `encode` writes it in a record, with its quotes."""
    return _JSON.encode(text).encode("ascii")


def _length(others: int) -> int:
    """The total of ``others`` and the count of the total's own digits."""
    total = others + len(str(others))
    return others + len(str(total))


def head(line: bytes, key: bytes | None = None) -> Head | None:
    """Parse the head of a line without its line feed; None if the line is not a record."""
    match = _HEAD.match(line)
    if match is None or line[-_TAIL : -_TAIL + len(_HASH)] != _HASH or not line.endswith(b'"}'):
        return None
    alg, size, writer, seq, prev, nonce, event = match.groups()
    stated = line[-66:-2].decode("latin-1")
    keyed = alg != b"sha256"
    whole = int(size) == len(line) + 1 and _digest(line[:-_TAIL], key if keyed else None) == stated
    names = (prev.decode(), nonce.decode(), event.decode())
    return Head(writer.decode(), int(seq), *names, stated, keyed, whole)


def _digest(body: bytes, key: bytes | None) -> str:
    return hmac.digest(key, body, "sha256").hex() if key else hashlib.sha256(body).hexdigest()


def torn_from(line: bytes) -> tuple[str, int, str] | tuple[()] | None:
    """Parse a record cut off while it was written: its writer, number and previous hash.

    Returns () if the record was cut before them, and None if the line does not begin a record.
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
    """All fields of a record.

    Raises:
        ValueError: the line is not a JSON object.
    """
    found = parse_json(line)
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found
