"""Calls of HTTP clients that close their connection: they are cancelled, so that they hold no thread and no lock."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class CancelledByDisconnect:
    """Passes on requests, and cancels a POST whose client disconnects before its answer is complete.

    The SDK watches the connection of a stream of events, but not of an answer in one JSON document.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        arrived, answered = asyncio.Event(), asyncio.Event()

        async def receive_body() -> Message:
            message = await receive()
            if not message.get("more_body"):
                arrived.set()
            return message

        async def send_answer(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                answered.set()  # then the server tells of a disconnect, too
            await send(message)

        async def watch() -> None:
            await arrived.wait()
            while (await receive())["type"] != "http.disconnect":
                pass
            if not answered.is_set():
                call.cancel()

        call = asyncio.ensure_future(self._app(scope, receive_body, send_answer))
        await _ended(call, asyncio.create_task(watch()))


async def _ended(call: asyncio.Future[None], watching: asyncio.Task[None]) -> None:
    """Wait for a call; the cancellation of the waiting task cancels it."""
    try:
        await asyncio.wait([call])
    finally:
        watching.cancel()
        if not call.done():
            call.cancel()
            await asyncio.wait([call])
    if not call.cancelled():
        call.result()
