"""Where tests open a memory: the S3 servers that `conftest` starts, and roots of any backend.

Not in ``conftest`` itself, which pytest may import more than once: a class of it would not be one class.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Mapping
from contextlib import closing
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from tests.object_store.proxy import Proxy

_LONG = pytest.mark.long
ATOMIC = ["local", "memory", "ministack", pytest.param("seaweedfs", marks=_LONG)]
"""The parameters of the fixture ``root`` for a race: all backends, and S3 on servers that are atomic."""
ROOTS = [*ATOMIC, pytest.param("moto", marks=_LONG)]
"""All of them. What differs between the servers is the contract's matter, which every run tries on each."""

by_both_engines = pytest.mark.parametrize("engine", ["s3fs", "obstore"])

KEY, SECRET = "test-access-key", "test-secret-key"


class S3Server:
    """A running S3 server with one bucket; every URL it gives out is a fresh prefix."""

    _numbers = itertools.count(1)  # of all servers: one may stand in front of another
    _endpoint_option = "endpoint_url"

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.options: dict[str, object] = {"endpoint_url": endpoint, "key": KEY, "secret": SECRET}
        self.make_bucket("memories")

    def by(self, engine: str) -> S3Server:
        """The same server, with the options of an engine."""
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
        return server

    def through(self, proxy: Proxy, *, read_timeout: int | None = None) -> dict[str, object]:
        """The options by which a client reaches it through a proxy, and how many seconds an answer may take."""
        options = {**self.options, self._endpoint_option: proxy.endpoint}
        if read_timeout is None:
            return options
        if "engine" in options:
            return {**options, "client_options": {"read_timeout": f"{read_timeout}s"}}
        return {**options, "config_kwargs": {"read_timeout": read_timeout}}

    def new_url(self) -> str:
        return f"s3://memories/{os.getpid()}-{next(self._numbers)}"

    def new_backend(self) -> Any:
        from agent_memory_s3 import S3Backend

        return S3Backend("memories", self.new_url().rpartition("/")[2], self.options)

    def new_user(self, policy: str) -> dict[str, object]:
        """Storage options of a new user, to whom an IAM policy applies; only SeaweedFS enforces it."""
        name = f"user-{os.getpid()}-{next(self._numbers)}"
        with closing(self.client("iam")) as iam:
            iam.create_user(UserName=name)
            iam.put_user_policy(UserName=name, PolicyName="policy", PolicyDocument=policy)
            key = iam.create_access_key(UserName=name)["AccessKey"]
        return {**self.options, "key": key["AccessKeyId"], "secret": key["SecretAccessKey"]}

    def client(self, service: str, options: Mapping[str, object] | None = None) -> Any:
        """A bare client of ``s3`` or ``iam``, by default with the rights of the administrator."""
        from botocore.session import get_session

        options = options or {"key": KEY, "secret": SECRET}
        return get_session().create_client(
            service,
            endpoint_url=self.endpoint,
            aws_access_key_id=options["key"],
            aws_secret_access_key=options["secret"],
        )

    def make_bucket(self, name: str) -> None:
        with closing(self.client("s3")) as s3:
            s3.create_bucket(Bucket=name)


class Root(NamedTuple):
    """Where a service can be opened: a URL and its storage options."""

    url: str
    options: dict[str, object]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
