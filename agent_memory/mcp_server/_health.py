"""The answers to probes: whether the process serves, and whether it is ready for requests."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

READY_SECONDS: Final = 2
"""The seconds in which everything that the server needs must answer."""
CACHED_SECONDS: Final = 3
"""The seconds for which an answer is repeated, so that probes are no way to load the storage."""
_log = logging.getLogger("agent_memory.mcp_server")


class Readiness:
    """Whether everything that the server needs answers; it is asked once at a time, however many probes there are."""

    def __init__(self, needed: Sequence[Callable[[], Awaitable[object]]]) -> None:
        self._needed = needed
        self._asking: asyncio.Task[bool] | None = None
        self._is_ready = False
        self._until = -math.inf

    async def is_ready(self) -> bool:
        """The last answer, or a new one; False until an answer that takes too long is there."""
        if time.monotonic() < self._until:
            return self._is_ready
        asking = self._asking = self._asking or asyncio.create_task(self._answer())
        await asyncio.wait([asking], timeout=READY_SECONDS)
        return asking.done() and asking.result()

    async def _answer(self) -> bool:
        try:
            for ask in self._needed:
                await ask()
            self._is_ready = True
        except Exception as error:  # noqa: BLE001 - whatever fails, the server is not ready
            self._is_ready = False
            _log.warning("the server is not ready (%s)", type(error).__name__)
        finally:
            self._until = time.monotonic() + CACHED_SECONDS
            self._asking = None
        return self._is_ready


class WithProbes:
    """Answers ``/healthz`` and ``/readyz`` without authorization and without facts, and passes on everything else."""

    def __init__(self, app: ASGIApp, is_ready: Callable[[], Awaitable[bool]]) -> None:
        self._app = app
        self._is_ready = is_ready

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path")
        if scope["type"] != "http" or path not in ("/healthz", "/readyz"):
            await self._app(scope, receive, send)
            return
        if scope["method"] not in ("GET", "HEAD"):
            answer = PlainTextResponse("", 405, {"Allow": "GET, HEAD"})
        elif path == "/healthz" or await self._is_ready():
            answer = PlainTextResponse("ok", headers={"Cache-Control": "no-store"})
        else:
            answer = PlainTextResponse("not ready", 503, {"Cache-Control": "no-store"})
        await answer(scope, receive, send)
