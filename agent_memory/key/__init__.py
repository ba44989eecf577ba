"""`Key`: a parsed name. This module has the only parser: it turns text into a key, or refuses it.

No other layer validates names again: a backend receives keys and joins them to its root. The grammar is
the same for every backend, so that memory can be moved between backends and operating systems without changes. A
path is never repaired: only ``//`` and ``./`` are normalised. Every refusal has a rule and a suggestion.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import PurePath
from typing import Final, NoReturn

from agent_memory.errors import InvalidPathError, PathTraversalError
from agent_memory.key import _grammar, _suggest, segments
from agent_memory.key._grammar import MAX_SEGMENT_BYTES, MAX_SEGMENTS, RESERVED, RULES, TEMPORARY_SUFFIX
from agent_memory.key._suggest import shown
from agent_memory.key.segments import agent_id, external_id, invalid_agent_id, is_agent_id

__all__ = [
    "AGENTS",
    "MAX_SEGMENTS",
    "RESERVED",
    "RULES",
    "TEMPORARY_SUFFIX",
    "Key",
    "agent_id",
    "decode_segment",
    "encode_segment",
    "external_id",
    "is_agent_id",
    "is_at_or_below",
]

_AGENTS_DIRECTORY = "agent_memory"
_INTERNAL = f"{RESERVED}/"
_FALLBACK_NAMES = ("untitled", "x")


class InternalPath(str):
    """The path of a key of this package's own data: an error that carries it is not about a file of the caller.

    Attributes:
        kind: the directory of the data, such as ``receipts``, or the name of a file without a directory.
    """

    kind: str


class Key:
    """A confined name: parsed path segments within one tree.

    ``path`` is relative to the tree and is shown in messages; ``base`` is the tree's prefix, relative to the root;
    ``storage`` joins both, relative to the root, and is the name in the storage. A key with an empty ``path`` is the
    tree itself and is used only as a prefix. Keys are immutable, hashable, picklable and ordered by the UTF-8 bytes
    of ``storage``. Only `Key.tree`, `Key.agent`, `Key.internal` and methods of a key make keys.
    """

    __slots__ = ("base", "path", "storage")
    base: str
    path: str
    storage: str

    def __init__(self) -> None:
        raise TypeError("keys are parsed, not constructed: use Key.tree().join(text)")

    @staticmethod
    def tree() -> Key:
        """Return the tree that is the whole root (`AgentMemory.open`)."""
        return _make("", "")

    @staticmethod
    def agent(agent_instance_id: str) -> Key:
        """Return the tree of one agent.

        Raises:
            InvalidAgentIdError: the id is not 1 to 128 characters of ``[A-Za-z0-9._@+=-]``, does not begin with a
                letter or digit, contains ``..``, ends with a dot, or is a Windows device name.
        """
        if not is_agent_id(agent_instance_id):
            raise invalid_agent_id(agent_instance_id)
        return _make(f"{_AGENTS_DIRECTORY}/{str.__str__(agent_instance_id)}", "")

    @staticmethod
    def internal(path: str) -> Key:
        """Return a name for this package's own data, which no path of a tree can reach."""
        return _joined(RESERVED, "", _plain(path))

    def join(self, text: str) -> Key:
        """Parse the name of a file below this key.

        Raises:
            PathTraversalError: the text leads outside the tree, as written or once decoded.
            InvalidPathError: the text breaks another rule of the grammar (`RULES`).
        """
        return _joined(self.base, self.path, text if type(text) is str else _plain(text))

    def join_prefix(self, text: str) -> Key:
        """Parse the name of a directory below this key; ``""``, ``.`` and a trailing ``/`` are allowed."""
        text = _plain(text)
        path, rule = _judged(text, self.path)
        if rule not in (None, "empty", "directory"):
            raise _invalid_path(text, rule, self.path)
        return _make(self.base, path)

    def stored(self, name: str) -> Key | None:
        """Return the key of a name found in storage below this key, or None if the grammar does not allow the name."""
        room = _grammar.MAX_BYTES - len(self.path) - 1
        if len(name) <= room and _grammar.PLAIN.match(whole := f"{self.path}/{name}" if self.path else name):
            return _make(self.base, whole)  # not cached: a listing would fill the cache with names that are used once
        try:
            key = _make(self.base, _parse.__wrapped__(name, self.path))
        except InvalidPathError:
            return None
        return key if len(key.path) == len(name) + (len(self.path) + 1 if self.path else 0) else None

    def relative_to(self, prefix: Key) -> Key:
        """Return this key as a name in the tree whose top directory is ``prefix``."""
        return _make(prefix.storage, self.storage[len(prefix.storage) + 1 :] if prefix.storage else self.storage)

    def is_below(self, prefix: Key) -> bool:
        """Whether this key lies below ``prefix``, compared by whole segments."""
        return not prefix.storage or self.storage.startswith(prefix.storage + "/")

    @property
    def is_internal(self) -> bool:
        """Whether this is a name of this package's own data; see `internal`."""
        return self.storage.startswith(_INTERNAL)

    @property
    def name(self) -> str:
        """The last segment."""
        return self.path.rpartition("/")[2]

    @property
    def parent(self) -> Key:
        """The directory of this key; the parent of a tree's top is the top."""
        return _make(self.base, self.path.rpartition("/")[0])

    @property
    def segments(self) -> tuple[str, ...]:
        """The segments of ``storage``."""
        return tuple(self.storage.split("/")) if self.storage else ()

    def __str__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"Key({self.storage!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.storage == other.storage and self.base == other.base

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Key):
            return NotImplemented
        return self.storage < other.storage  # code point order is the order of UTF-8 bytes

    def __hash__(self) -> int:
        return hash(self.storage)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("keys are immutable")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("keys are immutable")

    def __reduce__(self) -> tuple[object, ...]:
        return _make, (self.base, str(self.path))


