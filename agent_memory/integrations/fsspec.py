"""A memory as an fsspec filesystem that is opened by URL: ``agentmemory://notes/today.md``.

fsspec finds it through the entry-point group ``fsspec.specs``, so pandas, pyarrow, polars, DuckDB, dask, zarr and
``UPath`` open such URLs with their ``storage_options``::

    pandas.read_csv("agentmemory://data/points.csv", storage_options={"root": "s3://bucket/prefix", "agent": "agent-1"})

Everything else is as in `agent_memory.filesystem`.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, SupportsIndex, cast

from fsspec.config import apply_config
from fsspec.spec import AbstractFileSystem

from agent_memory.filesystem import AgentMemoryFileSystem
from agent_memory.memory import AgentMemory
from agent_memory.plugins.configuration import close, limits_from, plugins_from, plugins_of
from agent_memory.service import AgentMemoryService

__all__ = ["AgentMemoryURLFileSystem"]

_MOST_OPENED: Final = 32
"""How many filesystems are kept for further calls with the same options."""
_PROCESS_KEY: Final = secrets.token_bytes(32)
_OF_FSSPEC: Final = frozenset({"asynchronous", "loop"})
"""Options of every filesystem of fsspec that a blocking one ignores; zarr sends them."""
_SECRET: Final = re.compile(
    r"(?i)secret|token|pass(w|phrase)|pwd|credential|connection_string|sas|signature|bearer|auth|headers|prox|"
    r"(api|access|account|shared|private|^|_)_?keys?$"
)
_WITH_USER: Final = re.compile(r"://[^/\s@]*@")
_ENVIRONMENT: Final = ("AWS_", "AZURE_", "GOOGLE_", "AGENT_MEMORY_")
"""The beginnings of environment variables that decide how a root is opened."""


class _OnePerOptions(type(AgentMemoryFileSystem)):  # type: ignore[misc]  # fsspec has no types
    """Returns the same filesystem for equal options, in one thread of one process.

    fsspec's own cache compares the text of the options, and keeps an unkeyed digest of their credentials.
    Only the filesystems that were used last are kept; another one is closed as soon as nothing uses it.
    """

    _opened: OrderedDict[str, Any]
    _guard: threading.Lock

    def __call__(cls, **options: Any) -> Any:
        options = {name: value for name, value in apply_config(cls, options).items() if name not in _OF_FSSPEC}
        token = None if options.pop("skip_instance_cache", False) else _token(options)
        if token is None:
            return super().__call__(**options)
        with cls._guard:
            found = cls._opened.get(token)
            if found and found.close.alive:
                cls._opened.move_to_end(token)
                return found
        filesystem = super().__call__(**options)
        dropped = []  # may be closed when this call ends, without the lock
        with cls._guard:
            dropped.append(cls._opened.pop(token, None))
            cls._opened[token] = filesystem
            while len(cls._opened) > _MOST_OPENED:
                dropped.append(cls._opened.popitem(last=False)[1])
        return filesystem


class AgentMemoryURLFileSystem(AgentMemoryFileSystem, metaclass=_OnePerOptions):
    """The files of one memory, as an fsspec filesystem that opens the memory itself.

    Equal options give the same object in one thread, as long as it is used or among the last 32; different ones never
    share one. It is closed when nothing uses it any more, at the latest at the end of the process. It can be pickled,
    and so sent to other processes, if its options are plain data without credentials: use a profile or the environment
    for those.

    Args:
        root: a path or a URL, as in `agent_memory.AgentMemoryService`.
        agent: the agent; None for a tree without agents.
        root_options: options of the URL's backend.
        read_only: whether files can be changed.
        actor: the person or program that acts; hooks receive it.
        timeout: the seconds of each call; see `agent_memory.AgentMemory.with_timeout`.
        plugins: the plugins by name with their options, as in a configuration; by default the plugins and
            limits of the configuration that the environment names.

    Raises:
        BackendNotAvailableError: no installed backend opens the URL.
        InvalidAgentIdError: ``agent`` is not a valid agent id.
        TypeError: an option has another type, or is unknown.
        ValueError: a plugin is not installed or does not take an option; ``timeout`` is not a positive number.
    """

    _opened: OrderedDict[str, Any] = OrderedDict()  # noqa: RUF012 - shared by all instances
    _guard = threading.Lock()

    def __init__(
        self,
        *,
        root: str | os.PathLike[str],
        agent: str | None = None,
        root_options: Mapping[str, object] | None = None,
        read_only: bool = False,
        actor: str | None = None,
        timeout: float | None = None,
        plugins: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        _check(root, root_options, read_only, plugins)
        enabled = plugins_from() if plugins is None else plugins_of(plugins)
        try:
            limits = limits_from() if plugins is None else None
            memory = _opened(
                root, agent, storage_options=root_options, plugins=enabled, actor=actor, timeout=timeout, limits=limits
            )
        except BaseException:
            close(enabled)
            raise
        super().__init__(memory.read_only() if read_only else memory)
        self.close = weakref.finalize(self, memory.close)
        """Flush and close the plugins, and release the storage; also called at the end of the process."""

    @classmethod
    def clear_instance_cache(cls) -> None:
        """Forget all filesystems; each is closed when nothing uses it any more."""
        with cls._guard:
            dropped = list(cls._opened.values())
            cls._opened.clear()
        del dropped  # without the lock

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        options = self.storage_options
        for name in _secrets(options):
            raise TypeError(
                f"this filesystem cannot be pickled, because its option {name!r} is a credential: use a profile or the "
                "environment instead"
            )
        if _token(options) is None:
            raise TypeError("this filesystem cannot be pickled, because an option is no plain data")
        return _reopened, (options,)

    def to_dict(self, **options: Any) -> Any:
        """Fsspec's description of this filesystem; raises `TypeError` if it cannot be pickled."""
        self.__reduce_ex__(2)
        return AbstractFileSystem.to_dict(self, **options)

    def to_json(self, **options: Any) -> Any:
        """As `to_dict`, in JSON."""
        self.__reduce_ex__(2)
        return AbstractFileSystem.to_json(self, **options)


