"""What the URLs and the storage options of object stores have in common, whatever the engine."""

from __future__ import annotations

from urllib.parse import urlsplit

_SINGLE_WRITER = "allow_single_writer"


def bucket_and_prefix(url: str) -> tuple[str, str]:
    """The parts of ``scheme://bucket/prefix``; raises `ValueError` if it is none."""
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = rest.partition("/")
    if not bucket:
        raise ValueError(f"an {scheme.upper()} URL is {scheme.lower()}://bucket/prefix")
    if ":" in bucket and "@" in prefix:  # a secret that begins like a port: the registry takes it for one
        raise ValueError("a URL holds no password, nor one of S3 a port; credentials go into storage_options")
    if "?" in prefix or "#" in prefix:
        raise ValueError(f"an {scheme.upper()} URL has no query; options go into storage_options")
    return bucket, prefix


def take_single_writer(options: dict[str, object]) -> bool:
    """Take ``allow_single_writer`` out of the options; raises `TypeError` if it is neither true nor false."""
    allow = options.pop(_SINGLE_WRITER, False)
    if allow not in (True, False, "true", "false"):
        raise TypeError(f"{_SINGLE_WRITER} is true or false, not {allow!r}")
    return allow in (True, "true")


def require_endpoint(name: str, value: object) -> None:
    """Raise `TypeError`, which names the option or the variable and not its value, unless that is an endpoint."""
    if not isinstance(value, str) or not _is_endpoint(value):
        raise TypeError(f"{name}: an endpoint begins with http:// or https://, then a host, and perhaps a port")


def _is_endpoint(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and " " not in text
    except ValueError:  # the port is no number of a port
        return False
