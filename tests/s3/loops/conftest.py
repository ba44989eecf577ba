"""A process in which no event loop is home yet, and a server of S3 with a proxy before it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent_memory_obstore import _home
from agent_memory_obstore._home import Home
from tests.s3.proxy import Proxy
from tests.servers import S3Server


@pytest.fixture(autouse=True)
def home() -> Home:
    """As if no loop of the process had come before."""
    _home.HOME.forget()
    return _home.HOME


@pytest.fixture
def server(ministack: S3Server) -> S3Server:
    return ministack.by("obstore")


@pytest.fixture
def proxy(server: S3Server) -> Iterator[Proxy]:
    with Proxy(server.endpoint) as proxy:
        yield proxy
