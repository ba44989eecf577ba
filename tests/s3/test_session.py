"""Dates of answers are what botocore's own parser makes of them."""

from __future__ import annotations

import pytest
from botocore.utils import parse_timestamp

from agent_memory_s3._session import moment

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
def test_a_date_is_the_same_as_by_botocore(date: str | float) -> None:
    assert moment(date) == parse_timestamp(date)


@pytest.mark.parametrize("date", ["", "soon", "2026-13-45T10:11:12Z", "Sun, 45 Nov 2026 10:11:12 GMT"])
def test_what_is_no_date_is_an_error_as_by_botocore(date: str) -> None:
    with pytest.raises(ValueError, match="timestamp"):
        parse_timestamp(date)
    with pytest.raises(ValueError, match="timestamp"):
        moment(date)
