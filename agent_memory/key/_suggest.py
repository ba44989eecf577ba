"""Suggests a valid name for a refused one, and detects a refused name that leads outside its tree.

Both functions read at most the first 1,024 characters, so that a hostile text of 50 MB costs no more time.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable
from urllib.parse import unquote

from agent_memory.key import _grammar

_LOOKED_AT = 1024
_SHOWN = 80
_TOOL_ROOT = "memories"
"""A model's memory tool names the top of a tree ``/memories``."""
_OVERLONG = {
    **dict.fromkeys(("%c0%ae", "%e0%80%ae", "%f0%80%80%ae"), "."),
    **dict.fromkeys(("%c0%af", "%e0%80%af", "%f0%80%80%af"), "/"),
    **dict.fromkeys(("%c1%9c", "%e0%81%9c", "%f0%80%81%9c"), "\\"),
}
_OVERLONG_PATTERN = re.compile("|".join(_OVERLONG), re.IGNORECASE)
_PERCENT_U = re.compile(r"%u([0-9A-Fa-f]{4})", re.IGNORECASE)
_UNSEEN = re.compile(f"{_grammar.INVISIBLE.pattern}|{_grammar.BLANK.pattern}|{_grammar.JOINER.pattern}| ")
_BETWEEN_WORDS = re.compile(r"(?<=\w)" + _grammar.PUNCTUATION.pattern + r"(?=\w)")


def shown(text: object) -> str:
    """Return a refused text for a message: escaped to ASCII and cut to 80 characters."""
    if not isinstance(text, str):
        return f"a value of type {type(text).__name__}"
    return ascii(str.__str__(text)[:_SHOWN]) + ("..." if len(text) > _SHOWN else "")


def is_escape(text: str) -> bool:
    """Whether the text, after decoding all encodings in it, leads outside its tree."""
    plain = unicodedata.normalize("NFKC", _decoded(text)).replace("\\", "/")
    plain = _UNSEEN.sub("", plain)
    segments = [segment for segment in plain.split("/") if segment not in ("", ".")]
    home = bool(segments) and segments[0].startswith("~")
    return home or plain.startswith("/") or _grammar.DRIVE.match(plain) is not None or ".." in segments


def suggestion(text: str, most_bytes: int, most_segments: int) -> str:
    """Return a name that is similar to a refused path; it may be invalid too, so the caller checks it.

    If the path names a file of the tree in another form, with ``..`` or as a model's memory tool does
    (``/memories/a.md``), the suggestion is the name of that file. A part of it begins with a dot, as hidden files do,
    only if that part of the path does.
    """
    plain = re.sub(r"^([A-Za-z]):(?!/)", r"\1-", _decoded(text).replace("\\", "/"))
    plain = re.sub(r"^[A-Za-z]:(?=/)", "", plain)
    named = _resolved(plain.lstrip("/~ ").split("/"))
    if plain.startswith("/") and named[:1] == [_TOOL_ROOT]:
        named = named[1:]
    hidden = {_decoded(part) for part in re.split(r"[/\\]", text[:_LOOKED_AT]) if part.startswith(".")}
    segments = [mended for segment in named if (mended := _mended(segment, is_hidden=segment in hidden))]
    if segments and segments[0].startswith("~"):
        segments[0] = segments[0].lstrip("~ .") or "_"
    if segments and segments[0].lower() == _grammar.RESERVED:
        segments[0] = _grammar.RESERVED.lstrip(".")
    segments = segments[-most_segments:] if most_segments > 0 else []
    while len(segments) > 1 and len("/".join(segments).encode()) > most_bytes:
        segments = segments[1:]
    return "/".join(segments)


def _resolved(segments: Iterable[str]) -> list[str]:
    """Return the segments after each ``..`` has removed the segment before it."""
    left: list[str] = []
    for segment in segments:
        if _UNSEEN.sub("", unicodedata.normalize("NFKC", segment)) == "..":
            del left[-1:]
        elif segment not in ("", "."):
            left.append(segment)
    return left


def _decoded(text: str) -> str:
    text = text[:_LOOKED_AT].encode(errors="ignore").decode()
    before = ""
    while text != before:  # each decoding makes the text shorter
        before = text
        text = _OVERLONG_PATTERN.sub(lambda m: _OVERLONG[m[0].lower()], text)
        text = _PERCENT_U.sub(lambda m: chr(int(m[1], 16)), text)
        text = html.unescape(unquote(text)).encode(errors="ignore").decode()
    return text


def _mended(segment: str, *, is_hidden: bool) -> str:
    segment = unicodedata.normalize("NFC", _grammar.BLANK.sub(" ", re.sub(r"[\t\n\r]+", " ", segment)))
    if _grammar.is_lookalike(segment):
        segment = unicodedata.normalize("NFKC", segment).replace("/", "-").replace("\\", "-")
    segment = _without_stray_joiners(_without_invisible(segment))
    segment = _without_invisible(_grammar.PUNCTUATION.sub("", _BETWEEN_WORDS.sub("-", segment)))
    if _grammar.ENCODED.search(segment):
        segment = segment.replace("%", "-").replace("&", "-")
    segment = segment.strip(" ").rstrip(". ").removesuffix(_grammar.TEMPORARY_SUFFIX)
    if segment.startswith(".") and not is_hidden:
        segment = f"_.{visible}" if (visible := segment.lstrip(". ")) else ""
    if _grammar.DEVICE.match(segment):
        segment = "_" + segment
    return unicodedata.normalize("NFC", _shortened(segment)).strip(" ").rstrip(". ")


def _without_invisible(segment: str) -> str:
    """Remove invisible characters, but not the selectors of emoji."""
    kept = {found.start() for found in _grammar.EMOJI_SELECTOR.finditer(segment)}
    return _grammar.INVISIBLE.sub(lambda found: found[0] if found.start() in kept else "", segment)


def _without_stray_joiners(segment: str) -> str:
    stray = set(_grammar.stray_joiners(segment))
    return "".join(c for i, c in enumerate(segment) if i not in stray)


def _shortened(segment: str) -> str:
    stem, dot, extension = segment.rpartition(".")
    if not stem or len(extension.encode()) > 16:
        stem, dot, extension = segment, "", ""
    room = _grammar.MAX_SEGMENT_BYTES - len((dot + extension).encode())
    return stem.encode()[:room].decode(errors="ignore") + dot + extension
