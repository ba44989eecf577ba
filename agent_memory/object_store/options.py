"""The URLs and storage options that all engines have in common, and the hosts and buckets of AWS S3.

AWS documents the preconditions of general purpose buckets, and the order of their listings. A host of AWS may also
belong to a customer's own server, for example a load balancer or a virtual machine. So a domain alone is not trusted.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from agent_memory.errors import UnsupportedOperationError

_SINGLE_WRITER = "allow_single_writer"
_DOMAINS = (
    r"(?:amazonaws\.com(?:\.cn)?|amazonaws\.eu|c2s\.ic\.gov|sc2s\.sgov\.gov|cloud\.adc-e\.uk|csp\.hci\.ic\.gov)\.?"
)
"""The domains of the partitions of AWS."""
_REGION = r"[a-z]{2,4}(?:-[a-z]+)+-\d+"
_KIND = rf"(?:-(?:accelerate|external-1|accesspoint|accesspoint-fips|fips|fips-{_REGION}|{_REGION}))?"
_S3 = re.compile(rf"(?:[^/]+\.)?s3{_KIND}(?:\.dualstack)?(?:\.{_REGION})?(?:\.vpce)?\.{_DOMAINS}", re.IGNORECASE)

_DIRECTORY: Final = (
    "a directory bucket (S3 Express One Zone) lists names in no order, so files would be left out of listings"
)
_OUTPOSTS: Final = "a bucket on Outposts does not document the preconditions of its writes"
_LAMBDA: Final = "an Object Lambda access point returns other bytes than it was sent"
_SEVERAL_REGIONS: Final = "a Multi-Region Access Point writes to several buckets, and no precondition holds for all"
_TABLES: Final = "a table bucket holds tables, not files"
_BUCKETS = {
    r".*--xa?-s3": _DIRECTORY,
    r".*--op-s3": _OUTPOSTS,
    r".*--ol-s3": _LAMBDA,
    r".*\.mrap": _SEVERAL_REGIONS,
    r".*--table-s3": _TABLES,
}
_SERVICES = {
    "s3express": _DIRECTORY,
    "s3-outposts": _OUTPOSTS,
    "s3-object-lambda": _LAMBDA,
    "s3-global": _SEVERAL_REGIONS,
}


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


def host_of(endpoint: str) -> str:
    """The host of the URL of an endpoint; "" if it has none."""
    return urlsplit(endpoint).hostname or ""


def is_aws_s3(host: str) -> bool:
    """Whether a host belongs to general purpose buckets of AWS S3, in any partition and by any of its endpoints."""
    return _S3.fullmatch(host) is not None


def require_general_purpose(bucket: str, host: str = "") -> None:
    """Raise `UnsupportedOperationError` for a bucket or host of AWS whose listings or preconditions are not S3's.

    Args:
        bucket: the name of the bucket, or the alias of an access point; an ARN is refused with every URL.
        host: the host of the endpoint, if it is known.
    """
    found = [reason for pattern, reason in _BUCKETS.items() if re.fullmatch(pattern, bucket)]
    for service, reason in _SERVICES.items():
        if re.fullmatch(rf"(?:.+\.)?{service}(?:-[^.]+)?\.(?:.+\.)?{_DOMAINS}", host, re.IGNORECASE):
            found.append(reason)
    if found:
        raise UnsupportedOperationError(f"{found[0]}: use a general purpose bucket of S3")
