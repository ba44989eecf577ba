"""Parsers of the URLs and storage options that all engines of object stores have in common."""

from __future__ import annotations

from urllib.parse import urlsplit

_SINGLE_WRITER = "allow_single_writer"


def bucket_and_prefix(url: str) -> tuple[str, str]:
    """Split ``scheme://bucket/prefix``; raises `ValueError` for any other URL."""
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = rest.partition("/")
    if not bucket:
        raise ValueError(f"an {scheme.upper()} URL is {scheme.lower()}://bucket/prefix")
    if bucket.lower().startswith("arn:"):
        raise ValueError(
            "an ARN is no name of a bucket: for an access point, give its alias, as the console and"
            f" get-access-point show it ({scheme.lower()}://ALIAS/prefix)"
        )
    if ":" in bucket and "@" in prefix:  # a password that begins like a port; the registry takes it for a port
        raise ValueError("a URL holds no password and, with a bucket, no port; credentials go into storage_options")
    if "?" in prefix or "#" in prefix:
        raise ValueError(f"an {scheme.upper()} URL has no query; options go into storage_options")
    return bucket, prefix


def take_single_writer(options: dict[str, object]) -> bool:
    """Remove ``allow_single_writer`` from the options and return it; raises `TypeError` if it is not true or false."""
    allow = options.pop(_SINGLE_WRITER, False)
    if not isinstance(allow, bool) and allow not in ("true", "false"):
        shown = repr(allow) if isinstance(allow, str) else type(allow).__name__
        raise TypeError(f"option {_SINGLE_WRITER}: true or false, not {shown}")
    return allow in (True, "true")


def require_endpoint(name: str, value: object) -> None:
    """Raise `TypeError` unless the value is an endpoint; the message has the name of the option or variable only."""
    if not isinstance(value, str) or not _is_endpoint(value):
        raise TypeError(f"{name}: an endpoint begins with http:// or https://, then a host, and perhaps a port")


def _is_endpoint(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and " " not in text
    except ValueError:  # the port is not a valid number
        return False
