"""The credentials of a session: read anew after a server refused them, and with errors that tell where they failed.

A tool may renew credentials that a session has read: those of a profile's file, or a login that the session cached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")


class CredentialsError(Exception):
    """The credentials could not be obtained, so no request was sent; the cause is the exception of their provider."""


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

    @property
    def current(self) -> object:
        """The credentials of the next request; None if the session uses none of its own."""
        return self._current

    async def load_credentials(self) -> RenewableCredentials | None:
        """Return these credentials, as a credential resolver of botocore does; None if there are none."""
        self._current = await _obtained(self._load())
        return None if self._current is None else self

    async def get_frozen_credentials(self) -> Any:
        return await _obtained(self._current.get_frozen_credentials())

    async def renew(self, refused: object) -> bool:
        """Read the credentials anew if ``refused`` are the current ones; return whether there are others now.

        Raises:
            CredentialsError: they could not be obtained.
        """
        async with self._renewing:
            if refused is None or refused is not self._current:
                return refused is not None
            found = await _obtained(self._load_anew())
            if found is None or await _obtained(_are_equal(found, self._current)):
                return False
            self._current = found
            return True


async def _are_equal(one: Any, other: Any) -> bool:
    found: bool = await one.get_frozen_credentials() == await other.get_frozen_credentials()
    return found


async def _obtained(credentials: Awaitable[T]) -> T:
    try:
        return await credentials
    except Exception as error:
        raise CredentialsError from error
