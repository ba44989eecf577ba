"""`BlockingStore`: calls the verbs of any backend, and flows over it, for a sync caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from agent_memory.backend import (
    ANY,
    AnyBackend,
    Backend,
    Entry,
    ETag,
    Page,
    ReadWhen,
    Snapshot,
    WriteWhen,
)
from agent_memory.key import Key
from agent_memory.reading.reader import Reader
from agent_memory.runtime.run import Run, step
from agent_memory.runtime.runners import close_backend, sync_run

P = ParamSpec("P")
T = TypeVar("T")


class BlockingStore:
    """The verbs of a sync or async backend as blocking calls; errors as of the backend.

    Attributes:
        backend: the backend.
    """

    def __init__(self, backend: AnyBackend) -> None:
        self.backend = backend
        self._verbs = cast(Backend, backend)  # a Run calls the verbs of a blocking backend in the same way
        self._run = sync_run(backend)

    def run(
        self, flow: Callable[Concatenate[Backend, Run, P], Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a flow, such as those of `agent_memory.core.flows`."""
        return step(flow(self._verbs, self._run, *args, **kwargs))

    def call(self, verb: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call a verb of an optional protocol."""
        return step(self._run.call(cast(Callable[P, Awaitable[Any]], verb), *args, **kwargs))

    def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        return step(self._run.call(self._verbs.read, key, start, end, when))

    def stat(self, key: Key) -> Entry:
        return step(self._run.call(self._verbs.stat, key))

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY) -> ETag:
        return step(self._run.call(self._verbs.write, key, data, when))

    def delete(self, key: Key, when: ReadWhen = ANY) -> None:
        step(self._run.call(self._verbs.delete, key, when))

    def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        return step(self._run.call(self._verbs.list, prefix, recursive=recursive, after=after, limit=limit))

    def reader(self, key: Key) -> Reader:
        """Return a reader of one file, in ranges."""
        return Reader(self._verbs, self._run, key)

    def close(self) -> None:
        close_backend(self.backend)
