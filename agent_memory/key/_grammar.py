"""The rules for names, as patterns and functions: they return the rule that refuses a text or a segment.

The character classes are written out instead of taken from `unicodedata`, so that every Python accepts and refuses
the same names, whatever its Unicode version (a test compares them with `unicodedata`). Sources:
Unicode 16 `DerivedCoreProperties.txt` (default-ignorable), `PropList.txt` (noncharacters, white space),
`emoji-variation-sequences.txt`, UAX #31 (joiners), the Windows naming rules, Python's `ntpath.isreserved`.

No pattern has a possessive quantifier: before Python 3.11.5, such a quantifier over a group gives wrong matches
(CPython issue 106052). No pattern needs one: each text can match in only one way, because no character of a segment
is a separator and alternatives exclude each other.
"""

from __future__ import annotations

import re
import unicodedata

MAX_BYTES = 768
MAX_SEGMENTS = 32
MAX_SEGMENT_BYTES = 240
RESERVED = ".agent-memory"
TEMPORARY_SUFFIX = ".agent-memory-tmp"

RULES = {
    "not-text": "a path must be a str",
    "empty": "a path must name a file",
    "too-long": f"a path can have at most {MAX_BYTES} bytes of UTF-8",
    "too-deep": f"a path can have at most {MAX_SEGMENTS} segments",
    "segment-too-long": f"a segment can have at most {MAX_SEGMENT_BYTES} bytes of UTF-8",
    "absolute": "a path is relative to its tree and must not begin with '/'",
    "drive": "a path is relative to its tree and must not begin with a drive letter",
    "home": "a path must not begin with '~'",
    "parent": "a path must not contain the segment '..'",
    "backslash": "a path must separate segments by '/', not by a backslash",
    "directory": "the path of a file must not end with '/' or '/.'",
    "punctuation": 'a path must not contain any of : * ? " < > |',
    "control": "a path must not contain control characters",
    "format": "a path must not contain format or bidirectional characters",
    "invisible": "a path must not contain invisible (default-ignorable) characters, except U+FE0F after an emoji",
    "noncharacter": "a path must not contain Unicode noncharacters",
    "line-separator": "a path must not contain line or paragraph separators",
    "blank": "a path must not contain blanks other than the plain space",
    "surrogate": "a path must be valid Unicode, without lone surrogates",
    "joiner": "a path may contain U+200C and U+200D only between letters, marks or emoji",
    "not-nfc": "a path must be in Unicode normal form C",
    "encoded": "a path must not contain encoded characters such as %2e, %u002e or &#46;",
    "lookalike": "a segment must not become '.' or '..', or contain a separator, after Unicode normalisation NFKC",
    "device": "a segment must not be a Windows device name (CON, NUL.txt, COM1, ...)",
    "edge-space": "a segment must not begin or end with a space",
    "trailing-dot": "a segment must not end with a dot",
    "reserved": f"the first segment must not be {RESERVED}",
    "temporary": f"a segment must not end with {TEMPORARY_SUFFIX}",
    "agent-id": "an agent id must have 1 to 128 characters of A-Z a-z 0-9 . _ @ + = -, begin with a letter or digit, "
    "contain no '..', not end with a dot, and not be a Windows device name",
    "not-encoded": "encode_segment() does not return this segment",
    "hashed": "the segment contains only a digest of its text; segment_text() of the toolkit reads a recorded text",
    "segment": "the end of a segment must not contain '/'",
    "root-too-long": "on an object store the prefix of a root can have at most 100 bytes",
    "source-checkout": "a root must not be a checkout of this package's source",
    "into-itself": "a directory cannot be moved or copied into itself",
    "symlink": "symbolic links are not followed",
}
"""The text of every rule, by its stable name."""

_CLASSES = {
    "control": r"\x00-\x1f\x7f-\x9f",
    "line-separator": r"\u2028\u2029",
    "blank": r"\xa0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000",
    "format": r"\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b\u200e\u200f\u202a-\u202e"
    r"\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f",
    "invisible": r"\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    r"\U00016fe4\U0001d159\U000e0000\U000e0002-\U000e001f\U000e0080-\U000e0fff",
    "noncharacter": r"\ufdd0-\ufdef\ufffe\uffff"
    + "".join(rf"\U{plane:04x}fffe\U{plane:04x}ffff" for plane in range(1, 17)),
    "punctuation": r':*?"<>|',
}
INVISIBLE = re.compile("[" + "".join(_CLASSES[c] for c in ("control", "format", "invisible", "noncharacter")) + "]")
FORMAT = re.compile(f"[{_CLASSES['format']}]")
BLANK = re.compile(f"[{_CLASSES['blank']}{_CLASSES['line-separator']}]")
PUNCTUATION = re.compile(f"[{_CLASSES['punctuation']}]+")
_REFUSED = re.compile("|".join(f"(?P<c{i}>[{c}])" for i, c in enumerate(_CLASSES.values())))
_REFUSED_NAMES = tuple(_CLASSES)
JOINER = re.compile("[\u200c\u200d]")
_EMOJI = (
    r"\xa9\xae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u231a\u231b\u2328\u23cf\u23e9-\u23fa\u24c2\u25aa\u25ab"
    r"\u25b6\u25c0\u25fb-\u25fe\u2600-\u2767\u2794-\u27bf\u2934\u2935\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u3030\u303d"
    r"\u3297\u3299\U0001f000-\U0001faff"
)
EMOJI_SELECTOR = re.compile(rf"(?<=[{_EMOJI}])\ufe0f|(?<=[0-9#])\ufe0f(?=\u20e3)")
"""The variation selector of an emoji or keycap: keyboards write it, and it decides how the character looks."""

