"""Dates in answers are parsed as botocore parses them, and requests identify this package."""

from __future__ import annotations

import re

import pytest
from botocore.utils import parse_timestamp

from agent_memory import AgentMemory
from agent_memory_s3._options import moment
from tests.object_store.proxy import Proxy
from tests.support.servers import S3Server

DATES: list[str | float] = [
    "2026-11-22T10:11:12.000Z",
    "2026-11-22T10:11:12.987654Z",
    "2026-11-22T10:11:12+02:00",
    "20261122T101112Z",
    "Sun, 22 Nov 2026 10:11:12 GMT",
    "Sun, 22 Nov 2026 10:11:12 -0500",
    "Sun, 22 Nov 2026 10:11:12 -0000",
    "Sunday, 22-Nov-26 10:11:12 GMT",
    1763806272,
    1763806272.5,
    "1763806272",
    "20261122",
]


@pytest.mark.parametrize("date", DATES)
def test_a_date_is_parsed_as_by_botocore(date: str | float) -> None:
    assert moment(date) == parse_timestamp(date)


@pytest.mark.parametrize("date", ["", "soon", "2026-13-45T10:11:12Z", "Sun, 45 Nov 2026 10:11:12 GMT"])
def test_an_invalid_date_raises_an_error_as_in_botocore(date: str) -> None:
    with pytest.raises(ValueError, match="timestamp"):
        parse_timestamp(date)
    with pytest.raises(ValueError, match="timestamp"):
        moment(date)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, r"agent-memory/\S+ aiobotocore/\S+ botocore/\S+\Z"),
        ({"user_agent_extra": "more/2"}, r"agent-memory/\S+ .* more/2\Z"),
        ({"user_agent": "mine/1"}, r"mine/1 "),
        ({"user_agent_appid": "my-app"}, r".* app/my-app\b"),
    ],
)
def test_the_user_agent_of_requests_names_this_package(
    ministack: S3Server, config: dict[str, str], expected: str
) -> None:
    with Proxy(ministack.endpoint) as proxy:
        options = {**ministack.through(proxy), "config_kwargs": config}
        with AgentMemory.open(ministack.new_url(), storage_options=options) as memory:
            memory.write("notes.md", "x")
    assert re.match(expected, proxy.user_agent)


def test_the_user_agent_names_the_application_from_the_environment(
    ministack: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SDK_UA_APP_ID", "from-the-environment")
    with Proxy(ministack.endpoint) as proxy:
        with AgentMemory.open(ministack.new_url(), storage_options=ministack.through(proxy)) as memory:
            memory.write("notes.md", "x")
    assert "app/from-the-environment" in proxy.user_agent
