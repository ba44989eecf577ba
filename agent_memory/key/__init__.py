"""`Key`: the only door for names. Text becomes a key here, in one parser, or it is refused here.

Below this door nobody validates again: a backend receives keys and joins them to its root. The grammar is
the same for every backend, so that memory moves between backends and operating systems unharmed. A path is
never repaired: only ``//`` and ``./`` are normalised away; every refusal carries a rule and a suggestion.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import PurePath
from typing import Final, NoReturn

from agent_memory.errors import InvalidAgentIdError, InvalidPathError, PathTraversalError
from agent_memory.key import _grammar, _suggest
from agent_memory.key._grammar import MAX_SEGMENTS, RESERVED, RULES, TEMPORARY_SUFFIX

__all__ = [
    "AGENTS",
    "MAX_SEGMENTS",
    "RESERVED",
    "RULES",
    "TEMPORARY_SUFFIX",
    "Key",
    "agent_id",
    "external_id",
    "is_agent_id",
]

_AGENTS_DIRECTORY = "agent_memory"
_FALLBACK_NAMES = ("untitled", "x")
_SHOWN = 80


class Key:
    """A confined name: parsed path segments within one tree.

    ``path`` is relative to the tree and what messages show; ``base`` is the tree's own prefix on its root;
    ``storage`` is both joined, relative to the root: what a backend stores under. A key whose ``path`` is
    empty is the tree itself and serves as a prefix only. Keys are immutable, hashable and picklable, order
    by UTF-8 bytes of ``storage``, and are made by `Key.tree`, `Key.agent`, `Key.internal` and `join` alone.
    """

    __slots__ = ("base", "path", "storage")
    base: str
    path: str
    storage: str

    def __init__(self) -> None:
        raise TypeError("keys are parsed, not constructed: use Key.tree().join(text)")

    @staticmethod
    def tree() -> Key:
        """The tree that is the whole root (`AgentMemory.open`)."""
        return _make("", "")

    @staticmethod
    def agent(agent_instance_id: str) -> Key:
        """The tree of one agent.

        Raises:
            InvalidAgentIdError: the id is not 1-128 of ``[A-Za-z0-9._@+=-]`` beginning with a letter or digit,
                or has ``..``, a trailing dot or a Windows device name.
        """
        if not is_agent_id(agent_instance_id):
            raise _invalid_agent_id(agent_instance_id)
        return _make(f"{_AGENTS_DIRECTORY}/{str.__str__(agent_instance_id)}", "")

    @staticmethod
    def internal(path: str) -> Key:
        """A name for this package's own data, which no tree's text can reach."""
        return _joined(RESERVED, "", _plain(path))

    def join(self, text: str) -> Key:
        """Parse the name of a file below this key: the door.

        Raises:
            PathTraversalError: the text reaches, or once decoded would reach, outside the tree.
            InvalidPathError: the text breaks another rule of the grammar (`RULES`).
        """
        return _joined(self.base, self.path, text if type(text) is str else _plain(text))

    def join_prefix(self, text: str) -> Key:
        """Parse the name of a directory below this key; ``""``, ``.`` and a trailing ``/`` are fine here."""
        text = _plain(text)
        path, rule = _judged(text, self.path)
        if rule not in (None, "empty", "directory"):
            raise _invalid_path(text, rule, self.path)
        return _make(self.base, path)

    def stored(self, name: str) -> Key | None:
        """The key of a name found in storage below this key, or None where the grammar has no such name."""
        room = _grammar.MAX_BYTES - len(self.path) - 1
        if len(name) <= room and _grammar.PLAIN.match(whole := f"{self.path}/{name}" if self.path else name):
            # Past the cache, which a listing would fill with names nobody asks for.
            key = _new(Key)
            _set_base(key, self.base)
            _set_path(key, whole)
            _set_storage(key, f"{self.storage}/{name}" if self.storage else name)
            return key
        try:
            key = _make(self.base, _parse.__wrapped__(name, self.path))
        except InvalidPathError:
            return None
        return key if len(key.path) == len(name) + (len(self.path) + 1 if self.path else 0) else None

    def relative_to(self, prefix: Key) -> Key:
        """This key as a name of the tree that ``prefix`` is the top of."""
        return _make(prefix.storage, self.storage[len(prefix.storage) + 1 :] if prefix.storage else self.storage)

    def is_below(self, prefix: Key) -> bool:
        """Whether this key names something within ``prefix``, by whole segments."""
        return not prefix.storage or self.storage.startswith(prefix.storage + "/")

    @property
    def name(self) -> str:
        """The last segment."""
        return self.path.rpartition("/")[2]

    @property
    def parent(self) -> Key:
        """The directory the key lies in; of a tree's top, the top."""
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
        return _make, (self.base, self.path)


