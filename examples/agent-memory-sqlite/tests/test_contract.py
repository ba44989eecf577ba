"""The contract for backends, each test on its own database."""

from pathlib import Path

import pytest
from agent_memory_sqlite import SqliteBackend

from agent_memory.testing import BackendContract


class TestSqlite(BackendContract):
    rounds, workers = 25, 4  # fewer than the default, because every write waits for the disk

    @pytest.fixture
    def backend(self, tmp_path: Path) -> SqliteBackend:
        return SqliteBackend(str(tmp_path / "memory.db"))
