"""cost: its arithmetic and its output. ``tests/object_store/test_bill.py`` counts the requests that it multiplies."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Run = Callable[..., Result]
EXAMPLE = ("--agents", "100", "--reads", "200", "--appends", "50", "--edits", "10", "--megabytes", "1")
"""The bill that docs/costs.md works out."""


def bill(run: Run, *args: str) -> Any:
    result = run("cost", "--json", *args)
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


def refused(run: Run, *args: str) -> str:
    """The error line of a wrong use."""
    result = run("cost", *args)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    line: str = result.stderr
    return line


def test_a_bill_is_that_of_the_hand_arithmetic(run: Run) -> None:
    assert bill(run, *EXAMPLE) == {
        "agents": 100,
        "days": 30,
        "prices": {"put": 0.005, "get": 0.0004, "gigabyte": 0.023, "source": "S3 Standard, us-east-1, 2025-01"},
        "requests": {
            "put": 180_000,  # (50 appends + 10 edits) for 100 agents and 30 days
            "get": 630_000,  # (200 reads + 10 edits) for 100 agents and 30 days
            "delete": 0,
        },
        "gigabytes": 0.097656,  # 100 of 1,024 megabytes
        "dollars": {
            "put": 0.9,  # 180 times 0.005
            "get": 0.252,  # 630 times 0.0004
            "delete": 0,
            "storage": 0.002246,  # 0.097656 times 0.023
            "total": 1.154246,
        },
    }


def test_the_table_shows_the_numbers_the_prices_and_their_date(run: Run) -> None:
    result = run("cost", *EXAMPLE)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert [re.split(r" {2,}", line.strip()) for line in lines if "$" in line] == [
        ["requests PUT, COPY, POST, LIST", "180,000", "$0.005 per 1,000", "$0.90"],
        ["requests GET, HEAD", "630,000", "$0.0004 per 1,000", "$0.25"],
        ["requests DELETE", "0", "free", "$0.00"],
        ["GB stored", "0.098", "$0.023", "under $0.01"],
        ["total", "$1.15"],
    ]
    assert "100 agents, 30 days. Prices: S3 Standard, us-east-1, 2025-01, in US dollars." in lines
    assert "Not included: data transfer out, KMS, versions that the bucket keeps itself, an" in lines


@pytest.mark.parametrize(
    ("args", "put", "get", "delete"),
    [
        (("--reads", "1"), 0, 30, 0),
        (("--writes", "1"), 30, 0, 0),
        (("--appends", "1"), 30, 0, 0),
        (("--edits", "1"), 30, 30, 0),
        (("--deletes", "1"), 0, 30, 30),
        (("--lists", "1"), 30, 0, 0),
        (("--lists", "0.5"), 15, 0, 0),
        (("--appends", "1", "--shared"), 30, 30, 0),
        (("--reads", "1", "--shared"), 0, 30, 0),
        (("--appends", "1", "--versions"), 30, 0, 0),
        (("--writes", "1", "--versions"), 90, 30, 0),  # the write, the version and the listing
        (("--edits", "1", "--versions"), 90, 30, 0),
        (("--deletes", "1", "--versions"), 60, 60, 30),
        (("--edits", "20", "--deletes", "20", "--versions"), 2_520, 1_800, 600),  # (40 + 20 + 24 listings) for 30 days
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_each_option_adds_its_requests(run: Run, args: tuple[str, ...], put: int, get: int, delete: int) -> None:
    assert bill(run, *args)["requests"] == {"put": put, "get": get, "delete": delete}


def test_several_processes_and_versions_make_the_example_dearer(run: Run) -> None:
    shared, versions = bill(run, *EXAMPLE, "--shared"), bill(run, *EXAMPLE, "--versions")
    assert (shared["requests"]["get"], shared["dollars"]["total"]) == (780_000, 1.214246)
    assert (versions["requests"]["put"], versions["dollars"]["total"]) == (240_000, 1.454246)


def test_other_prices_replace_all_list_prices(run: Run) -> None:
    found = bill(run, "--writes", "100", "--reads", "1000", "--megabytes", "1024", "--prices", "1", "0.1", "10")
    assert found["prices"] == {"put": 1, "get": 0.1, "gigabyte": 10, "source": "given by --prices"}
    assert found["dollars"] == {"put": 3, "get": 3, "delete": 0, "storage": 10, "total": 16}
    assert "2025-01" not in run("cost", "--reads", "1", "--prices", "1", "0.1", "10").stdout


def test_no_use_costs_nothing(run: Run) -> None:
    assert bill(run, "--reads", "0")["dollars"] == {"put": 0, "get": 0, "delete": 0, "storage": 0, "total": 0}
    total = next(line for line in run("cost", "--reads", "0").stdout.splitlines() if "total" in line)
    assert total.split() == ["total", "$0.00"]


def test_without_a_number_the_error_shows_how_to_give_one(run: Run) -> None:
    for args in ((), ("--agents", "100"), ("--shared", "--versions")):
        assert "give at least one number, for example --reads 200" in refused(run, *args)
    error = json.loads(run("cost", "--json").stderr)["error"]
    assert (error["kind"], error["exit_code"]) == ("usage", 2)


@pytest.mark.parametrize(
    "args",
    [
        ("--reads", "-1"),
        ("--reads", "many"),
        ("--appends", "nan"),
        ("--megabytes", "inf"),
        ("--agents", "0"),
        ("--agents", "2.5"),
        ("--agents", "1" + "0" * 400),
        ("--prices", "1", "2", "-3"),
        ("--prices", "1", "2"),
    ],
)
def test_a_wrong_number_is_refused_with_the_name_of_its_option(run: Run, args: tuple[str, ...]) -> None:
    line = refused(run, *(() if args[0] == "--reads" else ("--reads", "1")), *args)
    assert args[0] in line


def test_the_command_opens_no_store_and_needs_no_client(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in ("s3fs", "aiobotocore", "botocore"):
        monkeypatch.setitem(sys.modules, module, None)
    assert bill(run, "--url", "s3://my-bucket/memories", "--reads", "1")
    assert list(tmp_path.iterdir()) == []
