"""The S3 servers that `conftest` starts, and the roots of all backends on which tests open a memory.

They are not in ``conftest`` itself: pytest may import it more than once, and then defines its classes several times.
"""

from __future__ import annotations

import itertools
import os
import random
import socket
from collections.abc import Mapping
from contextlib import closing, suppress
from copy import copy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from tests.object_store.proxy import Proxy

_LONG = pytest.mark.long
ATOMIC = ["local", "memory", "ministack", pytest.param("seaweedfs", marks=_LONG)]
"""The parameters of the fixture ``root`` for races: all backends, and only S3 servers that are atomic."""
ROOTS = [*ATOMIC, pytest.param("moto", marks=_LONG)]
"""All backends, with one S3 server. The contract covers the differences between servers, and runs on each server."""

by_both_engines = pytest.mark.parametrize("engine", ["s3fs", "obstore"])
by_s3fs_or_both = pytest.mark.parametrize("engine", ["s3fs", pytest.param("obstore", marks=_LONG)])
"""Both engines with ``--long``: for slow tests of the logic that engines share."""

_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_block = 22_000 // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_first = 10_000 + _block * _worker
_ports = iter(range(_first + random.SystemRandom().randrange(_block // 2), _first + _block))

KEY, SECRET = "test-access-key", "test-secret-key"


@cache
def _session() -> Any:
    """One session for all clients: a new one costs 120 ms."""
    from botocore.session import get_session

    return get_session()


class S3Server:
    """A running S3 server with one bucket; every URL that it returns has a new prefix."""

    _numbers = itertools.count(1)  # shared by all servers: one may be a proxy of another
    _endpoint_option = "endpoint_url"
    _authority: str | None = None

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.options: dict[str, object] = {"endpoint_url": endpoint, "key": KEY, "secret": SECRET}
        self.make_bucket("memories")

    def by(self, engine: str) -> S3Server:
        """The same server with the options of an engine."""
        server = copy(self)
        if engine == "s3fs":
            return server
        server._endpoint_option = "endpoint"
        server.options = {
            "engine": "obstore",
            "endpoint": self.endpoint,
            "access_key_id": KEY,
            "secret_access_key": SECRET,
        }
        if self._authority:
            server.options["client_options"] = {"root_certificate": Path(self._authority).read_text()}
        return server

    def by_https(self, endpoint: str, authority: Path) -> S3Server:
        """The same server at an https endpoint whose certificate the file ``authority`` proves."""
        server = copy(self)
        server.endpoint, server._authority = endpoint, str(authority)
        server.options = {**self.options, "endpoint_url": endpoint, "client_kwargs": {"verify": str(authority)}}
        return server

    def for_one_writer(self) -> S3Server:
        """The same server for one process at a time, which may complete uploads that are not atomic."""
        server = copy(self)
        server.options = {**self.options, "allow_single_writer": True}
        return server

    def through(self, proxy: Proxy, *, read_timeout: int | None = None) -> dict[str, object]:
        """The options to reach the server through a proxy, with a timeout for answers in seconds."""
        options = {**self.options, self._endpoint_option: proxy.endpoint}
        if read_timeout is None:
            return options
        if "engine" in options:
            return {**options, "client_options": {"read_timeout": f"{read_timeout}s"}}
        return {**options, "config_kwargs": {"read_timeout": read_timeout}}

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables with which any AWS tool reaches the server."""
        return {"AWS_ENDPOINT_URL": self.endpoint, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}

    def new_url(self) -> str:
        return f"s3://memories/{os.getpid()}-{next(self._numbers)}"

    def new_backend(self) -> Any:
        from agent_memory_s3 import S3Backend

        return S3Backend("memories", self.new_url().rpartition("/")[2], self.options)

    def new_user(self, policy: str) -> dict[str, object]:
        """The storage options of a new user with an IAM policy; only SeaweedFS enforces it."""
        name = f"user-{os.getpid()}-{next(self._numbers)}"
        with closing(self.client("iam")) as iam:
            iam.create_user(UserName=name)
            iam.put_user_policy(UserName=name, PolicyName="policy", PolicyDocument=policy)
            key = iam.create_access_key(UserName=name)["AccessKey"]
        return {**self.options, "key": key["AccessKeyId"], "secret": key["SecretAccessKey"]}

    def client(self, service: str, options: Mapping[str, object] | None = None, *, retries: int | None = None) -> Any:
        """A plain client of ``s3`` or ``iam``, by default with the administrator's rights and botocore's retries."""
        from botocore.config import Config

        options = options or {"key": KEY, "secret": SECRET}
        return _session().create_client(
            service,
            endpoint_url=self.endpoint,
            aws_access_key_id=options["key"],
            aws_secret_access_key=options["secret"],
            config=None if retries is None else Config(retries={"total_max_attempts": retries + 1}),
            verify=self._authority,
        )

    def make_bucket(self, name: str) -> None:
        with closing(self.client("s3")) as s3:
            s3.create_bucket(Bucket=name)


class Root(NamedTuple):
    """The root of a service: a URL and its storage options."""

    url: str
    options: dict[str, object]


def free_port() -> int:
    """A free port. The system gives away higher ones by default, and another worker has another block."""
    for port in _ports:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")
