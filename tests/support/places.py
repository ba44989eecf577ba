"""A root with its audit log, as an adversary with every stored byte sees it."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.servers import S3Server

_HEX = re.compile(rb"[0-9a-f]{32,}")
_buckets = itertools.count()


class Place(NamedTuple):
    """A root that contains its log, and every byte stored below it."""

    url: str
    options: dict[str, object]
    contents: Callable[[], Iterable[bytes]]


def on_disk(root: Path) -> Place:
    """A directory; extended attributes are among the stored bytes."""

    def contents() -> Iterator[bytes]:
        for path in root.rglob("*"):
            if path.is_file():
                attributes = b"\n".join(os.getxattr(path, name) for name in os.listxattr(path))
                yield path.name.encode() + b"\n" + path.read_bytes() + b"\n" + attributes

    return Place(root.as_uri(), {}, contents)


def in_a_versioned_bucket(server: S3Server) -> Place:
    """A bucket with versioning; its noncurrent versions and metadata are among the stored bytes."""
    bucket = f"versioned-{next(_buckets)}"
    client = server.client("s3")
    server.make_bucket(bucket)
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})

    def contents() -> Iterator[bytes]:
        found = client.list_object_versions(Bucket=bucket)
        for each in found.get("Versions", ()):
            reply = client.get_object(Bucket=bucket, Key=each["Key"], VersionId=each["VersionId"])
            yield reply["Body"].read() + json.dumps(reply["Metadata"]).encode() + each["ETag"].encode()

    return Place(f"s3://{bucket}/root", server.options, contents)


def guessable(contents: Iterable[bytes], secret: bytes) -> list[str]:
    """The kept data that would confirm a guessed secret: the secret, its digests, and digests keyed by kept data.

    A key may be used by HMAC, or stand before the secret, as bytes or as hexadecimal digits.
    """
    whole = b"\n".join(contents)
    plain = [hashlib.new(name, secret).digest() for name in ("sha256", "md5", "sha1")]
    texts = set(_HEX.findall(whole))
    keys = {bytes.fromhex(found.decode()) for found in texts if len(found) % 2 == 0}
    keyed = [hmac.digest(key, each, "sha256") for key in keys for each in (secret, plain[0])]
    salted = [hashlib.sha256(salt + secret).digest() for salt in (*texts, *keys)]
    wanted = {secret: "the secret", **{digest.hex().encode(): "a digest" for digest in (*plain, *keyed, *salted)}}
    return [name for text, name in wanted.items() if text in whole]
