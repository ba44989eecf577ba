"""Tools to test backends, and code that uses a memory: ``pip install 'agent-memory-files[testing]'``.

The tests of a backend subclass `BackendContract` and define one fixture::

    class TestMyBackend(BackendContract):
        @pytest.fixture
        def backend(self, tmp_path: Path) -> MyBackend:
            return MyBackend(tmp_path)

Tests of code that uses a memory request the fixture ``agent_memory`` or ``agent_memory_service`` of the plugin
`agent_memory.testing.pytest_plugin`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from agent_memory.testing.contract import BackendContract, FunctionalContract
    from agent_memory.testing.races import RaceContract, race
    from agent_memory.testing.recording import RecordingPlugin
    from agent_memory.testing.stateful import DictMemory, MemoryMachine, check_against_model, model_test

__all__ = [
    "BackendContract",
    "DictMemory",
    "FunctionalContract",
    "MemoryMachine",
    "RaceContract",
    "RecordingPlugin",
    "check_against_model",
    "model_test",
    "race",
]

_HOMES = {
    "BackendContract": "contract",
    "DictMemory": "stateful",
    "FunctionalContract": "contract",
    "MemoryMachine": "stateful",
    "RaceContract": "races",
    "RecordingPlugin": "recording",
    "check_against_model": "stateful",
    "model_test": "stateful",
    "race": "races",
}
_ASSERTING = """
    _listing _moving _operations _parts _reading _store _writing races stateful
    """.split()  # noqa: SIM905

pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in _ASSERTING))


def __getattr__(name: str) -> object:
    # Import late: the fixtures of the plugin do not need Hypothesis, only these names do.
    if home := _HOMES.get(name):
        found: object = getattr(importlib.import_module(f"{__name__}.{home}"), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
