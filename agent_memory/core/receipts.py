"""`Receipt`: the stored fact that a call with an idempotency key has begun or is done.

A receipt contains no content and no digest that can be tested without the idempotency key, which is not stored: the
file's name is a digest of the key, and the key keys the fingerprint and masks the result's digest.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple

from agent_memory.backend import ETag
from agent_memory.core.flows import Effect
from agent_memory.core.internal_trees import internal_tree
from agent_memory.core.stored_facts import count, fields_of, hexadecimal, optional, seconds, text, truth
from agent_memory.errors import InvalidContentError, ReadError
from agent_memory.key import Key

DIRECTORY: Final = "receipts"
_MOST_CHARACTERS: Final = 128
_MOST_FINGERPRINT: Final = 4096
_MOST_TOKEN: Final = 4096
SKEW_SECONDS: Final = 5.0
"""How far the clocks of two processes may differ; a larger difference only changes how long a call waits."""
_LATE_SECONDS: Final = 300.0
"""How long after the end of its call a request may still arrive, because a network or a proxy holds it back."""


class IdempotencyKey(NamedTuple):
    """The idempotency key of a call, and the caller's own fingerprint of it."""

    key: str
    of: str = ""

    def checked(self) -> IdempotencyKey:
        """Return it.

        Raises:
            InvalidContentError: the key does not have 1 to 128 characters, the fingerprint has more than 4,096, or one
                of them is not valid Unicode.
        """
        for name, given, least, most in (
            ("key", self.key, 1, _MOST_CHARACTERS),
            ("of", self.of, 0, _MOST_FINGERPRINT),
        ):
            if not isinstance(given, str) or not least <= len(given) <= most:
                raise InvalidContentError(f"{name} must be a str of {least} to {most:,} characters")
            if any("\ud800" <= character <= "\udfff" for character in given):
                raise InvalidContentError(f"{name} must be valid Unicode, without lone surrogates")
        return self


