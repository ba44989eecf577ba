"""`Bucket`: the names below a backend's prefix, its HEAD and LIST, and deadlines and errors for all its requests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

from agent_memory.backend._checks import refuse_larger, refuse_larger_append
from agent_memory.backend.helpers import not_found, refuse_larger_read
from agent_memory.errors import (
    AgentMemoryError,
    AppendError,
    ConflictError,
    FileOperationError,
    InvalidPathError,
    OutcomeUnknownError,
    ReadError,
    WriteError,
)
from agent_memory.key import RULES, Key
from agent_memory.object_store.engine import (
    Listing,
    NotFound,
    Object,
    ObjectStore,
    PermanentError,
    PreconditionFailed,
    RequestError,
    TooLarge,
    WriteConflict,
)
from agent_memory.object_store.retry import Attempts, OutOfTimeError
from agent_memory.object_store.states import changed

_MAX_PREFIX_BYTES = 100


class Bucket:
    """Objects below ``prefix``; see `agent_memory.object_store.ObjectStoreBackend` for the arguments."""

    def __init__(self, store: ObjectStore, prefix: str, jitter: Callable[[], float]) -> None:
        prefix = prefix.strip("/")
        if len(prefix.encode(errors="surrogatepass")) > _MAX_PREFIX_BYTES:
            raise InvalidPathError(f"the prefix is too long: {RULES['root-too-long']}", "root-too-long")
        self.store = store
        self.prefix = prefix + "/" if prefix else ""
        self.jitter = jitter

    def operation(self, key: Key, error: type[FileOperationError]) -> KeyOperation:
        """A context for requests: their deadline, and this package's errors for the store's answers."""
        bucket = f"bucket {self.store.identity!r}"
        attempts = Attempts(self.jitter, f"{key.path!r} in {bucket}" if key.path else bucket)
        return KeyOperation(key, error, attempts, bucket)

    async def head(self, key: Key, attempts: Attempts) -> Object:
        return await attempts.until_answered(lambda: self.store.head(self.name(key)))

    async def list(
        self, key: Key, error: type[FileOperationError], top: str, *, deep: bool, limit: int, after: str | None = None
    ) -> Listing:
        limit = min(limit, self.store.most_listed)
        with self.operation(key, error) as attempts:
            listing = await attempts.until_answered(
                lambda: self.store.list(top, delimited=not deep, limit=limit, after=after)
            )
            if not all(name.startswith(top) for name in (*(each.name for each in listing.objects), *listing.prefixes)):
                raise PermanentError("the server lists names outside the prefix of the request")
            return listing

    async def holds_files(self, key: Key, error: type[FileOperationError], top: str) -> bool:
        return bool((await self.list(key, error, top, deep=True, limit=1)).objects)

    async def is_file(self, key: Key) -> bool:
        try:
            with self.operation(key, WriteError) as attempts:
                await self.head(key, attempts)
        except FileNotFoundError:
            return False
        return True

    async def is_directory(self, key: Key) -> bool:
        return await self.holds_files(key, WriteError, self.directory(key))

    def name(self, key: Key) -> str:
        return self.prefix + key.storage

    def path(self, name: str, prefix: Key) -> str:
        """The path of an object in the tree of a key, even if no key can have this path."""
        return name[len(self.prefix) + len(prefix.base) + 1 if prefix.base else len(self.prefix) :]

    def directory(self, prefix: Key) -> str:
        return self.prefix + prefix.storage + "/" if prefix.storage else self.prefix


class KeyOperation(AbstractContextManager[Attempts]):
    """See `Bucket.operation`; a class, because every request uses one, and a generator is slower."""

    __slots__ = ("_attempts", "_bucket", "_error", "_key", "_path")

    def __init__(self, key: Key, error: type[FileOperationError], attempts: Attempts, bucket: str) -> None:
        self._key = key
        self._path = key.path or None
        self._bucket = bucket
        self._error = error
        self._attempts = attempts

    def __enter__(self) -> Attempts:
        return self._attempts

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, _: TracebackType | None) -> None:
        if raised is None:
            return
        if isinstance(raised, NotFound):
            raise not_found(self._key) from None
        if isinstance(raised, PreconditionFailed | WriteConflict):
            raise changed(self._key) from raised
        if isinstance(raised, TooLarge):
            refuse = {ReadError: refuse_larger_read, AppendError: refuse_larger_append}.get(self._error, refuse_larger)
            refuse(self._key, raised.size, raised.most)
        if isinstance(raised, TimeoutError):  # of the lock: a request raises `NoResponse`
            waited = f"waited {self._attempts.deadline.seconds:g} s for other writers of this process"
            raise self._error(f"{self._bucket}: {waited}; nothing was written", path=self._path) from None
        if isinstance(raised, RecursionError) and self._attempts.sent:
            raise self._unknown("the stack was full") from raised
        if isinstance(raised, ReadError | WriteError) and self._attempts.lost:  # by a nested operation
            raise self._unknown("the answer to a write was lost, and a later request failed") from raised
        if isinstance(raised, RequestError | OutOfTimeError):
            raise self._ended(raised) from raised

    def _ended(self, failure: RequestError | OutOfTimeError) -> AgentMemoryError:
        if self._attempts.lost and self._error is not ReadError:
            return self._unknown(str(failure))
        if isinstance(failure, OutOfTimeError) and failure.races:
            return ConflictError(f"{self._bucket}: {failure}; nothing was written", path=self._path)
        return self._error(f"{self._bucket}: {failure}", path=self._path)

    def _unknown(self, because: str) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"{self._bucket}: {because}; it could not be found out whether the write took effect", path=self._path
        )
