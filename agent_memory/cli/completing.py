"""Completes agents and paths in a shell: reads the store, for a few seconds at most, and is silent about errors."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from agent_memory.backend import AnyBackend
from agent_memory.backend._deadline import default_seconds
from agent_memory.cli.inspection import first_page
from agent_memory.core.blocking import BlockingStore
from agent_memory.key import AGENTS, Key
from agent_memory.registry import open_backend

_SECONDS: Final = 5.0
_MOST: Final = 200
_SAFE: Final = re.compile(r"(?!-)[\w@+,./-]+")
"""Names that a shell may insert as they are: agents choose names, and a shell runs the command in ``$(...)``."""
Find = Callable[[AnyBackend, str, str], Sequence[str]]
"""Finds names in a backend, for an agent and the beginning of a name."""


def agents(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete an agent; the first 200 are looked at."""
    return _completed(ctx, incomplete, _agents)


def paths(ctx: click.Context, incomplete: str, root: str) -> list[CompletionItem]:
    """Complete a path of ``--agent``, also in the form of a tool, below ``root``.

    The first 200 names of the directory are looked at; hidden ones only if the beginning is hidden.
    """
    top = f"{root}/" if incomplete.startswith(f"{root}/") else ""
    return _completed(ctx, incomplete.removeprefix(top), _paths, top)


def _completed(ctx: click.Context, incomplete: str, find: Find, top: str = "") -> list[CompletionItem]:
    settings: Any = ctx.obj
    names: list[str] = []

    def look() -> None:
        try:
            names.extend(_found(settings, incomplete, find))
        except Exception:  # noqa: BLE001 - a completion that fails is no completion
            names.clear()

    before = logging.root.manager.disable
    logging.disable()
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(_SECONDS)
    if thread.is_alive():
        os._exit(0)  # threads that wait for the network would delay the end of the process
    logging.disable(before)
    return [CompletionItem(top + name) for name in names if name.startswith(incomplete) and _SAFE.fullmatch(top + name)]


def _found(settings: Any, incomplete: str, find: Find) -> Sequence[str]:
    with default_seconds(_SECONDS):
        store = BlockingStore(open_backend(settings.url, settings.storage_options()))
        try:
            return find(store.backend, settings.agent, incomplete)
        finally:
            store.close()


def _agents(backend: AnyBackend, _: str, __: str) -> Sequence[str]:
    return [each.name for each in first_page(backend, AGENTS, _MOST).directories]


def _paths(backend: AnyBackend, agent: str, incomplete: str) -> Sequence[str]:
    """The names in the directory of a path. The only one is looked into if it is a directory: a shell ends its word."""
    top = Key.agent(agent)
    above, _, beginning = incomplete.rpartition("/")
    page = first_page(backend, top.join_prefix(above), _MOST)
    names = [key.relative_to(top).path + "/" for key in page.directories]
    names += [entry.key.relative_to(top).path for entry in page.entries]
    found = [
        name for name in names
        if name.startswith(incomplete) and (beginning.startswith(".") or not _last(name).startswith("."))
    ]  # fmt: skip
    if found == [incomplete] or len(found) != 1 or not found[0].endswith("/"):
        return found
    return [*found, *_paths(backend, agent, found[0])]


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
