"""`Following`: the settings of one store as this process knows them; flows keep versions if the settings say so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

from agent_memory.backend import ABSENT, Backend, KeepsOrigins, Snapshot, Uncopied, WriteWhen
from agent_memory.core.flows import Effect, checks_capabilities, read_if_present
from agent_memory.core.versions.flowing import VersionedRun
from agent_memory.core.versions.origin import MadeBy
from agent_memory.core.versions.retention import Pruning
from agent_memory.core.versions.settings import FOLLOW_SECONDS, SETTINGS, Settings, Versions, new_settings
from agent_memory.core.versions.store import VersionedStore, require_versions
from agent_memory.errors import AppendError, ConflictError, FileAlreadyExistsError, ReadError
from agent_memory.hookspecs import Operation
from agent_memory.key import Key
from agent_memory.runtime.run import Run

_KEEPING_NOTHING: Final = frozenset({"append", "create", "copy"})


class Call(Protocol):
    """The facts of a running operation that this module uses; see `agent_memory.core.operation.Call`."""

    store: Backend
    run: Run
    key: Key

    @property
    def agent(self) -> str | None: ...

    @property
    def operation(self) -> Operation: ...


C = TypeVar("C", bound=Call)


class _Known(NamedTuple):
    at: float
    settings: Settings | None


class Following(Uncopied):
    """The settings of one store, read again after `FOLLOW_SECONDS`.

    Args:
        wanted: turn versions on, with these limits, before the first change; None to follow what the store says.
    """

    def __init__(self, wanted: Versions | None = None) -> None:
        self._wanted = wanted
        self._known: _Known | None = None
        self._pruning = Pruning()

    def keeping(self, flow: Callable[[C], Awaitable[Effect]]) -> Callable[[C], Awaitable[Effect]]:
        """A flow that keeps the states that it ends, if the store keeps versions."""

        async def kept(call: C) -> Effect:
            if self._wanted is not None:
                await self.require(call)
            operation = call.operation
            try:
                settings = await self.current(call.store, call.run)
            except ReadError as error:
                if operation.kind != "append":
                    raise
                raise AppendError(str(error)) from (error.__cause__ or error)
            if settings is None:
                return await flow(call)
            await self.require(call)
            inner = call.store, call.run
            by = MadeBy(operation.kind, operation.actor, operation.tool_call_id, operation.time)
            call.store = VersionedStore(*inner, call.agent, settings.secret, by)
            call.run = VersionedRun(inner[1], inner[0])
            try:
                effect = await flow(call)
            finally:
                call.store, call.run = inner
            if settings.limits and operation.kind not in _KEEPING_NOTHING:
                await self._pruning.some(*inner, call.agent, settings.limits, operation.time)
            return effect

        return kept

    async def require(self, call: Call) -> None:
        """Raise `UnsupportedOperationError` unless the store can keep versions."""
        store: Any = call.store
        if checks_capabilities(store):
            await call.run.call(cast("Callable[[Key], Awaitable[object]]", store.check_capabilities), call.key)
        require_versions(call.store)

    async def current(self, store: Backend, run: Run) -> Settings | None:
        """Return the settings if the store keeps versions; None if it keeps none."""
        now = run.now()
        known = self._known
        if known is None or now - known.at >= FOLLOW_SECONDS:
            known = _Known(now, await self._read(store, run))
            self._known = known
        settings = known.settings
        return settings if settings and settings.limits else None

    async def any(self, store: Backend, run: Run) -> Settings | None:
        """Return the settings, also if versions are turned off now; None if they were never on."""
        snapshot = await read_if_present(store, run, SETTINGS)
        return Settings.parse(snapshot.data) if snapshot else None

    async def turn(self, store: Backend, run: Run, limits: Versions | None) -> Settings | None:
        """Turn versions on with the given limits, or off; return the settings."""
        while True:
            snapshot = await read_if_present(store, run, SETTINGS)
            settings = Settings.parse(snapshot.data) if snapshot else None
            if settings is None and limits is None:
                return None
            wanted = replace(settings, limits=limits) if settings else new_settings(limits)
            if wanted == settings or await _stored(store, run, wanted, snapshot):
                self._known = _Known(run.now(), wanted)
                return wanted

    async def _read(self, store: Backend, run: Run) -> Settings | None:
        settings = await self.any(store, run)
        if self._wanted is None or (settings and settings.limits == self._wanted):
            return settings
        return await self.turn(store, run, self._wanted)


async def _stored(store: Backend, run: Run, settings: Settings, before: Snapshot | None) -> bool:
    """Store settings, unless others were stored since; those that turn versions on have an origin, to try that out."""
    when: WriteWhen = before.version if before else ABSENT
    data = settings.to_bytes()
    try:
        if settings.limits is None:
            await run.call(store.write, SETTINGS, data, when)
        else:
            write = cast("Callable[..., Awaitable[object]]", cast(KeepsOrigins, store).write_with_origin)
            await run.call(write, SETTINGS, data, when, "settings")
    except (ConflictError, FileAlreadyExistsError):
        return False
    return True
