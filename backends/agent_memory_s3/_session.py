"""A session of aiobotocore that starts quickly, and a connection that sends nothing twice and nothing elsewhere."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cache
from importlib.metadata import version
from inspect import signature
from typing import Any

from fsspec.asyn import get_loop

_CLOSE_SECONDS = 0.5
_REDIRECTS = (301, 302, 303, 307, 308)
_REGION = "x-amz-bucket-region"


class RedirectedError(OSError):
    """The server redirects to another address."""


def session(options: dict[str, Any]) -> Any:
    """A session that does not parse botocore's large descriptions of S3 anew, nor dates as slowly as botocore.

    Takes its options out of the others.
    """
    from aiobotocore.session import AioSession

    own = signature(AioSession.__init__).parameters.keys() & options.keys()
    made = AioSession(**{name: options.pop(name) for name in own})
    made.register_component("data_loader", _loader(made.get_config_variable("data_path")))
    made.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=moment)
    return made


@cache
def _loader(data_path: str | None) -> Any:
    from botocore.loaders import create_loader

    return create_loader(data_path)


def moment(value: str | float) -> datetime:
    """A date of an answer: what botocore's own parser makes of it, where S3 writes it in a twentieth of the time.

    Three quarters of what reading a listing cost were its dates.
    """
    if isinstance(value, str):
        parse = datetime.fromisoformat if value[:1].isdigit() else parsedate_to_datetime
        with suppress(ValueError):
            if (parsed := parse(value)).tzinfo:
                return parsed
    from botocore.utils import parse_timestamp

    other: datetime = parse_timestamp(value)
    return other


def user_agent(session: Any, config: Mapping[str, object]) -> dict[str, str]:
    """The option of aiobotocore's configuration that names this package to the server, unless a user has chosen a name.

    It also saves a tenth of every request: botocore puts its own together anew each time, twice.
    """
    chosen = {"user_agent", "user_agent_appid"} & config.keys() or session.get_config_variable("user_agent_appid")
    names = (f"{name}/{version(name)}" for name in ("agent-memory", "aiobotocore"))
    return {} if chosen else {"user_agent": " ".join(names)}


def send_at_once(client: Any) -> None:
    """Send a PUT without waiting for "100 Continue" first: that is a round trip, and without any time limit."""
    from botocore.handlers import add_expect_header

    client.meta.events.unregister("before-call.s3", add_expect_header)


async def close(fs: Any) -> None:
    """Close what an ``S3FileSystem`` holds; the next request opens it again. On fsspec's I/O loop."""
    if fs._s3 is not None:
        await fs._s3creator.__aexit__(None, None, None)
        fs._s3 = None


def close_dropped(fs: Any, process: int) -> None:
    """Close what nobody closed, once it is dropped or the process ends: on any thread, on the loop it belongs to."""
    if process != os.getpid() or fs._s3 is None:
        return
    closed = asyncio.run_coroutine_threadsafe(close(fs), get_loop())
    try:
        asyncio.get_running_loop()  # perhaps the I/O loop itself; none of them may wait
    except RuntimeError:
        with suppress(TimeoutError):
            closed.result(_CLOSE_SECONDS)


@cache
def can_send_once() -> bool:
    """Whether aiohttp can be told not to send a request again by itself when a kept connection was dropped."""
    from aiobotocore.config import AioConfig
    from aiobotocore.httpsession import AIOHTTPSession
    from aiohttp import ClientSession

    return (
        "_retry_connection" in ClientSession.ATTRS
        and hasattr(AIOHTTPSession, "_get_session")
        and "http_session_cls" in signature(AioConfig.__init__).parameters
    )


def sending_once() -> dict[str, Any]:
    """The options of aiobotocore's configuration that do so; none where it cannot be done."""
    return {"http_session_cls": _sending_once()} if can_send_once() else {}


class _NoRedirects:
    """A session of aiohttp, as aiobotocore uses it, that follows no redirect.

    A request is signed for one host. Another one would get its headers, names and content. A redirect that names the
    region of a bucket is botocore's to follow: it signs anew, and sends to an endpoint of AWS or to the same host.
    Without a region botocore asks for it again and again, and the server with it.
    """

    def __init__(self, made: Any) -> None:
        self._made = made

    async def request(self, *args: Any, **options: Any) -> Any:
        answer = await self._made.request(*args, **options, allow_redirects=False)
        if answer.status in _REDIRECTS and _REGION not in answer.headers:
            answer.close()
            raise RedirectedError
        return answer


@cache
def _sending_once() -> type:
    from aiobotocore.httpsession import AIOHTTPSession

    class SendingOnce(AIOHTTPSession):  # type: ignore[misc]  # untyped
        """aiohttp sends a PUT again when a kept connection turns out to be closed, and follows redirects by itself."""

        async def _get_session(self, proxy_url: Any) -> Any:
            made = await super()._get_session(proxy_url)
            made._retry_connection = False
            return _NoRedirects(made)

    return SendingOnce
