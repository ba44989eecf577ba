"""The credentials of a session: read anew after a server refused them, and with errors that tell where they failed.

A tool may renew credentials that a session has read: those of a profile's file, or a login that the session cached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")


class CredentialsError(Exception):
    """The credentials could not be obtained, or no request can contain them; so none was sent. It has a cause."""


class RenewableCredentials:
    """A session's component that provides its credentials, and these credentials themselves.

    Args:
        load: reads the credentials from their source; None if there are none.
        load_anew: the same, without anything that the session has cached.
    """

    def __init__(self, load: Callable[[], Awaitable[Any]], load_anew: Callable[[], Awaitable[Any]]) -> None:
        self._load = load
        self._load_anew = load_anew
        self._current: Any = None
        self._renewing = asyncio.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._current, name)

    async def load_credentials(self) -> RenewableCredentials | None:
        """Return these credentials, as a credential resolver of botocore does; None if there are none."""
        self._current = await _obtained(self._load())
        return None if self._current is None else self

    async def get_frozen_credentials(self) -> Any:
        """The keys of the next request; None if the session uses none of its own.

        Raises:
            CredentialsError: they could not be obtained.
        """
        return await _frozen(self._current)

    async def renew(self, refused: object) -> bool:
        """Return whether the keys are others than the ``refused`` ones now; if not, read the credentials anew first.

        Raises:
            CredentialsError: they could not be obtained.
        """
        if refused is None:
            return False
        async with self._renewing:
            if await self.get_frozen_credentials() != refused:
                return True
            found = await _obtained(self._load_anew())
            if await _frozen(found) in (None, refused):
                return False
            self._current = found
            return True


async def _frozen(credentials: Any) -> Any:
    if credentials is None:
        return None
    keys = await _obtained(credentials.get_frozen_credentials())
    if not all(key is None or (isinstance(key, str) and key.isprintable()) for key in keys):
        raise CredentialsError from ValueError("a key is not a text, or has a line end or another control character")
    return keys


async def _obtained(credentials: Awaitable[T]) -> T:
    try:
        return await credentials
    except Exception as error:
        raise CredentialsError from error