_new = object.__new__
_set_base, _set_path, _set_storage = (Key.__dict__[slot].__set__ for slot in ("base", "path", "storage"))


def _make(base: str, path: str) -> Key:
    key = _new(Key)
    _set_base(key, base)
    _set_path(key, path)
    _set_storage(key, f"{base}/{path}" if base and path else base or path)
    return key


AGENTS: Final = _make(_AGENTS_DIRECTORY, "")
"""The prefix below which every agent's tree lies."""


def _plain(text: str) -> str:
    if not isinstance(text, str):
        raise _invalid_path(text, "not-text")
    # A subclass may lie about its hash and poison the cache, or about its text.
    return text if type(text) is str else str.__str__(text)


@lru_cache(maxsize=4096)
def _joined(base: str, below: str, text: str) -> Key:
    return _make(base, _parse(text, below))


@lru_cache(maxsize=4096)  # many agents have the same names
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
    """The normal form of a name below a parsed path, and the rule that refuses it, if one does."""
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
    shown = _shown(text)
    advice = (
        f"{'pass' if written and suggestion == written else 'try'} {suggestion!r}"
        if suggestion
        else "nothing can be named below this directory"
    )
    return error(f"{shown} is refused: {RULES[rule]}; {advice}", rule, suggestion, shown)


def _shown(text: object) -> str:
    if not isinstance(text, str):
        return f"a {type(text).__name__}"
    return ascii(str.__str__(text)[:_SHOWN]) + ("..." if len(text) > _SHOWN else "")


def is_agent_id(text: object) -> bool:
    """Whether a text is an agent id as it stands."""
    return isinstance(text, str) and _grammar.AGENT_ID.match(str.__str__(text)) is not None


_MAX_ID = 128
_PLAIN_ID_CHARACTER = re.compile(r"[^A-Za-z0-9._@+-]")
_ENCODED_MARK = "0=="  # never made by the escapes below, in which "=" is followed by two digits


def agent_id(text: str) -> str:
    """Turn any external id (``slack:C0123``, ``auth0|5f``) into an agent id, reversibly.

    Characters an agent id cannot hold, and ``=`` itself, become ``=XX`` for each byte of their UTF-8 (as in
    RFC 2045 quoted-printable); a result that cannot begin an id is marked with a leading ``0==``.
    `external_id` is the inverse. Different texts give different ids.

    Raises:
        InvalidAgentIdError: not a str, not valid Unicode, or longer than 128 characters once encoded.
    """
    if not isinstance(text, str) or len(text) > _MAX_ID:
        raise _invalid_agent_id(text)
    try:
        encoded = _PLAIN_ID_CHARACTER.sub(_escaped, str.__str__(text))
    except UnicodeEncodeError:
        raise _invalid_agent_id(text) from None
    encoded = re.sub(r"\.(?=\.)|\.\Z", "=2E", encoded)
    if encoded.endswith(TEMPORARY_SUFFIX):
        encoded = f"{encoded[:-1]}={ord(encoded[-1]):02X}"
    if not _grammar.AGENT_ID.match(encoded):
        encoded = _ENCODED_MARK + encoded
    if not _grammar.AGENT_ID.match(encoded):
        raise _invalid_agent_id(text)
    return encoded


def external_id(agent_instance_id: str) -> str:
    """The text that `agent_id` made this id of.

    Raises:
        InvalidAgentIdError: `agent_id` makes no such id.
    """
    try:
        if len(agent_instance_id) > _MAX_ID:
            raise ValueError
        body = agent_instance_id.removeprefix(_ENCODED_MARK).encode("ascii")
        text = re.sub(rb"=([0-9A-F]{2})", lambda m: bytes([int(m[1], 16)]), body).decode()
        if agent_id(text) == agent_instance_id:
            return text
    except (AttributeError, TypeError, ValueError):
        pass
    raise InvalidAgentIdError(f"{_shown(agent_instance_id)} was not made by agent_id()", "agent-id", "default")


def _escaped(match: re.Match[str]) -> str:
    return "".join(f"={byte:02X}" for byte in match[0].encode())


def _invalid_agent_id(text: object) -> InvalidAgentIdError:
    shown, suggestion = _shown(text), _suggested_agent_id(text)
    message = f"{shown} is no agent id: {RULES['agent-id']}; agent_id(text) makes ids of any text, say {suggestion!r}"
    return InvalidAgentIdError(message, "agent-id", suggestion, shown)


def _suggested_agent_id(text: object) -> str:
    short = str.__str__(text)[:32].encode(errors="ignore").decode() if isinstance(text, str) else "default"
    encoded = _PLAIN_ID_CHARACTER.sub(_escaped, short)
    return agent_id(short) if len(encoded) < 100 else "default"
