"""The names of a server over HTTP: its address, its URL for clients, and the accepted ``Host`` and ``Origin``."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

from mcp.server.transport_security import TransportSecuritySettings

PATH: Final = "/mcp"
_PORTS: Final = {"http": 80, "https": 443}


def is_loopback(host: str) -> bool:
    """Whether a name or an address can be reached only from this host; an invalid one cannot."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def split_url(url: str) -> SplitResult | None:
    """The parts of an ``http://`` or ``https://`` URL with a host; None if it is none, or has a user or a query."""
    try:
        parts = urlsplit(url)
        is_plain = parts.port != 0 and parts.username is None and not parts.query and not parts.fragment
    except ValueError:
        return None
    return parts if is_plain and parts.hostname and parts.scheme in _PORTS else None


def endpoint(public_url: str) -> str:
    """The URL of a server for its clients, from the one that an operator gives.

    Raises:
        ValueError: the URL is not ``http://`` or ``https://`` with a host, or has a user, a query or a fragment.
    """
    parts = split_url(public_url)
    if parts is None:
        raise ValueError("the public URL must be https:// or http:// and a host, without a user, query and fragment")
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/') or PATH}"


def require_address(host: str, public_url: str | None) -> None:
    """Require an IP address; if other hosts can reach it, also a public URL; raises `ValueError`."""
    try:
        ip_address(host)
    except ValueError:
        raise ValueError(f"the host must be an IP address, as 127.0.0.1 or 0.0.0.0, not {host!r}") from None
    if public_url is None and not is_loopback(host):
        raise ValueError(f"{host} can be reached by other hosts: give the public URL, by which clients name the server")


def local_name(host: str, port: int) -> str:
    """The name of the server on this host; the address for all interfaces is none that a client connects to."""
    address = ip_address(host)
    if address.is_unspecified:
        host = "::1" if address.version == 6 else "127.0.0.1"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def accepted_names(local: str, public: str) -> TransportSecuritySettings:
    """The values of ``Host`` and ``Origin``: of this host, and of the URL for clients with and without its port."""
    names = [local, f"localhost:{local.rpartition(':')[2]}"]
    origins = [f"http://{name}" for name in names]
    parts = urlsplit(public)
    names += [parts.netloc, *([] if parts.port else [f"{parts.netloc}:{_PORTS[parts.scheme]}"])]
    origins.append(f"{parts.scheme}://{parts.netloc}")
    return TransportSecuritySettings(allowed_hosts=names, allowed_origins=origins)
