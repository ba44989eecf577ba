"""One S3 client: s3fs's session, one request per call, and every foreign error translated in one function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from inspect import signature
from typing import Any

from agent_memory.backend import Snapshot, Version, not_found
from agent_memory.errors import (
    AgentMemoryError,
    FileOperationError,
    OutcomeUnknownError,
    ReadError,
    UnsupportedOperationError,
    WriteError,
)
from agent_memory.key import Key

_CONFIG = {
    "connect_timeout": 5,
    "read_timeout": 20,
    "max_pool_connections": 64,
    "retries": {"total_max_attempts": 3, "mode": "standard"},
}
_CONDITIONS = {"PutObject": {"IfMatch", "IfNoneMatch"}, "DeleteObject": {"IfMatch"}, "GetObject": {"IfMatch"}}
_NEVER_SENT = ("NoCredentialsError", "PartialCredentialsError", "EndpointConnectionError", "ConnectTimeoutError",
               "ParamValidationError", "ProfileNotFound", "ClientConnectorError")  # fmt: skip


class PreconditionFailed(Exception):
    """The server refused the condition (412)."""

    def __init__(self, server: str = "") -> None:
        super().__init__()
        self.keeps_directories = keeps_directories(server)


class Racing(Exception):
    """The server could not decide the condition while another write was under way (409)."""


class Client:
    """Calls S3 for one bucket. Coroutines run on fsspec's I/O loop.

    Raises:
        ImportError: s3fs is not installed.
        TypeError: an option s3fs does not take.
    """

    def __init__(self, bucket: str, storage_options: Mapping[str, object]) -> None:
        from s3fs import S3FileSystem

        options: dict[str, Any] = dict(storage_options)
        _refuse_unknown(options)
        options.setdefault("session", _session(options))
        config = {**_CONFIG, **options.pop("config_kwargs", {})}
        self._bucket = bucket
        self._fs = S3FileSystem(**options, config_kwargs=config, use_listings_cache=False, skip_instance_cache=True)
        self._fs.retries = 1  # botocore alone retries: the two would multiply
        self._checked = False

    async def call(
        self, method: str, name: str | None, key: Key, error: type[ReadError | WriteError], **options: Any
    ) -> Mapping[str, Any]:
        """One request.

        Raises:
            PreconditionFailed, Racing: the condition was refused, or not decided.
            AgentMemoryFileNotFoundError: no such object.
            FileOperationError: ``error``, or `OutcomeUnknownError` for a write that may have been applied.
        """
        if name is not None:
            options["Key"] = name
        try:
            await self._connected()
            reply: Mapping[str, Any] = await self._fs._call_s3(method, Bucket=self._bucket, **options)
        except AgentMemoryError:
            raise
        except Exception as cause:
            raise translated(cause, key, error, options) from cause
        return reply

    async def get(self, name: str, key: Key, accept: Callable[[int], None], **options: Any) -> Snapshot:
        """Read an object or a range of it; ``accept`` sees the number of bytes before they are read."""
        try:
            reply = await self.call("get_object", name, key, ReadError, **options)
        except _RangeNotSatisfiable:
            head = await self.call("head_object", name, key, ReadError)
            return Snapshot(b"", Version(head["ETag"]), head["ContentLength"])
        async with reply["Body"] as body:
            accept(reply["ContentLength"])
            try:
                data: bytes = await body.read()
            except Exception as cause:
                raise translated(cause, key, ReadError, {}) from cause
        size = int(reply["ContentRange"].rpartition("/")[2]) if "ContentRange" in reply else len(data)
        return Snapshot(data, Version(reply["ETag"]), size)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._fs._s3 is not None:
            await self._fs._s3creator.__aexit__(None, None, None)
            self._fs._s3 = None

    async def _connected(self) -> None:
        if not self._checked:
            _require_conditions(await self._fs.set_session())
            self._checked = True


def _session(options: dict[str, Any]) -> Any:
    """A session that does not parse botocore's large descriptions of S3 anew; takes its options out of the others."""
    from aiobotocore.session import AioSession

    own = signature(AioSession.__init__).parameters.keys() & options.keys()
    session = AioSession(**{name: options.pop(name) for name in own})
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    return session


@cache
def _loader(data_path: str | None) -> Any:
    from botocore.loaders import create_loader

    return create_loader(data_path)


def _refuse_unknown(options: Mapping[str, object]) -> None:
    """s3fs hands what it does not know to its session, which fails at the first request, not here."""
    from aiobotocore.session import AioSession
    from s3fs import S3FileSystem

    known = {*signature(S3FileSystem.__init__).parameters, *signature(AioSession.__init__).parameters}
    if unknown := options.keys() - (known - {"self", "kwargs", "asynchronous", "loop"}):
        raise TypeError(f"s3:// takes s3fs's options, among which is no {', '.join(sorted(unknown))}")


def keeps_directories(server: str) -> bool:
    """Whether a server, by its ``Server`` header, keeps directories that were emptied; on S3 proper there are none."""
    return "SeaweedFS" in server


class _RangeNotSatisfiable(Exception):
    """The range begins at or after the end (416)."""


def _require_conditions(client: Any) -> None:
    """s3fs drops keywords that botocore does not know, conditions among them, without a word."""
    for operation, conditions in _CONDITIONS.items():
        if missing := conditions - set(client.meta.service_model.operation_model(operation).input_shape.members):
            raise UnsupportedOperationError(
                f"the installed botocore knows no {', '.join(sorted(missing))} for {operation}: upgrade s3fs"
            )


def translated(
    cause: Exception, key: Key, error: type[ReadError | WriteError], options: Mapping[str, object]
) -> Exception:
    """Our error for one of s3fs's, botocore's or aiohttp's; the one place that knows theirs.

    s3fs hides the reply behind `OSError` with reused errno (412 and 416 are both EINVAL), so this branches on
    the code and the HTTP status of the reply.
    """
    response = getattr(cause, "response", None) or getattr(cause.__cause__, "response", None)
    if not isinstance(response, Mapping):
        return _without_reply(cause, key, error)
    code = str(response.get("Error", {}).get("Code", ""))
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code == "NoSuchBucket":
        return error("the bucket does not exist")
    if status == 404 and "Key" in options:
        return not_found(key)
    conditional = "IfMatch" in options or "IfNoneMatch" in options
    if status == 412 and conditional:
        return PreconditionFailed(str(response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("server", "")))
    if status == 409 and conditional:
        return Racing()
    if status == 416 and "Range" in options:
        return _RangeNotSatisfiable()
    return _refused(code, status, key, error)


def _refused(
    code: str, status: int, key: Key, error: type[ReadError | WriteError]
) -> FileOperationError | AgentMemoryError:
    if status == 501:
        return UnsupportedOperationError(f"{key.path!r}: this server does not take conditional requests")
    if status == 403:
        return error(f"{key.path!r}: access denied by S3")
    if status >= 500 and error is WriteError:
        return OutcomeUnknownError(f"{key.path!r}: S3 answered {code or status}; the write may have been applied")
    return error(f"{key.path!r}: S3 answered {code or status}")


def _without_reply(cause: Exception, key: Key, error: type[ReadError | WriteError]) -> FileOperationError:
    name = type(cause).__name__
    if error is WriteError and name not in _NEVER_SENT:
        return OutcomeUnknownError(f"{key.path!r}: no reply from S3 ({name}); the write may have been applied")
    return error(f"{key.path!r}: no reply from S3 ({name})")
