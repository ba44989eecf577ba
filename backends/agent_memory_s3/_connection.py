"""`Connection`: a filesystem of s3fs with its client, which sends each request once and follows no redirect.

This is the only module that uses names which other packages keep private, because there is no public way:

- ``S3FileSystem._call_s3`` sends one request with the user's options for requests. Without it s3:// does not open.
- ``AIOHTTPSession._get_session`` (aiobotocore) and ``ClientSession._retry_connection`` (aiohttp): by default, aiohttp
  sends a PUT again if a kept connection was closed, and tells nothing. Without them this stays so (`can_send_once`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from importlib.metadata import version
from inspect import signature
from typing import Any

from fsspec.asyn import get_loop

from agent_memory.backend.helpers import Uncopied
from agent_memory.errors import BackendNotAvailableError
from agent_memory_s3._credentials import RenewableCredentials, unusable_file
from agent_memory_s3._options import plain_bodies, session, user_agent
from agent_memory_s3._replies import BoundedAnswer

_CONFIG = {"connect_timeout": 5, "read_timeout": 15, "max_pool_connections": 64}
_ONE_TRY = {"retries": {"total_max_attempts": 1, "mode": "standard"}}
_CLOSE_SECONDS = 0.5
_REDIRECTS = (301, 302, 303, 307, 308)
_REGION = "x-amz-bucket-region"
_may_have_sent: ContextVar[bool] = ContextVar("may_have_sent", default=True)
_log = logging.getLogger("agent_memory.object_store")
_of_parents: list[Any] = []
"""Filesystems inherited from a parent process, kept until exit: closing one would take replies from the parent."""


def may_have_sent() -> bool:
    """Whether the latest request of this task may have been sent: its connection got it, or that is not known."""
    return _may_have_sent.get()


class RedirectedError(OSError):
    """The server redirects to another address."""


class Connection(Uncopied):
    """An ``S3FileSystem`` and its client, on fsspec's I/O loop; opened again in a forked child and after `aclose`.

    Args:
        options: the options of s3fs.

    Raises:
        ImportError: s3fs is not installed.
        BackendNotAvailableError: the installed s3fs has no ``S3FileSystem._call_s3``.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        self._client: Any
        self._is_closed: bool
        self._open()

    async def client(self) -> Any:
        """The client of aiobotocore; a new one if s3fs has replaced a closed client."""
        if self._process != os.getpid():  # a forked child must not use the parent's connections and loop
            _of_parents.append((self._fs, self._client))
            self._open()
        elif self._is_closed:
            self._open()
        client = await self._fs.set_session()
        if client is not self._client:
            client.meta.events.register_last("before-call.s3", _without_expect)
            self._client = client
        return client

    def send_plain_bodies(self, client: Any) -> None:
        """Send each body as it is, unless the user has set otherwise; for a client of a server other than AWS."""
        vars(client.meta.config).update(self._plain_bodies)

    async def keys(self) -> object:
        """The keys of the next request; None if the options have them, or a session that was given."""
        return await self._credentials.get_frozen_credentials() if self._credentials else None

    async def renew(self, refused: object) -> bool:
        """Read the credentials anew after the server refused these keys; see `RenewableCredentials.renew`."""
        return self._credentials is not None and await self._credentials.renew(refused)

    async def call(self, method: str, **options: Any) -> Mapping[str, Any]:
        """Send one request, after `client`; raises the exceptions of s3fs, botocore and aiohttp."""
        _may_have_sent.set(not can_send_once())
        reply: Mapping[str, Any] = await self._fs._call_s3(method, **options)
        return reply

    async def aclose(self) -> None:
        if self._process != os.getpid():  # the parent uses the connections and would miss replies
            return
        client, self._client, self._is_closed = self._client, None, True
        if client is not None:
            await client.close()

    def close_dropped(self) -> None:
        """Close the client if the owner was dropped, or at exit; may be called on any thread."""
        if self._process != os.getpid() or self._client is None:
            return
        closed = asyncio.run_coroutine_threadsafe(self.aclose(), get_loop())
        try:
            asyncio.get_running_loop()  # a thread with a running loop, perhaps the I/O loop, must not wait
        except RuntimeError:
            with suppress(TimeoutError):
                closed.result(_CLOSE_SECONDS)

    def _open(self) -> None:
        from s3fs import S3FileSystem

        if not hasattr(S3FileSystem, "_call_s3"):
            raise BackendNotAvailableError(f"s3:// needs s3fs with `_call_s3`, which s3fs {version('s3fs')} lacks")
        options = {name: value for name, value in self._options.items() if value is not None}
        if "session" not in options:
            options["session"] = session(options)
        provider = options["session"].get_component("credential_provider")
        self._credentials = provider if isinstance(provider, RenewableCredentials) else None
        config = {**_CONFIG, **options.pop("config_kwargs", {}), **_ONE_TRY}
        if can_send_once():
            config["http_session_cls"] = _sending_once()
        config |= user_agent(options["session"], config)
        self._plain_bodies = plain_bodies(options["session"], config)
        options |= {"config_kwargs": config, "use_listings_cache": False, "skip_instance_cache": True}
        options["cache_regions"] = False  # botocore itself finds a bucket's region, with one client
        self._fs: Any = S3FileSystem(**{**options, "asynchronous": True})  # else its finalizer closes it on any loop
        self._fs.retries = 1
        self._process = os.getpid()
        self._client = None
        self._is_closed = False