# A named reference is refused if it decodes to a dot, a separator, or a part of another encoding (%, &, #, ;).
ENCODED = re.compile(
    r"%[0-9A-Fa-f]{2}|%[uU]|&#[0-9xX]|&(?:amp|AMP)|&(?:period|sol|bsol|percnt|num|semi|nldr|mldr|hellip|incare);"
)
DRIVE = re.compile(r"[A-Za-z]:(?:\.\.?)?(?:[/\\]|\Z)")
"""A drive, with a path below it, or with one relative to its current directory."""
_DEVICE = r"(?i:con|prn|aux|nul|clock\$|conin\$|conout\$|(?:com|lpt)[1-9\xb9\xb2\xb3])"
DEVICE = re.compile(_DEVICE + r"(?:[. ]|\Z)")

_PLAIN_SEGMENT = (
    # The first alternative skips the list of devices for most names; this halves the time of a match.
    rf"(?:(?![CcPpAaNnLl ])|(?=[CcPpAaNnLl])(?!{_DEVICE}(?:[. /]|\Z)))"
    rf"[-A-Za-z0-9._~!#$'()+,;=@\[\]^`{{}} ]{{1,{MAX_SEGMENT_BYTES}}}"
    rf"(?<![. ])(?<!{re.escape(TEMPORARY_SUFFIX)})"
)
PLAIN = re.compile(
    rf"(?!~|(?i:{re.escape(RESERVED)})(?:/|\Z)){_PLAIN_SEGMENT}(?:/{_PLAIN_SEGMENT}){{0,{MAX_SEGMENTS - 1}}}\Z"
)
"""A fast check: a path that matches is valid, normal and ASCII. Other paths may be valid too."""

AGENT_ID = re.compile(
    rf"(?!{_DEVICE}(?:\.|\Z))[A-Za-z0-9](?:[A-Za-z0-9_@+=-]|\.(?!\.|\Z)){{0,127}}(?<!{re.escape(TEMPORARY_SUFFIX)})\Z"
)


def text_rule(text: str) -> str | None:
    """Return the rule that refuses a text as a whole, or None; linear time, in at most `MAX_BYTES`."""
    if len(text) > MAX_BYTES:
        return "too-long"
    if not text:
        return "empty"
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "surrogate"
    if size > MAX_BYTES:
        return "too-long"
    if text[0] == "/":
        return "absolute"
    return "drive" if DRIVE.match(text) else character_rule(text)


def character_rule(text: str) -> str | None:
    """Return the rule that refuses a character of the text, or its encoding, or None."""
    if "\\" in text:
        return "backslash"
    if found := _REFUSED.search(EMOJI_SELECTOR.sub("", text)):
        return _REFUSED_NAMES[int((found.lastgroup or "c0")[1:])]
    if stray_joiners(text):
        return "joiner"
    if ENCODED.search(text):
        return "encoded"
    return None if unicodedata.is_normalized("NFC", text) else "not-nfc"


def stray_joiners(text: str) -> list[int]:
    """Return the positions of joiners that are not between letters, marks or emoji."""
    return [m.start() for m in JOINER.finditer(text) if not _joins(text, m.start())]


def _joins(text: str, at: int) -> bool:
    return 0 < at < len(text) - 1 and _joinable(text[at - 1]) and _joinable(text[at + 1])


def _joinable(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] in "LM" or category == "So" or "\U0001f3fb" <= character <= "\U0001f3ff"


def segments_rule(segments: list[str]) -> str | None:
    """Return the rule that refuses a path split into its segments, one or more, or None."""
    if len(segments) > MAX_SEGMENTS:
        return "too-deep"
    if segments[0].lower() == RESERVED:  # a disk may ignore case
        return "reserved"
    return next(filter(None, map(_segment_rule, segments)), None)


def _segment_rule(segment: str) -> str | None:
    if segment == "..":
        return "parent"
    if is_lookalike(segment):
        return "lookalike"
    if segment[0] == " " or segment[-1] == " ":
        return "edge-space"
    if segment[-1] == ".":
        return "trailing-dot"
    if DEVICE.match(segment):
        return "device"
    if segment.endswith(TEMPORARY_SUFFIX):
        return "temporary"
    return "segment-too-long" if len(segment.encode()) > MAX_SEGMENT_BYTES else None


def is_lookalike(segment: str) -> bool:
    """Whether the segment's NFKC form, without spaces, is '.' or '..', or contains a separator."""
    folded = unicodedata.normalize("NFKC", segment).replace(" ", "")
    return folded in (".", "..") or "/" in folded or "\\" in folded
