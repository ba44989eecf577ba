"""The files of TLS that a client needs before it connects: certificates of authorities, and its own certificate."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Sequence
from typing import Final

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
