"""What the processes of a test run found, gathered by the process that started them, which writes the page."""

from __future__ import annotations

import pickle
from typing import Any

import pytest


def hand_over(config: pytest.Config, name: str, found: object) -> bool:
    """Give what this process found to the process that started it; False if this process has not been started so."""
    if (output := getattr(config, "workeroutput", None)) is None:
        return False
    output[name] = pickle.dumps(found)
    return True


def handed_over(node: Any, name: str) -> Any:
    """What a process has handed over; None if it handed over nothing or died."""
    data = getattr(node, "workeroutput", {}).get(name)
    return data and pickle.loads(data)
