"""A valid name near a refused one, and whether the refused one tried to escape.

Only the first characters of a hostile text are ever looked at, so both answers cost the same for 50 MB.
"""

from __future__ import annotations

import html
import re
import unicodedata
from urllib.parse import unquote

from agent_memory import _grammar

_LOOKED_AT = 1024
_MAX_DECODINGS = 8
_OVERLONG = {"%c0%ae": ".", "%c0%af": "/", "%c1%9c": "\\"}
_OVERLONG_PATTERN = re.compile("|".join(_OVERLONG), re.IGNORECASE)
_PERCENT_U = re.compile(r"%u([0-9A-Fa-f]{4})", re.IGNORECASE)
_BETWEEN_WORDS = re.compile(r"(?<=\w)" + _grammar.PUNCTUATION.pattern + r"(?=\w)")


def is_escape(text: str) -> bool:
    """Whether the text, once every encoding in it is undone, reaches outside its tree."""
    plain = unicodedata.normalize("NFKC", _decoded(text)).replace("\\", "/")
    plain = _grammar.INVISIBLE.sub("", plain).replace(" ", "")
    rooted = plain.startswith(("/", "~")) or _grammar.DRIVE.match(plain) is not None
    return rooted or ".." in plain.split("/")


def suggestion(text: str) -> str:
    """A name that keeps what it can of a refused path; the caller parses it once more."""
    plain = _decoded(text).replace("\\", "/")
    plain = re.sub(r"^[A-Za-z]:(?=/)", "", plain).lstrip("/~ ")
    segments = [mended for segment in plain.split("/") if (mended := _mended(segment))]
    if segments and segments[0].lower() == _grammar.RESERVED:
        segments[0] = _grammar.RESERVED.lstrip(".")
    segments = segments[-_grammar.MAX_SEGMENTS :]
    while len(segments) > 1 and len("/".join(segments).encode()) > _grammar.MAX_BYTES:
        segments = segments[1:]
    return "/".join(segments)


def _decoded(text: str) -> str:
    text = text[:_LOOKED_AT].encode(errors="ignore").decode()
    for _ in range(_MAX_DECODINGS):
        before = text
        text = _OVERLONG_PATTERN.sub(lambda m: _OVERLONG[m[0].lower()], text)
        text = _PERCENT_U.sub(lambda m: chr(int(m[1], 16)), text)
        text = html.unescape(unquote(text)).encode(errors="ignore").decode()
        if text == before:
            break
    return text


def _mended(segment: str) -> str:
    segment = unicodedata.normalize("NFC", _grammar.BLANK.sub(" ", segment))
    if _grammar.is_lookalike(segment):
        segment = unicodedata.normalize("NFKC", segment).replace("/", "-").replace("\\", "-")
    segment = _without_stray_joiners(_grammar.INVISIBLE.sub("", segment))
    segment = _grammar.PUNCTUATION.sub("", _BETWEEN_WORDS.sub("-", segment))
    if _grammar.ENCODED.search(segment):
        segment = segment.replace("%", "-").replace("&", "-")
    segment = segment.strip(" ").rstrip(". ").removesuffix(_grammar.TEMPORARY_SUFFIX)
    if _grammar.DEVICE.match(segment):
        segment = "_" + segment
    return unicodedata.normalize("NFC", _shortened(segment)).strip(" ").rstrip(". ")


def _without_stray_joiners(segment: str) -> str:
    stray = set(_grammar.stray_joiners(segment))
    return "".join(c for i, c in enumerate(segment) if i not in stray)


def _shortened(segment: str) -> str:
    stem, dot, extension = segment.rpartition(".")
    if not stem or len(extension.encode()) > 16:
        stem, dot, extension = segment, "", ""
    room = _grammar.MAX_SEGMENT_BYTES - len((dot + extension).encode())
    return stem.encode()[:room].decode(errors="ignore") + dot + extension