def _check(root: object, root_options: object, read_only: object, plugins: object) -> None:
    if not isinstance(root, str | os.PathLike):
        raise TypeError(f"root must be a path or a URL, not {type(root).__name__}")
    if not isinstance(root_options, Mapping | None):
        raise TypeError(f"root_options must be a mapping, not {type(root_options).__name__}")
    if not isinstance(read_only, bool):
        raise TypeError(f"read_only must be True or False, not {type(read_only).__name__}")
    if plugins is not None and not _is_table_of_tables(plugins):
        raise TypeError("plugins must be a mapping of the plugins' names to mappings of their options")


def _is_table_of_tables(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(options, Mapping) for options in cast("Mapping[str, object]", value).values()
    )


def _reopened(options: dict[str, Any]) -> AgentMemoryURLFileSystem:
    return AgentMemoryURLFileSystem(**options)


def _opened(root: str | os.PathLike[str], agent: str | None, **options: Any) -> AgentMemory:
    return AgentMemory.open(root, **options) if agent is None else AgentMemoryService(root, **options).agent(agent)


def _token(options: Mapping[str, Any]) -> str | None:
    """A digest of the options, keyed for this process; None if an option is no plain data."""
    with suppress(TypeError, ValueError):
        given = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in options.items()}
        if "://" not in given.get("root", "://"):
            given["root"] = str(Path(given["root"]).expanduser().absolute())  # with "..", which may follow a link
        around = {name: value for name, value in os.environ.items() if name.startswith(_ENVIRONMENT)}
        facts = [os.getpid(), threading.get_ident(), given, around]
        return hmac.digest(_PROCESS_KEY, json.dumps(facts, sort_keys=True).encode(), "sha256").hex()
    return None


def _secrets(options: Mapping[str, Any]) -> Iterator[str]:
    """The names of options that are credentials or contain some, also inside other options."""
    for name, value in options.items():
        if isinstance(value, Mapping) and not _SECRET.search(str(name)):
            yield from _secrets(cast("Mapping[str, Any]", value))
        elif value is not None and (_SECRET.search(str(name)) or _has_secret(value)):
            yield str(name)


def _has_secret(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(True for _ in _secrets(cast("Mapping[str, Any]", value)))
    if isinstance(value, list | tuple):
        return any(map(_has_secret, cast("list[object]", value)))
    return isinstance(value, str) and _WITH_USER.search(value) is not None
