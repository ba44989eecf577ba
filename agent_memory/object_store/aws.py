"""The hosts of AWS S3 that are trusted to enforce preconditions, and the kinds of buckets that are refused.

AWS documents the preconditions of general purpose buckets, and the order of their listings. A host of AWS may also
belong to a customer's own server, for example a load balancer or a virtual machine. So a domain alone is not trusted.
"""

from __future__ import annotations

import re
from typing import Final

from agent_memory.errors import UnsupportedOperationError

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
