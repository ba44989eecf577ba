"""The objects reachable from an object through its attributes, and every class of this package."""

from __future__ import annotations

import functools
import importlib
import logging
import pkgutil
import types
from collections.abc import Iterator
from contextlib import suppress

from agent_memory import BackendNotAvailableError

PACKAGES = (
    "agent_memory", "agent_memory_fsspec", "agent_memory_local", "agent_memory_memory", "agent_memory_obstore",
    "agent_memory_s3",
)  # fmt: skip
_LEAVES = (str, bytes, int, float, type(None), type, types.ModuleType, types.BuiltinFunctionType, logging.Logger)


def our_modules() -> Iterator[types.ModuleType]:
    """The modules of this project's packages, without the adapters of frameworks that are not installed."""
    for package in map(importlib.import_module, PACKAGES):
        yield package
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not each.name.endswith("__main__"):
                with suppress(BackendNotAvailableError):
                    yield importlib.import_module(each.name)


def our_classes() -> set[type]:
    """The classes that the modules of this project's packages define."""
    found = {value for module in our_modules() for value in vars(module).values() if isinstance(value, type)}
    return {cls for cls in found if cls.__module__.partition(".")[0] in PACKAGES and "[" not in cls.__name__}


def reached(*tops: object) -> list[object]:
    """The objects themselves, and all objects reachable through their attributes, items and closures."""
    seen: dict[int, object] = {}
    left = list(tops)
    while left:
        found = left.pop()
        if id(found) not in seen and not isinstance(found, _LEAVES):
            seen[id(found)] = found
            left.extend(parts(found))
    return list(seen.values())


def parts(found: object) -> Iterator[object]:
    """The objects that an object refers to."""
    if isinstance(found, dict):
        yield from [*found.keys(), *found.values()]
    elif isinstance(found, list | tuple | set | frozenset):
        yield from list(found)
    elif isinstance(found, types.MethodType):
        yield found.__self__
    elif isinstance(found, types.FunctionType):
        yield from (cell.cell_contents for cell in found.__closure__ or () if cell != types.CellType())
    elif isinstance(found, functools.partial):
        yield from (found.func, found.args, found.keywords)
    yield from list(getattr(found, "__dict__", {}).values())
    for cls in type(found).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            yield getattr(found, name, None)
