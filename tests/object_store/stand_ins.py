"""Stand-ins for S3 servers that do not run here: a proxy in front of ministack that treats requests as they do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from aiohttp import web

from tests.object_store.proxy import Proxy, Treatment, error, operation_of
from tests.support.servers import S3Server

_BUSY_SECONDS = 0.25
_CHANGES = {"PUT", "DELETE", "COMPLETE UPLOAD"}


class OneWriteASecond:
    """Answers 429 to a change of an object that arrives less than a second after one that was let through."""

    def __init__(self) -> None:
        self._latest: dict[str, float] = {}

    def __call__(self, request: web.Request) -> web.Response | None:
        if operation_of(request) not in _CHANGES:
            return None
        now = time.monotonic()
        if now - self._latest.get(request.path, 0.0) < 1:
            return error(429, "SlowDown")
        self._latest[request.path] = now
        return None


class BusyDeletes:
    """Answers a conditional DELETE with an error, soon after several PUTs of the object: a protection from overload."""

    def __init__(self, status: int, code: str) -> None:
        self._answer = partial(error, status, code)
        self._puts: dict[str, list[float]] = {}

    def __call__(self, request: web.Request) -> web.Response | None:
        now, puts = time.monotonic(), self._puts.setdefault(request.path, [])
        if operation_of(request) == "PUT":
            puts.append(now)
        is_busy = len([put for put in puts if now - put < _BUSY_SECONDS]) > 1
        return (
            self._answer() if is_busy and operation_of(request) == "DELETE" and "If-Match" in request.headers else None
        )


def _deletes_in_two_steps_when_not_busy(proxy: Proxy) -> None:
    proxy.treatments = {"delete": "in two steps"}
    proxy.instead = BusyDeletes(503, "SlowDown")


def _deletes_in_two_steps_and_500_for_losers(proxy: Proxy) -> None:
    proxy.treatments = {"swap": "500 in a race", "delete": "in two steps, 500 in a race"}


def _treats(treatment: Treatment, *kinds: str) -> Callable[[Proxy], None]:
    def start(proxy: Proxy) -> None:
        proxy.treatments = dict.fromkeys(kinds, treatment)

    return start


def _one_write_a_second(proxy: Proxy) -> None:
    proxy.instead = OneWriteASecond()


def _versions_ignored(proxy: Proxy) -> None:
    proxy.ignores = {"versions"}


def _metadata_dropped(proxy: Proxy) -> None:
    proxy.ignores = {f"x-amz-meta-agent-memory-{name}" for name in ("writers", "origin", "former-names")}


def _conditions_ignored(proxy: Proxy) -> None:
    proxy.ignores = {"if-match", "if-none-match"}


def _framed(proxy: Proxy) -> None:
    proxy.framed = True


STAND_INS: dict[str, Callable[[Proxy], None]] = {
    "conditions in two steps": _treats("in two steps", "create", "swap", "delete", "complete"),
    "create in two steps": _treats("in two steps", "create"),
    "swap in two steps": _treats("in two steps", "swap"),
    "delete in two steps": _treats("in two steps", "delete"),
    "delete in two steps, refused when busy": _deletes_in_two_steps_when_not_busy,
    "DELETE made on a missing key": _treats("ignored if missing", "delete"),
    "losers answered by 500": _treats("500 in a race", "create", "swap", "delete", "complete"),
    "losers answered by 500, swap in two steps": _treats("in two steps, 500 in a race", "swap"),
    "losers answered by 500, delete in two steps": _deletes_in_two_steps_and_500_for_losers,
    "uploads in two steps": _treats("in two steps", "complete"),
    "If-Match ignored on a missing key": _treats("ignored if missing", "swap", "complete"),
    "conditions ignored": _conditions_ignored,
    "one write a second": _one_write_a_second,
    "versions ignored": _versions_ignored,
    "framing stored as content": _framed,
    "metadata dropped": _metadata_dropped,
}
"""What each stand-in does; it keeps everything else that its upstream keeps."""


@contextmanager
def standing_in(upstream: S3Server, name: str) -> Iterator[Proxy]:
    """A proxy that treats requests as one of `STAND_INS`; it may be changed further."""
    with Proxy(upstream.endpoint) as proxy:
        STAND_INS[name](proxy)
        yield proxy
