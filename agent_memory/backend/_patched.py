"""`refuse_patched_modules`: a storage with an I/O loop in a thread does not work if gevent replaced threads."""

from __future__ import annotations

import sys
from typing import Final

from agent_memory.errors import UnsupportedOperationError

_NEEDED: Final = ("_thread", "thread", "threading", "select", "socket", "queue")
_PATCHERS: Final = {"gevent.monkey": "is_module_patched", "eventlet.patcher": "is_monkey_patched"}


def refuse_patched_modules() -> None:
    """Raise `UnsupportedOperationError` if gevent or eventlet replaced modules of Python that the I/O loop needs."""
    for name, function in _PATCHERS.items():
        if (patcher := sys.modules.get(name)) is None:
            continue
        if patched := [module for module in _NEEDED if getattr(patcher, function)(module)]:
            raise UnsupportedOperationError(
                f"{name.partition('.')[0]} replaced modules of Python ({', '.join(patched)}), and requests to this "
                "storage would wait for ever: use it in a process without these patches (for example "
                "'agent-memory mcp'), or keep the memory on local disk, whose sync classes work with them"
            )
