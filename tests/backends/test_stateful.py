"""The same sequence of operations gives the same results and the same errors on every backend."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent_memory.runtime.runners import close_backend
from agent_memory.testing import check_against_model
from agent_memory_local import LocalBackend
from agent_memory_memory import MemoryBackend

if TYPE_CHECKING:
    from tests.support.servers import S3Server


@pytest.mark.parametrize("examples", [40, pytest.param(200, marks=pytest.mark.long)])
def test_local_disk_and_memory_give_the_same_results(tmp_path: Path, examples: int) -> None:
    check_against_model(LocalBackend(tmp_path, durability="process"), MemoryBackend(), examples=examples, steps=50)


@pytest.mark.parametrize("examples", [4, pytest.param(40, marks=pytest.mark.long)])
def test_local_disk_memory_and_s3_give_the_same_results(tmp_path: Path, ministack: S3Server, examples: int) -> None:
    s3 = ministack.new_backend()
    try:
        check_against_model(LocalBackend(tmp_path), MemoryBackend(), s3, examples=examples, steps=40)
    finally:
        close_backend(s3)


@pytest.mark.long
def test_every_s3_server_gives_the_same_results(ministack: S3Server, moto: S3Server, seaweedfs: S3Server) -> None:
    backends = [server.new_backend() for server in (ministack, moto, seaweedfs)]
    try:
        check_against_model(*backends, examples=10, steps=30)
    finally:
        for backend in backends:
            close_backend(backend)