class CallFacts(NamedTuple):
    """The facts that tell one call from another: a receipt belongs to calls with the same facts.

    Attributes:
        kind: the kind of operation.
        path: its file or directory, in the agent's tree.
        content: the caller's content.
        arguments: the other arguments that change the result, such as the new name of a rename.
    """

    kind: str
    path: str
    content: bytes
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Receipt:
    """One receipt. Times are in POSIX seconds; salt and digests are hexadecimal.

    Attributes:
        kind: the kind of operation.
        path: its file, in the agent's tree.
        salt: random, new for every receipt.
        fingerprint: the digest of the call's facts and the caller's fingerprint.
        of: the digest of the caller's ``of``.
        until: when the call that wrote the receipt gives up.
        expires: when the idempotency key may be used for another call; minutes after ``until`` unless it is done.
        done: whether the call is done; the other attributes are its result.
        digest: the masked SHA-256 of the written content; None if there is none.
        etag: the masked token of the file's etag; None if it was not known.
        files: the number of files.
        existed: whether the file existed before; None if that is not known.
    """

    kind: str
    path: str
    salt: str
    fingerprint: str
    of: str
    until: float
    expires: float
    done: bool = False
    size: int | None = None
    digest: str | None = None
    etag: str | None = None
    files: int | None = None
    existed: bool | None = None

    @staticmethod
    def begun(given: IdempotencyKey, facts: CallFacts, until: float, expires: float) -> Receipt:
        """Return the receipt of a call that begins; it expires no sooner than a request of the call may arrive."""
        salt = secrets.token_hex(16)
        expires = max(expires, until + _LATE_SECONDS)
        return Receipt(facts.kind, facts.path, salt, _fingerprint(given, salt, facts), _of(given, salt), until, expires)

    def is_of_call(self, given: IdempotencyKey, facts: CallFacts) -> bool:
        """Whether the receipt is of the same call."""
        return hmac.compare_digest(self.fingerprint, _fingerprint(given, self.salt, facts))

    def has_of(self, given: IdempotencyKey) -> bool:
        """Whether the receipt is of a call with the same ``of``."""
        return hmac.compare_digest(self.of, _of(given, self.salt))

    def is_over(self, now: float) -> bool:
        """Whether the key may be used by a call that begins ``now``; never while a call is under way."""
        return self.expires <= now and (self.done or self.until + SKEW_SECONDS <= now)

    def finished(self, given: IdempotencyKey, effect: Effect, expires: float) -> Receipt:
        """Return the receipt with the call's result."""
        mask = partial(self._masked, given)
        return replace(
            self,
            done=True,
            expires=expires,
            size=effect.size,
            digest=mask(bytes.fromhex(effect.sha256)).hex() if effect.sha256 else None,
            etag=mask(effect.etag.token.encode(), "etag").hex() if effect.etag else None,
            files=effect.files,
            existed=_existed(self.kind, effect),
        )

    def released(self) -> Receipt:
        """Return the receipt of a call that changed nothing: expired, so that the key may be used again."""
        return replace(self, until=0.0, expires=0.0)

    def effect(self, given: IdempotencyKey) -> Effect:
        """The result of the call, for a repeated call."""
        sha256 = self._masked(given, bytes.fromhex(self.digest)).hex() if self.digest else None
        token = self._masked(given, bytes.fromhex(self.etag), "etag").decode(errors="replace") if self.etag else None
        return Effect(
            size=self.size, sha256=sha256, etag=None if token is None else ETag(token), files=self.files, replayed=True
        )

    def _masked(self, given: IdempotencyKey, data: bytes, label: str = "result") -> bytes:
        """Mask or unmask bytes, by a pseudorandom value that only a holder of the idempotency key can compute."""
        seed = hmac.digest(given.key.encode(), f"{label} {self.salt}".encode(), "sha256")
        mask = hashlib.shake_256(seed).digest(len(data))
        return bytes(a ^ b for a, b in zip(data, mask, strict=True))

    def to_bytes(self) -> bytes:
        """The stored form: one line of JSON."""
        return json.dumps({"v": 1, **asdict(self)}, ensure_ascii=True).encode() + b"\n"

    @staticmethod
    def parse(key: Key, data: bytes) -> Receipt:
        """Return a stored receipt.

        Raises:
            ReadError: the file is no receipt.
        """
        try:
            facts = fields_of(data)
            if facts.pop("v") != 1:
                raise ValueError
            return Receipt(**{name: check(facts.pop(name)) for name, check in _CHECKS.items()}, **facts)
        except (ValueError, TypeError, KeyError):
            raise ReadError(
                "the receipt of this idempotency key is damaged, so it cannot be found out whether a call with the key "
                "took effect; nothing was changed; look at the file, and use another key",
                path=key.path,
            ) from None


def _masked_token(value: object) -> str:
    if len(masked := text(value)) > _MOST_TOKEN:
        raise ValueError("longer than any etag")
    bytes.fromhex(masked)
    return masked


_CHECKS: Final[dict[str, Callable[[Any], Any]]] = {
    "kind": text,
    "path": text,
    "salt": hexadecimal(32),
    "fingerprint": hexadecimal(64),
    "of": hexadecimal(64),
    "until": seconds,
    "expires": seconds,
    "done": truth,
    "size": partial(optional, count),
    "digest": partial(optional, hexadecimal(64)),
    "etag": partial(optional, _masked_token),
    "files": partial(optional, count),
    "existed": partial(optional, truth),
}


def _existed(kind: str, effect: Effect) -> bool | None:
    if kind == "edit":
        return effect.before_sha256 is not None
    return {"create": False, "delete": True, "rename": True}.get(kind)


def _fingerprint(given: IdempotencyKey, salt: str, call: CallFacts) -> str:
    facts = [salt, call.kind, call.path, given.of, hashlib.sha256(call.content).hexdigest(), *call.arguments]
    return hmac.digest(given.key.encode(), json.dumps(facts).encode(), "sha256").hex()


def _of(given: IdempotencyKey, salt: str) -> str:
    return hmac.digest(given.key.encode(), json.dumps(["of", salt, given.of]).encode(), "sha256").hex()


def receipts_of(agent: str | None) -> Key:
    """The tree of the receipts of one agent, or of a tree without agents."""
    return internal_tree(DIRECTORY, agent)


def receipt_key(agent: str | None, given: IdempotencyKey) -> Key:
    """The name of the receipt of an idempotency key."""
    name = hashlib.sha256(f"receipt {given.key}".encode()).hexdigest()
    return receipts_of(agent).join(name)
