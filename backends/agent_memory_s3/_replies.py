"""What a reply must hold to be the answer to a request: botocore takes any XML, and leaves out what it does not find.

So a login page, or an empty body, would be a listing of nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_memory.object_store import Failed

LISTING = ("Name", "IsTruncated")
UPLOADS = ("Bucket", "IsTruncated")
"""What every server sends in a listing, of nothing too; ``Prefix`` is not among it, for some garble or omit it."""


def require_listing(reply: Mapping[str, Any], elements: Sequence[str]) -> None:
    """Raise `Failed` unless a reply has the elements of a listing."""
    if missing := [name for name in elements if name not in reply]:
        raise Failed(f"the answer is no S3 listing: it has no {missing[0]}")


def next_of(reply: Mapping[str, Any], marker: str) -> str | None:
    """Where the next page of a listing begins, None at the end."""
    if not reply["IsTruncated"]:
        return None
    if not (found := reply.get(marker)):
        raise Failed(f"the answer is no S3 listing: there is more of it, and no {marker}")
    return str(found)
