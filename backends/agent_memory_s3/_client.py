"""`S3Store`: one bucket through s3fs's session, with one request per call and no retries.

Only after refused credentials a request is sent again, with renewed ones.

Every condition is part of the request (``If-None-Match: *``, ``If-Match: etag``). The calls of s3fs that silently drop
conditions (`open`, multipart `pipe_file`) are not used, and no listing is cached.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any
from weakref import finalize

from agent_memory.backend.helpers import HostClock
from agent_memory.errors import UnsupportedOperationError
from agent_memory.object_store.engine import (
    InvalidResponse,
    Listed,
    Listing,
    NoResponse,
    NotFound,
    Object,
    PermanentError,
    RetainedPage,
    RetainedVersion,
    UnknownOutcome,
)
from agent_memory.object_store.options import host_of, is_aws_s3, require_general_purpose
from agent_memory.object_store.responses import NO_OBJECT, Reachability
from agent_memory_s3._answers import S3Request, are_refused, has_directories
from agent_memory_s3._connection import Connection, can_send_once
from agent_memory_s3._options import require_options
from agent_memory_s3._replies import (
    LISTING,
    UPLOADS,
    content_of,
    entries,
    length_of,
    next_of,
    posix_seconds,
    require_listing,
)

_CONDITIONS = {"PutObject": {"IfMatch", "IfNoneMatch"}, "DeleteObject": {"IfMatch"}, "GetObject": {"IfMatch"},
               "UploadPartCopy": {"CopySourceIfMatch"},
               "CompleteMultipartUpload": {"IfMatch", "IfNoneMatch"}}  # fmt: skip
_ETAGS = {"IfMatch", "CopySourceIfMatch"}
_LEAST_PART = 5 << 20
_CLOCKS_DIFFER = 5.0
"""The most seconds that this host's clock is assumed to be ahead of the store's before the first reply."""
_CLOCK_ERROR = 1.0
"""The same after a reply: ``Date`` is never ahead, but two servers of a store may differ a little."""


class S3Store:
    """An `agent_memory.object_store.engine.ObjectStore` of one bucket. Coroutines run on fsspec's I/O loop.

    Args:
        bucket: the name of the bucket.
        storage_options: the options of s3fs; ``max_pool_connections`` and the timeouts in ``config_kwargs`` have
            defaults; options for retries and ``cache_regions`` are ignored.

    Raises:
        ImportError: s3fs is not installed.
        TypeError: s3fs does not accept an option, or not with this type of value.
        ValueError: an option has a value that is not allowed.
        UnsupportedOperationError: the bucket is none of the general purpose buckets of S3.
    """

    def __init__(self, bucket: str, storage_options: Mapping[str, object]) -> None:
        self.least_part = _LEAST_PART
        self.conditional_delete = True
        self.bare_etags = False
        self.most_listed = 1000
        self.identity = bucket
        require_general_purpose(bucket)
        require_options(storage_options)
        self.resends = not can_send_once()
        self._host_clock = HostClock()
        self._clock_was_set = False
        self._date: object = None
        self._ahead: float | None = None
        self._connection = Connection(storage_options)
        finalize(self, self._connection.close_dropped)
        self._client: Any = None
        self._contact = Reachability()
        self._heads_have_bodies = False

    def now(self) -> float:
        return time.time() + (self._ahead or 0.0)

    def clock_was_set(self) -> bool:
        if self._host_clock.was_set():
            self._clock_was_set, self._date, self._ahead = True, None, None
        return self._clock_was_set

    def ahead_by(self) -> float:
        return _CLOCKS_DIFFER if self._ahead is None else _CLOCK_ERROR

    @property
    def server(self) -> str:
        return self._client.meta.endpoint_url if self._client else ""

    async def is_trusted(self) -> bool:
        with S3Request(self._contact, {}, sent=False):
            return is_aws_s3(host_of((await self._connect()).meta.endpoint_url))

    async def get(
        self, name: str, *, span: str | None = None, if_match: str | None = None, most: int | None = None
    ) -> Object:
        reply = await self._call("get_object", Key=name, **_given(Range=span, IfMatch=if_match))
        async with reply["Body"]:
            with S3Request(self._contact, {}):
                data, size = await content_of(reply, span, most)
        return _object(reply, size, data)

    async def head(self, name: str) -> Object:
        if not self._heads_have_bodies:
            reply = await self._call("head_object", Key=name)
        else:
            reply = await self._call("get_object", Key=name)
            reply["Body"].close()
        return _object(reply, length_of(reply), b"")

    async def put(
        self, name: str, data: bytes, metadata: Mapping[str, str], *, if_match: str | None = None, absent: bool = False
    ) -> str:
        conditions = _given(IfMatch=if_match, IfNoneMatch="*" if absent else None)
        reply = await self._call("put_object", Key=name, Body=data, Metadata=dict(metadata), **conditions)
        if not reply.get("ETag"):
            raise UnknownOutcome(NO_OBJECT)
        return _etag(reply)

    async def delete(self, name: str, *, if_match: str | None = None) -> None:
        await self._call("delete_object", Key=name, **_given(IfMatch=if_match))

    async def list(self, prefix: str, *, delimited: bool, limit: int, after: str | None = None) -> Listing:
        options = _given(Delimiter="/" if delimited else None, ContinuationToken=after)
        reply = await self._call("list_objects_v2", Prefix=prefix, MaxKeys=limit, **options)
        require_listing(reply, LISTING)
        with entries():
            contents = reply.get("Contents", ())
            # The same result as `timestamp()`, without a time zone look-up per entry.
            epoch = datetime(1970, 1, 1, tzinfo=contents[0]["LastModified"].tzinfo) if contents else None
            found = [
                Listed(each["Key"], each["Size"], (each["LastModified"] - epoch).total_seconds(), each["ETag"])
                for each in contents
            ]
            prefixes = [common["Prefix"] for common in reply.get("CommonPrefixes", ())]
        server = str(reply["ResponseMetadata"]["HTTPHeaders"].get("server", ""))
        return Listing(tuple(found), prefixes, next_of(reply, "NextContinuationToken"), has_directories(server))

    async def list_versions(self, prefix: str, after: tuple[str, str] | None) -> RetainedPage:
        reply = await self._call("list_object_versions", Prefix=prefix, **_from(after, "VersionIdMarker"))
        require_listing(reply, LISTING)
        with entries():
            found = [*reply.get("Versions", ()), *reply.get("DeleteMarkers", ())]
            found.sort(key=itemgetter("IsLatest", "LastModified"), reverse=True)
            found.sort(key=itemgetter("Key"))
            kept = [RetainedVersion(each["Key"], each["VersionId"]) for each in found]
        return RetainedPage(kept, _next(reply, "VersionIdMarker"))

    async def has_versioning(self) -> bool:
        return bool((await self._call("get_bucket_versioning")).get("Status"))

    async def delete_version(self, version: RetainedVersion) -> None:
        await self._call("delete_object", Key=version.name, VersionId=version.id)

    async def list_uploads(self, prefix: str, after: tuple[str, str] | None) -> RetainedPage:
        try:
            reply = await self._call("list_multipart_uploads", Prefix=prefix, **_from(after, "UploadIdMarker"))
        except NotFound:  # rclone answers NoSuchUpload if there are none
            return RetainedPage((), None)
        require_listing(reply, UPLOADS)
        with entries():
            kept = [RetainedVersion(each["Key"], each["UploadId"]) for each in reply.get("Uploads", ())]
        return RetainedPage(kept, _next(reply, "UploadIdMarker"))

    async def abort_upload(self, upload: RetainedVersion) -> None:
        await self._call("abort_multipart_upload", Key=upload.name, UploadId=upload.id)

    async def begin_upload(self, name: str, metadata: Mapping[str, str]) -> str:
        reply = await self._call("create_multipart_upload", Key=name, Metadata=dict(metadata))
        return str(reply["UploadId"])

    async def copy_part(
        self, name: str, upload: str, number: int, *, source: str, if_match: str, span: tuple[int, int]
    ) -> str:
        what = {"CopySource": {"Bucket": self.identity, "Key": source}, "CopySourceIfMatch": if_match}
        where = {"Key": name, "UploadId": upload, "PartNumber": number}
        reply = await self._call("upload_part_copy", **where, **what, CopySourceRange=f"bytes={span[0]}-{span[1]}")
        return _etag(reply["CopyPartResult"])

    async def put_part(self, name: str, upload: str, number: int, data: bytes) -> str:
        return _etag(await self._call("upload_part", Key=name, UploadId=upload, PartNumber=number, Body=data))

    async def complete_upload(
        self, name: str, upload: str, parts: Sequence[str], *, if_match: str | None = None, absent: bool = False
    ) -> str:
        listed = [{"ETag": etag, "PartNumber": number} for number, etag in enumerate(parts, 1)]
        where = {"Key": name, "UploadId": upload, "MultipartUpload": {"Parts": listed}}
        conditions = _given(IfMatch=if_match, IfNoneMatch="*" if absent else None)
        return _etag(await self._call("complete_multipart_upload", **where, **conditions))

    async def aclose(self) -> None:
        await self._connection.aclose()

    async def _call(self, method: str, **options: Any) -> Mapping[str, Any]:
        with S3Request(self._contact, options, sent=False):
            await self._connect()
        sent = _with_bare_etags(options) if self.bare_etags else options
        try:
            with S3Request(self._contact, sent, method=method):
                reply = await self._requested(method, sent)
        except InvalidResponse:
            self._heads_have_bodies = True
            raise
        self._hear(reply)
        return reply

    async def _requested(self, method: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request; again, once, if its credentials were refused and others can be read."""
        used = await self._connection.keys()
        try:
            return await self._sent(method, options)
        except OSError as cause:
            if not (are_refused(method, cause) and await self._connection.renew(used)):
                raise
        return await self._sent(method, options)

    async def _sent(self, method: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return await self._connection.call(method, Bucket=self.identity, **options)
        except OSError as cause:
            reply = getattr(cause.__cause__, "response", {})
            self._hear(reply)
            if method == "head_object" and not is_aws_s3(host_of(self.server)):
                self._heads_have_bodies |= _is_chunked(reply)
            raise

    async def _connect(self) -> Any:
        client = await self._connection.client()
        if client is not self._client:
            _require_conditions(client)
            require_general_purpose(self.identity, host_of(client.meta.endpoint_url))
            if not is_aws_s3(host_of(client.meta.endpoint_url)):
                self._connection.send_plain_bodies(client)
            self._client = client
        return client

    def _hear(self, reply: Any) -> None:
        """Note that the server replied, and take the store's clock from each new ``Date`` of a reply."""
        if not isinstance(reply, Mapping) or not reply:
            return
        self._contact.made = True
        self._clock_was_set = False
        date = reply.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        if date != self._date and (now := posix_seconds(date)) is not None:
            self._date, self._ahead = date, now - time.time()


def _is_chunked(reply: Mapping[str, Any]) -> bool:
    """Whether a reply announces chunks: OpenStack Swift wrongly sends the end of the chunks after a HEAD too.

    aiohttp would read it as the next reply, or, if it comes late, as the reply to another request.
    """
    headers = reply.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return str(headers.get("transfer-encoding", "")).lower() == "chunked"


def _from(after: tuple[str, str] | None, marker: str) -> dict[str, str]:
    return {"KeyMarker": after[0], marker: after[1]} if after else {}


def _next(reply: Mapping[str, Any], marker: str) -> tuple[str, str] | None:
    name = next_of(reply, "NextKeyMarker")
    return None if name is None else (name, reply.get(f"Next{marker}", ""))


def _given(**options: str | None) -> dict[str, str]:
    return {name: value for name, value in options.items() if value is not None}


def _with_bare_etags(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.strip('"') if name in _ETAGS else value for name, value in options.items()}


def _object(reply: Mapping[str, Any], size: int, data: bytes) -> Object:
    metadata = {name.lower(): value for name, value in reply.get("Metadata", {}).items()}
    modified = reply.get("LastModified")
    if not reply.get("ETag"):
        raise PermanentError(NO_OBJECT)
    return Object(_etag(reply), size, modified.timestamp() if modified else 0.0, metadata, data)


def _etag(reply: Mapping[str, Any]) -> str:
    if not (etag := reply.get("ETag")):
        raise NoResponse("the answer has no ETag")
    return str(etag)


def _require_conditions(client: Any) -> None:
    """Raise if botocore does not know a condition: s3fs silently drops keywords that botocore does not know."""
    for operation, conditions in _CONDITIONS.items():
        if missing := conditions - set(client.meta.service_model.operation_model(operation).input_shape.members):
            raise UnsupportedOperationError(
                f"the installed botocore has no option {', '.join(sorted(missing))} for {operation}: upgrade s3fs"
            )
