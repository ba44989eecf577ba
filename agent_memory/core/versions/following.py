"""`Following`: the settings of one store as this process knows them; flows keep versions if the settings say so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, Protocol, TypeVar

from agent_memory.backend import Backend
from agent_memory.core.flows import Effect, checked_capabilities
from agent_memory.core.known_store import KnownStore
from agent_memory.core.store_record import Feature, StoreRecord
from agent_memory.core.sweeping import Sweep
from agent_memory.core.versions.origin import made_by
from agent_memory.core.versions.retention import prune_some
from agent_memory.core.versions.settings import VersionLimits, VersionSettings
from agent_memory.core.versions.store import VersionedStore, require_versions
from agent_memory.errors import AgentMemoryError, AppendError, ReadError
from agent_memory.hookspecs import Operation, OperationKind
from agent_memory.key import Key
from agent_memory.runtime.run import Run

_KEEPING_NOTHING: Final = frozenset({"append", "create", "copy"})


class SettingsCall(Protocol):
    """The facts of a running operation that this module uses; see `agent_memory.core.operation.Call`."""

    store: Backend
    run: Run
    kind: OperationKind
    key: Key
    started: float

    @property
    def agent(self) -> str | None: ...

    @property
    def operation(self) -> Operation: ...


C = TypeVar("C", bound=SettingsCall)


class Following:
    """The settings of one store, as far as this process knows them; see `KnownStore`.

    Args:
        wanted: turn versions on, with these limits, before the first change, if they are off; None to follow what the
            store says.
    """

    def __init__(self, wanted: VersionLimits | None = None) -> None:
        self._wanted = wanted
        self._store = KnownStore()
        self._parsed: tuple[StoreRecord | None, VersionSettings | None] = (None, None)
        self._sweep = Sweep()

    def keeping(self, flow: Callable[[C], Awaitable[Effect]]) -> Callable[[C], Awaitable[Effect]]:
        """A flow that keeps the states that it ends, if the store keeps versions."""

        async def kept(call: C) -> Effect:
            settings = await self._current(call)
            if settings is None or settings.limits is None:
                return await flow(call)
            await _require(call)
            inner, operation = (call.store, call.run), call.operation
            store = VersionedStore(*inner, call.agent, settings.secret, made_by(operation))
            call.store, call.run = store, store.run
            try:
                effect = await flow(call)
            except AgentMemoryError:
                await store.links.delete_unused()
                raise
            finally:
                call.store, call.run = inner
            await store.links.delete_unused()
            effect.version_id = store.appended_to
            if call.kind not in _KEEPING_NOTHING:
                await prune_some(self._sweep, *inner, call.agent, settings.limits, operation.time)
            return effect

        return kept

    async def permit(self, call: SettingsCall) -> None:
        """Raise unless this release may change the store; every operation that can change files asks first.

        Raises:
            UnsupportedOperationError: this release is too old for the store.
            FileOperationError: the record of the store cannot be read, is damaged, or is that of another store.
        """
        try:
            self._settings(await self._store.permit(call.store, call.run))
        except ReadError as error:
            if call.kind != "append":
                raise
            raise AppendError(error.args[0], path=error.path) from (error.__cause__ or error)

    async def use(self, call: SettingsCall, feature: Feature) -> None:
        """Name a feature in the record of the store before its first file is written; errors as `permit`."""
        await self._store.use(call.store, call.run, feature)

    async def any(self, call: SettingsCall) -> VersionSettings | None:
        """Return the settings, also if versions are turned off now; None if they were never on."""
        return VersionSettings.of(await self._store.read(call.store, call.run, call.started))

    async def turn(self, call: SettingsCall, limits: VersionLimits | None) -> VersionSettings | None:
        """Turn versions on with the given limits, or off; return the settings.

        Raises:
            UnsupportedOperationError: they are turned on, and the store cannot keep them.
        """
        if limits is not None:
            await _require(call)
        settings = await self.any(call)
        if settings is None and limits is None:
            return None

        def turned(record: StoreRecord) -> StoreRecord:
            settings = VersionSettings.of(record)
            return (replace(settings, limits=limits) if settings else VersionSettings.new(limits)).stored_in(record)

        is_on = limits is not None
        record = await self._store.change(call.store, call.run, turned, tries_origins=is_on)
        return VersionSettings.of(record)

    async def _current(self, call: SettingsCall) -> VersionSettings | None:
        wanted = self._wanted  # a simultaneous call that turns versions on clears it during the read
        settings = self._settings(await self._store.permit(call.store, call.run))
        if wanted is not None and (settings is None or settings.limits is None):
            settings = await self.turn(call, wanted)
        self._wanted = None
        return settings

    def _settings(self, record: StoreRecord | None) -> VersionSettings | None:
        """The settings in a record; a record that was not read again is not parsed again."""
        parsed, settings = self._parsed
        if parsed is not record:
            settings = VersionSettings.of(record)
            self._parsed = record, settings
        return settings


async def _require(call: SettingsCall) -> None:
    await checked_capabilities(call.store, call.run, call.key)
    require_versions(call.store)
