"""The S3 backend: ``s3://bucket/prefix`` on s3fs's coroutines, with S3's own conditional writes.

Every condition goes to the server in the request itself (``If-None-Match: *``, ``If-Match: etag``): the
paths through s3fs that drop conditions in silence (`open`, multipart `pipe_file`) are not used, and no
listing is cached. ``storage_options`` are s3fs's own: ``endpoint_url``, ``key``, ``secret``, ``profile`` ...
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from agent_memory.backend import (
    ABSENT,
    ANY,
    Backend,
    BackendFactory,
    Capabilities,
    Entry,
    Page,
    PageBuilder,
    ReadWhen,
    Snapshot,
    Version,
    WriteWhen,
    hookimpl,
    refuse_larger,
)
from agent_memory.errors import (
    AgentMemoryFileNotFoundError,
    BackendNotAvailableError,
    ConflictError,
    FileAlreadyExistsError,
    InvalidPathError,
    ReadError,
    WriteError,
)
from agent_memory.key import RULES, Key
from agent_memory_s3._client import Client, PreconditionFailed, Racing, keeps_directories
from agent_memory_s3._directories import Directories

__all__ = ["S3Backend", "agent_memory_register_backends"]

_MAX_PREFIX_BYTES = 100
_MAX_KEYS = 1000
_MOST_TRIES = 10


class S3Backend(Backend):
    """Objects below ``prefix`` in a bucket.

    Args:
        bucket: its name; the bucket must exist.
        prefix: at most 100 bytes of UTF-8, because S3 keys have 1,024.
        storage_options: s3fs's; ``max_pool_connections`` and the timeouts in ``config_kwargs`` have defaults.
    """

    capabilities = Capabilities(
        atomic_write=True,
        atomic_create=True,
        compare_and_swap=True,
        durability="full",
        exclusive_names=False,
        case_sensitive=True,
        read_after_write=True,
    )

    def __init__(self, bucket: str, prefix: str = "", storage_options: Mapping[str, object] | None = None) -> None:
        prefix = prefix.strip("/")
        if len(prefix.encode(errors="surrogatepass")) > _MAX_PREFIX_BYTES:
            raise InvalidPathError(f"the prefix is too long: {RULES['root-too-long']}", "root-too-long")
        self._prefix = prefix + "/" if prefix else ""
        self._client = Client(bucket, storage_options or {})
        self._directories = Directories(self._is_file, self._is_directory, self._subdirectories)

    async def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        conditions: dict[str, Any] = {} if when is ANY else {"IfMatch": when.token}
        if (bytes_range := _range(start, end)) is not None:
            conditions["Range"] = bytes_range
        if bytes_range == _EMPTY:
            entry = await self._head(key, ReadError)
            if when not in (ANY, entry.version):
                raise _changed(key)
            return Snapshot(b"", _required(entry), entry.size)
        try:
            return await self._client.get(
                self._name(key), key, lambda size: refuse_larger(key, size, self.max_bytes), **conditions
            )
        except (PreconditionFailed, Racing) as error:
            raise _changed(key) from error

    async def stat(self, key: Key) -> Entry:
        return await self._head(key, ReadError)

    async def write(self, key: Key, data: bytes, when: WriteWhen = ANY) -> Version:
        if not isinstance(when, Version):
            await self._directories.claim(key)
        conditions = {"IfMatch": when.token} if isinstance(when, Version) else {}
        if when is ABSENT:
            conditions = {"IfNoneMatch": "*"}
        for _ in range(_MOST_TRIES):
            try:
                reply = await self._client.call("put_object", self._name(key), key, WriteError, Body=data, **conditions)
                return Version(reply["ETag"])
            except PreconditionFailed as error:
                if when is not ABSENT:
                    raise _changed(key) from error
                if not (error.keeps_directories and await self._freed(key)):
                    raise FileAlreadyExistsError(f"{key.path!r}: the file exists") from error
            except AgentMemoryFileNotFoundError as error:  # If-Match on an object that is gone
                raise ConflictError(f"{key.path!r}: the file is gone") from error
            except Racing as error:
                if isinstance(when, Version):
                    raise _changed(key) from error
        raise ConflictError(f"{key.path!r}: other writers kept the object busy; nothing was written")

    async def delete(self, key: Key, when: ReadWhen = ANY) -> None:
        for _ in range(_MOST_TRIES):
            # S3 answers 204 for a missing key too; and deleting exactly what was seen tells who deleted it.
            version = _required(await self._head(key, WriteError))
            if when is not ANY and version != when:
                raise _changed(key)
            try:
                await self._client.call("delete_object", self._name(key), key, WriteError, IfMatch=version.token)
                return
            except (PreconditionFailed, Racing) as error:
                if when is not ANY:
                    raise _changed(key) from error
        raise ConflictError(f"{key.path!r}: other writers kept the object busy; nothing was deleted")

    async def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        top = self._directory(prefix)
        reply = await self._list(prefix, top, recursive, limit, after)
        builder = PageBuilder(prefix)
        for found in reply.get("Contents", ()):
            if not found["Key"].endswith("/"):  # a console's folder marker
                modified = found["LastModified"].timestamp()
                builder.file(found["Key"][len(top) :], found["Size"], modified, Version(found["ETag"]))
        for name in await self._directory_names(prefix, top, reply):
            builder.directory(name)
        return builder.whole_page(reply.get("NextContinuationToken"))

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _list(
        self, key: Key, top: str, recursive: bool, limit: int, after: str | None = None
    ) -> Mapping[str, Any]:
        options: dict[str, Any] = {} if recursive else {"Delimiter": "/"}
        if after is not None:
            options["ContinuationToken"] = after
        return await self._client.call(
            "list_objects_v2", None, key, ReadError, Prefix=top, MaxKeys=min(limit, _MAX_KEYS), **options
        )

    async def _directory_names(self, prefix: Key, top: str, reply: Mapping[str, Any]) -> Sequence[str]:
        """The directories of a listing that hold files."""
        found = [common["Prefix"] for common in reply.get("CommonPrefixes", ())]
        if keeps_directories(reply["ResponseMetadata"]["HTTPHeaders"].get("server", "")):
            held = await asyncio.gather(*(self._holds_files(prefix, name) for name in found))
            found = [name for name, holds in zip(found, held, strict=True) if holds]
        return [name[len(top) : -1] for name in found]

    async def _holds_files(self, key: Key, top: str) -> bool:
        return bool((await self._list(key, top, recursive=True, limit=1)).get("Contents"))

    async def _head(self, key: Key, error: type[ReadError | WriteError]) -> Entry:
        reply = await self._client.call("head_object", self._name(key), key, error)
        return Entry(key, reply["ContentLength"], reply["LastModified"].timestamp(), Version(reply["ETag"]))

    async def _freed(self, key: Key) -> bool:
        """Remove an emptied directory that a server keeps in the place of a file; False if the name is in use."""
        if await self._is_file(key) or await self._is_directory(key):
            return False
        await self._remove_directory(key, self._directory(key))
        return True

    async def _remove_directory(self, key: Key, top: str) -> None:
        for common in (await self._list(key, top, recursive=False, limit=_MAX_KEYS)).get("CommonPrefixes", ()):
            await self._remove_directory(key, common["Prefix"])
        await self._client.call("delete_object", top, key, WriteError)  # its key ends in "/": never a file

    async def _is_file(self, key: Key) -> bool:
        try:
            await self._head(key, WriteError)
        except AgentMemoryFileNotFoundError:
            return False
        return True

    async def _is_directory(self, key: Key) -> bool:
        return await self._holds_files(key, self._directory(key))

    async def _subdirectories(self, directory: Key) -> set[str]:
        top = self._directory(directory)
        reply = await self._list(directory, top, recursive=False, limit=_MAX_KEYS)
        return {common["Prefix"][len(top) : -1] for common in reply.get("CommonPrefixes", ())}

    def _name(self, key: Key) -> str:
        return self._prefix + key.storage

    def _directory(self, prefix: Key) -> str:
        return self._prefix + prefix.storage + "/" if prefix.storage else self._prefix


_EMPTY = "empty"


def _range(start: int | None, end: int | None) -> str | None:
    """The ``Range`` header of a slice; None for the whole object, `_EMPTY` for no bytes at all."""
    if start is None and end is None:
        return None
    if start is not None and start < 0:
        if end is not None:
            raise ValueError("a negative start counts from the end and goes without an end")
        return f"bytes={start}"
    first = start or 0
    if end is not None and end <= first:
        return _EMPTY
    return f"bytes={first}-{'' if end is None else end - 1}"


def _required(entry: Entry) -> Version:
    return cast(Version, entry.version)  # a HEAD always has an ETag


def _changed(key: Key) -> ConflictError:
    return ConflictError(f"{key.path!r}: the file changed since it was read; nothing was written")


def _open(url: str, options: Mapping[str, object]) -> S3Backend:
    bucket, _, prefix = url.partition("://")[2].partition("/")
    if not bucket:
        raise ValueError("an S3 URL is s3://bucket/prefix")
    if "?" in prefix or "#" in prefix:
        raise ValueError("an S3 URL has no query; options go into storage_options")
    try:
        return S3Backend(bucket, prefix, options)
    except ImportError as error:
        raise BackendNotAvailableError("s3:// needs s3fs: pip install 'agent-memory[s3]'") from error
    except (TypeError, ValueError):
        raise
    except Exception as error:  # a profile that does not exist, a configuration file that does not parse
        raise BackendNotAvailableError(f"s3:// does not open with these options: {type(error).__name__}") from error


@hookimpl
def agent_memory_register_backends(register: Callable[[str, BackendFactory], None]) -> None:
    """Add ``s3://``."""
    register("s3", _open)
