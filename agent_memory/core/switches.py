"""The environment variables with which a person looks for the plugin that is at fault."""

from __future__ import annotations

import os
from typing import Final

TRACE_VARIABLE: Final = "AGENT_MEMORY_TRACE_PLUGINS"
LOAD_VARIABLE: Final = "AGENT_MEMORY_LOAD_PLUGINS"


def traces_plugins() -> bool:
    """Whether each call of a hook is printed on stderr."""
    return _switch(TRACE_VARIABLE, default=False)


def loads_plugins() -> bool:
    """Whether other packages' backends, and the plugins of a configuration, are loaded."""
    return _switch(LOAD_VARIABLE, default=True)


def _switch(name: str, *, default: bool) -> bool:
    text = os.environ.get(name) or str(int(default))
    if text not in ("0", "1"):
        raise ValueError(f"{name} must be 0 or 1, not {text!r}")
    return text == "1"
