"""Opens the backend of a URL, by the plugins of the ``agent_memory`` entry-point group; built-ins have no privilege."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from agent_memory.backend import AnyBackend, Backend, BlockingBackend
from agent_memory.core.hooks import Hooks
from agent_memory.core.registration import manager_with
from agent_memory.core.switches import loads_plugins
from agent_memory.errors import DISTRIBUTION, BackendNotAvailableError
from agent_memory.hookspecs import BackendFactory

GROUP = "agent_memory"
FALLBACK = "*"
_DISK = ("file", "local")  # never by the fallback, which follows symbolic links out of the tree
_PASSWORD = re.compile(r"[^/]*://[^/:@]*:(?!\d+(/|\Z))[^@]*@", re.DOTALL)  # a password may hold slashes; a port is none
_HALF_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)(:/?(?!/)|//)")
_log = logging.getLogger("agent_memory")


def open_backend(
    root: str | os.PathLike[str] | AnyBackend,
    storage_options: Mapping[str, object] | None = None,
    hooks: Hooks | None = None,
) -> AnyBackend:
    """Open the backend of a path or URL; return a backend as it is.

    A text without ``://`` is a path; a leading ``~`` in it is the home directory. The storage option ``engine`` selects
    the backend that is registered as ``scheme+engine``.

    Raises:
        BackendNotAvailableError: no plugin has the URL's scheme, or a package that the plugin needs is not installed.
        TypeError: ``root`` has another type, or storage options were given with a backend.
        ValueError: the URL holds a password, which errors and logs would show; or its ``://`` is mistyped.
    """
    if isinstance(root, Backend | BlockingBackend):
        if storage_options:
            raise TypeError("storage_options need a path or a URL as root; this root is a backend that is already open")
        return root
    if not isinstance(root, str | os.PathLike):
        raise TypeError(f"root must be a path, a URL or a backend, not {type(root).__name__}")
    if not isinstance(storage_options or {}, Mapping):
        raise TypeError(f"storage_options is a mapping, not {type(storage_options).__name__}")
    url, options = _as_url(root), dict(storage_options or {})
    engine = options.pop("engine", None)
    factory = _factory(url.partition("://")[0], engine, hooks)
    if _PASSWORD.match(url):
        raise ValueError("a URL holds no password; credentials go into storage_options or the environment")
    try:
        return factory(url, options)
    except BackendNotAvailableError as error:
        scheme, found = url.partition("://")[0].lower(), installed_backends()
        engines = _engines(scheme, found)
        if engine is not None or scheme in found or not engines:
            raise
        offered = " or ".join(f"engine={each!r}" for each in engines)
        raise BackendNotAvailableError(f"{error}; or give the storage option {offered}") from error


def _as_url(root: str | os.PathLike[str]) -> str:
    text = os.fspath(root)
    if not isinstance(text, str):
        raise TypeError("root must be a str path, not bytes")
    if not text:
        raise ValueError("root is empty; '.' is the current directory")
    if isinstance(root, str):
        if "://" in text:
            return text
        _refuse_half_url(text)
    try:
        return Path(text).expanduser().absolute().as_uri()
    except RuntimeError:
        raise ValueError("the home directory that the root names with '~' is not known") from None


def _refuse_half_url(text: str) -> None:
    """Raise `ValueError` for a URL with a mistyped ``://``, which would open a directory of this host."""
    if (found := _HALF_URL.match(text)) is None:
        return
    from fsspec.registry import available_protocols  # here, because fsspec takes long to import

    if found[1].lower() in (installed_backends() if found[2] == "//" else available_protocols()):
        raise ValueError(f"the root begins like a URL: {found[1]}://; for a directory of this name, write ./{found[0]}")


def _factory(scheme: str, engine: object, hooks: Hooks | None) -> BackendFactory:
    name = scheme.lower()
    found = dict(_named_alike(name if engine is None else str(engine)))
    if (name if engine is None else f"{name}+{engine}") not in found:
        found = dict(installed_backends())
    if hooks is not None:
        hooks.register_backends(_registrar(found, taken=dict.fromkeys(point.name for point in _entry_points())))
    if engine is not None:
        return _of_engine(name, engine, found)
    fallback = None if name in _DISK else found.get(FALLBACK)
    if factory := found.get(name) or fallback:
        return factory
    if reason := _broken.get("file") if name in _DISK else None:
        raise BackendNotAvailableError(f"the backend for {scheme}:// does not load here: {reason}")
    raise BackendNotAvailableError(f"no backend is installed for {scheme}://; installed: {', '.join(sorted(found))}")


def _of_engine(scheme: str, engine: object, found: Mapping[str, BackendFactory]) -> BackendFactory:
    if factory := found.get(f"{scheme}+{engine}"):
        return factory
    engines = _engines(scheme, found)
    known = f"installed: {', '.join(engines)}; or omit the option" if engines else "omit the option: none is installed"
    raise BackendNotAvailableError(f"{engine!r} is no engine for {scheme}://; {known}")


def _engines(scheme: str, found: Mapping[str, BackendFactory]) -> list[str]:
    return sorted(name.partition("+")[2] for name in found if name.startswith(f"{scheme}+"))


@cache
def _named_alike(name: str) -> Mapping[str, BackendFactory]:
    """The backends of the one entry point that has the name of a scheme or engine; none if it is not one, or is broken.

    So a store on disk does not load the packages of all other stores.
    """
    points = [point for point in _entry_points() if point.name == name]
    found: dict[str, BackendFactory] = {}
    if len(points) == 1:
        with suppress(Exception, SystemExit):  # `installed_backends` reports it
            _load(points[0], found)
    return found


@cache  # it reads the metadata of all installed packages
def _entry_points() -> list[importlib.metadata.EntryPoint]:
    found = sorted(importlib.metadata.entry_points(group=GROUP), key=lambda point: point.name)
    return found if loads_plugins() else [each for each in found if each.dist and each.dist.name == DISTRIBUTION]


@cache
def installed_backends() -> Mapping[str, BackendFactory]:
    """The backend factories of all installed packages, by scheme; a broken package is logged and left out."""
    found: dict[str, BackendFactory] = {}
    for point in _entry_points():
        try:
            _load(point, found)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a broken package may fail in any way
            _log.warning("the backend plugin %r (%s) does not load: %s", point.name, point.value, error)
            _broken[point.name] = f"{type(error).__name__}: {error}"
    return found


def broken_plugins() -> Mapping[str, str]:
    """The backend plugins that are installed but failed to load, each with its error."""
    installed_backends()
    return dict(_broken)


_broken: dict[str, str] = {}


def _load(point: importlib.metadata.EntryPoint, found: dict[str, BackendFactory]) -> None:
    manager = manager_with([point.load()])
    hooks = {caller.name for plugin in manager.get_plugins() for caller in manager.get_hookcallers(plugin) or ()}
    if hooks - {"agent_memory_register_backends"}:
        raise TypeError("a package found by entry point may only add backends; pass guards and observers as plugins=")
    added: dict[str, BackendFactory] = {}
    manager.hook.agent_memory_register_backends(register=_registrar(added, taken=found))
    found.update(added)


def _registrar(found: dict[str, BackendFactory], taken: Mapping[str, Any] | None = None) -> Any:
    def register(scheme: str, factory: BackendFactory) -> None:
        if scheme.lower() in found or scheme.lower() in (taken or {}):
            raise ValueError(f"the scheme {scheme!r} is already registered")
        found[scheme.lower()] = factory

    return register
