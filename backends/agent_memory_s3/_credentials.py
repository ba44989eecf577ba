"""The credentials of a session and the files of TLS: a client needs both before it can send a request.

A tool may renew credentials that a session has read: those of a profile's file, or a login that the session cached. So
they are read anew after a server refused them. The errors tell where the credentials failed, and which file of TLS.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

T = TypeVar("T")
AUTHORITY: Final = (
    "the certificates cannot be used: the file of those of authorities is missing, or has none in PEM; correct the"
    " option client_kwargs={'verify': FILE}, the variable AWS_CA_BUNDLE or REQUESTS_CA_BUNDLE, or ca_bundle in the AWS"
    " configuration"
)
_OWN: Final = (
    "the certificates cannot be used: the file of the client's own is missing, or has none; correct the option"
    " config_kwargs={'client_cert': FILE, or (FILE, FILE OF THE KEY)}"
)
_PROXY: Final = "the certificates cannot be used: correct those of proxies_config in the option config_kwargs"
_LIBRARIES: Final = ("X509", "PEM", "ASN1", "asn1 encoding routines")


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


class UnusableFileError(OSError):
    """A file of TLS cannot be used, so no connection was made; the text names the option."""


def unusable_file(verify: object, client_cert: object) -> UnusableFileError:
    """The error for a client that could not load its files: loads each again to find out which one it is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if isinstance(verify, str | os.PathLike) and _fails(context.load_verify_locations, (verify,)):
        return UnusableFileError(AUTHORITY)
    own = (client_cert,) if isinstance(client_cert, str) else client_cert
    if isinstance(own, tuple) and _fails(context.load_cert_chain, own):
        return UnusableFileError(_OWN)
    return UnusableFileError(_PROXY)


def is_of_a_file(error: ssl.SSLError) -> bool:
    """Whether an error is about the content of a file, and not about a connection."""
    return getattr(error, "library", None) in _LIBRARIES  # aiohttp's own have none


def _fails(load: Callable[..., None], files: Sequence[object]) -> bool:
    try:
        load(*files)
    except OSError:
        return True
    return False