_new = object.__new__
_set_base, _set_path, _set_storage = (Key.__dict__[slot].__set__ for slot in ("base", "path", "storage"))


def _make(base: str, path: str) -> Key:
    key = _new(Key)
    _set_base(key, base)
    _set_path(key, path if not base.startswith(RESERVED) else _internal_path(base, path))
    _set_storage(key, f"{base}/{path}" if base and path else base or path)
    return key


def _internal_path(base: str, path: str) -> InternalPath:
    found = InternalPath(path)
    found.kind = (base + "/" + path).split("/")[1]
    return found


AGENTS: Final = _make(_AGENTS_DIRECTORY, "")
"""The directory of all agents' trees."""


def _plain(text: str) -> str:
    if not isinstance(text, str):
        raise _invalid_path(text, "not-text")
    # A str subclass could poison the cache by a wrong __hash__, or return other text from its methods.
    return text if type(text) is str else str.__str__(text)


@lru_cache(maxsize=4096)
def _joined(base: str, below: str, text: str) -> Key:
    return _make(base, _parse(text, below))


@lru_cache(maxsize=4096)  # many agents use the same names
def _parse(text: str, below: str) -> str:
    if len(text) <= _grammar.MAX_BYTES:
        whole = f"{below}/{text}" if below else text
        if len(whole) <= _grammar.MAX_BYTES and _grammar.PLAIN.match(whole):
            return whole
    path, rule = _judged(text, below)
    if rule:
        raise _invalid_path(text, rule, below)
    return path


def _judged(text: str, below: str = "") -> tuple[str, str | None]:
    """Return the normal form of a name below a parsed path, and the rule that refuses it, or None."""
    if rule := _grammar.text_rule(text):
        return below, rule
    parts = text.split("/")
    own = [segment for segment in parts if segment not in ("", ".")]
    segments = below.split("/") + own if below else own
    path = "/".join(segments)
    if not own:
        return path, "empty"
    if own[0][0] == "~" and not below:
        return path, "home"
    if len(path.encode()) > _grammar.MAX_BYTES:
        return path, "too-long"
    rule = _grammar.segments_rule(segments)
    return path, "directory" if rule is None and parts[-1] in ("", ".") else rule


def _invalid_path(text: object, rule: str, below: str = "") -> InvalidPathError:
    raw = str.__str__(text) if isinstance(text, str) else ""
    error = PathTraversalError if _suggest.is_escape(raw) else InvalidPathError
    room = _grammar.MAX_BYTES - (len(below.encode()) + 1 if below else 0)
    deep = _grammar.MAX_SEGMENTS - (below.count("/") + 1 if below else 0)
    written = text.as_posix() if isinstance(text, PurePath) else ""
    names = (written, _suggest.suggestion(raw, room, deep), *_FALLBACK_NAMES)
    suggestion = next((name for name in names if _judged(name, below)[1] is None), "")
    refused = shown(text)
    advice = (
        f"{'pass' if written and suggestion == written else 'try'} {suggestion!r}"
        if suggestion
        else "this directory's path is so long that no file below it can have a name"
    )
    return error(f"{refused} is refused: {RULES[rule]}; {advice}", rule, suggestion, refused)


def is_at_or_below(path: str, directory: str) -> bool:
    """Whether a parsed path is ``directory`` or lies below it; every path lies below ``""``."""
    return not directory or f"{path}/".startswith(f"{directory}/")


def encode_segment(text: str, suffix: str = "") -> str:
    """Encode any text, of any length, as one segment of a path; `decode_segment` decodes it.

    Letters, digits, spaces and ``. _ @ + -`` stay as they are. Each byte (UTF-8) of any other character becomes
    ``=XX``, as in RFC 2045 quoted-printable. Different texts give different segments, on every Python and system the
    same. If the segment would have more than 240 bytes, it is the beginning of the text, ``==`` and the text's
    SHA-256. The text of such a segment is lost, unless `agent_memory.integrations.toolkit.record_segment` encodes it.

    Args:
        text: any str, also with lone surrogates.
        suffix: the end of the segment, for example ``.json``. It is not encoded, so the segments of one directory
            need the same suffix: the text ``a.md`` has the segment of the text ``a`` with the suffix ``.md``.

    Raises:
        InvalidPathError: ``text`` or ``suffix`` is not a str, or no segment can end with ``suffix``.
    """
    segment = segments.encoded(_plain(text))
    room = MAX_SEGMENT_BYTES - len(_plain(suffix).encode(errors="replace"))
    if len(segment.encode()) > room:
        segment = segments.hashed(segment, _plain(text), room)
    name = segment + suffix
    if "/" in suffix:
        raise _invalid_path(name, "segment")
    return Key.tree().join(name).path


def decode_segment(segment: str, suffix: str = "") -> str:
    """Return the text from which `encode_segment` made a segment.

    Raises:
        InvalidPathError: `encode_segment` never returns this segment, or it contains only a digest of its text.
    """
    name, end = _plain(segment), _plain(suffix)
    body = name.removesuffix(end)
    if not name.endswith(end) or (text := segments.decoded(body)) is None:
        rule = "hashed" if name.endswith(end) and segments.hashed_digest(body) else "not-encoded"
        raise InvalidPathError(f"{shown(name)} is refused: {RULES[rule]}", rule, "", shown(name))
    return text