def _without_expect(params: Mapping[str, Any], **_: Any) -> None:
    """Send a PUT without waiting for "100 Continue", which takes a round trip and has no timeout."""
    params["headers"].pop("Expect", None)


@cache
def can_send_once() -> bool:
    """Whether aiohttp can be configured not to resend a request after a kept connection was dropped."""
    from aiobotocore.config import AioConfig
    from aiobotocore.httpsession import AIOHTTPSession
    from aiohttp import ClientSession

    can = (
        "_retry_connection" in ClientSession.ATTRS
        and hasattr(AIOHTTPSession, "_get_session")
        and "http_session_cls" in signature(AioConfig.__init__).parameters
    )
    if not can:
        versions = " and ".join(f"{name} {version(name)}" for name in ("aiobotocore", "aiohttp"))
        _log.warning("s3://: %s may send a write twice, so its outcome is unknown more often after a failure", versions)
    return can


class _Guarded:
    """A wrapper of an aiohttp session, for aiobotocore, that follows no redirect and bounds the bodies of answers.

    A request is signed for one host; after a redirect, another host would get its headers, names and content. botocore
    itself handles a redirect that names the bucket's region: it signs the request again and sends it to an endpoint of
    AWS or to the same host. Without a region, botocore would look up the region again and again.
    """

    def __init__(self, made: Any) -> None:
        self._made = made

    async def request(self, *args: Any, **options: Any) -> Any:
        _may_have_sent.set(True)
        answer = await self._made.request(*args, **options, allow_redirects=False)
        if answer.status in _REDIRECTS and _REGION not in answer.headers:
            answer.close()
            raise RedirectedError
        return BoundedAnswer(answer)


@cache
def _sending_once() -> type:
    from aiobotocore.httpsession import AIOHTTPSession
    from botocore.exceptions import InvalidProxiesConfigError

    class SendingOnce(AIOHTTPSession):  # type: ignore[misc]  # untyped
        """Turns off two defaults of aiohttp: resending a PUT if a kept connection was closed, and redirects."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._files = options.get("verify"), options.get("client_cert")

        async def _get_session(self, proxy_url: Any) -> Any:
            try:
                made = await super()._get_session(proxy_url)
            except (OSError, InvalidProxiesConfigError) as error:  # nothing is sent before all files are loaded
                raise unusable_file(*self._files) from error
            made._retry_connection = False
            return _Guarded(made)

    return SendingOnce
