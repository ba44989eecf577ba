"""`Following`: the settings of one store as this process knows them; flows keep versions if the settings say so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, NamedTuple, Protocol, TypeVar, cast

from agent_memory.backend import ABSENT, Backend, KeepsOrigins, Snapshot, Uncopied, WriteWhen
from agent_memory.core.flows import Effect, checked_capabilities, read_if_present
from agent_memory.core.sweeping import Sweep
from agent_memory.core.versions.origin import made_by
from agent_memory.core.versions.retention import prune_some
from agent_memory.core.versions.settings import FOLLOW_SECONDS, SETTINGS, Versions, VersionSettings, new_settings
from agent_memory.core.versions.store import VersionedStore, about_callers_file, require_versions
from agent_memory.errors import (
    AgentMemoryError,
    AppendError,
    ConflictError,
    FileAlreadyExistsError,
    ReadError,
)
from agent_memory.hookspecs import Operation, OperationKind
from agent_memory.key import Key
from agent_memory.runtime.run import Run

_SUBJECT: Final = "the settings of versions"
_KEEPING_NOTHING: Final = frozenset({"append", "create", "copy"})


class SettingsCall(Protocol):
    """The facts of a running operation that this module uses; see `agent_memory.core.operation.Call`."""

    store: Backend
    run: Run
    kind: OperationKind
    key: Key

    @property
    def agent(self) -> str | None: ...

    @property
    def operation(self) -> Operation: ...


C = TypeVar("C", bound=SettingsCall)


class _Known(NamedTuple):
    at: float
    settings: VersionSettings | None


class Following(Uncopied):
    """The settings of one store, read again after `FOLLOW_SECONDS`.

    Args:
        wanted: turn versions on, with these limits, before the first change, if they are off; None to follow what the
            store says.
    """

    def __init__(self, wanted: Versions | None = None) -> None:
        self._wanted = wanted
        self._known: _Known | None = None
        self._sweep = Sweep()

    def keeping(self, flow: Callable[[C], Awaitable[Effect]]) -> Callable[[C], Awaitable[Effect]]:
        """A flow that keeps the states that it ends, if the store keeps versions."""

        async def kept(call: C) -> Effect:
            try:
                settings = await self._current(call)
            except ReadError as error:
                if call.kind != "append":
                    raise
                raise AppendError(error.args[0], path=error.path) from (error.__cause__ or error)
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

    async def any(self, call: SettingsCall) -> VersionSettings | None:
        """Return the settings, also if versions are turned off now; None if they were never on."""
        with about_callers_file(call.key.path, _SUBJECT):
            snapshot = await read_if_present(call.store, call.run, SETTINGS)
        return VersionSettings.parse(snapshot.data) if snapshot else None

    async def turn(self, call: SettingsCall, limits: Versions | None) -> VersionSettings | None:
        """Turn versions on with the given limits, or off; return the settings.

        Raises:
            UnsupportedOperationError: they are turned on, and the store cannot keep them.
        """
        if limits is not None:
            await _require(call)
        while True:
            with about_callers_file(call.key.path, _SUBJECT):
                snapshot = await read_if_present(call.store, call.run, SETTINGS)
            settings = VersionSettings.parse(snapshot.data) if snapshot else None
            if settings is None and limits is None:
                return None
            wanted = replace(settings, limits=limits) if settings else new_settings(limits)
            with about_callers_file(call.key.path, _SUBJECT):
                is_stored = wanted == settings or await _stored(call.store, call.run, wanted, snapshot)
            if is_stored:
                self._known = _Known(call.run.now(), wanted)
                return wanted

    async def _current(self, call: SettingsCall) -> VersionSettings | None:
        now = call.run.now()
        if self._known is None or now - self._known.at >= FOLLOW_SECONDS:
            self._known = _Known(now, await self._read(call))
        return self._known.settings

    async def _read(self, call: SettingsCall) -> VersionSettings | None:
        wanted = self._wanted  # a simultaneous call that turns versions on clears it during the read
        settings = await self.any(call)
        if wanted is not None and (settings is None or settings.limits is None):
            settings = await self.turn(call, wanted)
        self._wanted = None
        return settings


async def _require(call: SettingsCall) -> None:
    await checked_capabilities(call.store, call.run, call.key)
    require_versions(call.store)


async def _stored(store: Backend, run: Run, settings: VersionSettings, before: Snapshot | None) -> bool:
    """Store settings, unless others were stored since; those that turn versions on have an origin, to try that out."""
    when: WriteWhen = before.version if before else ABSENT
    data = settings.to_bytes()
    try:
        if settings.limits is None:
            await run.call(store.write, SETTINGS, data, when)
        else:
            write = cast("Callable[..., Awaitable[object]]", cast(KeepsOrigins, store).write_with_origin)
            await run.call(write, SETTINGS, data, when, lambda: "settings")
    except (ConflictError, FileAlreadyExistsError):
        return False
    return True
