"""s3-policy: its output. `tests/backends/s3/test_s3_policy.py` tests how a server enforces it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Run = Callable[..., Result]
URL = "s3://my-bucket/memories"


def policy(run: Run, *args: str) -> Any:
    result = run("s3-policy", *args)
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


def patterns(policy: Any) -> tuple[list[str], list[str]]:
    """The resources of the object actions, and the prefixes of the list action."""
    *objects, listing = policy["Statement"]
    resources = [resource for statement in objects for resource in statement["Resource"]]
    return resources, listing["Condition"]["StringLike"]["s3:prefix"]


def test_the_policy_of_an_agent_allows_its_objects_and_listings_of_its_prefix(run: Run) -> None:
    assert policy(run, "--url", URL, "--agent", "agent-1") == {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"],
                "Resource": [
                    "arn:aws:s3:::my-bucket/memories/agent_memory/agent-1/*",
                    "arn:aws:s3:::my-bucket/memories/.agent-memory/receipts/agent-1/*",
                    "arn:aws:s3:::my-bucket/memories/.agent-memory/versions/agent-1/*",
                    "arn:aws:s3:::my-bucket/memories/.agent-memory/no-conversation/agent-1/*",
                    "arn:aws:s3:::my-bucket/memories/.agent-memory/limits/agent-1/*",
                ],
            },
            {
                "Effect": "Allow",
                "Action": ["s3:GetObject"],
                "Resource": ["arn:aws:s3:::my-bucket/memories/.agent-memory/store.json"],
            },
            {
                "Effect": "Allow",
                "Action": ["s3:ListBucket"],
                "Resource": ["arn:aws:s3:::my-bucket"],
                "Condition": {
                    "StringLike": {
                        "s3:prefix": [
                            "memories/agent_memory/agent-1/*",
                            "memories/.agent-memory/receipts/agent-1/*",
                            "memories/.agent-memory/versions/agent-1/*",
                            "memories/.agent-memory/no-conversation/agent-1/*",
                            "memories/.agent-memory/limits/agent-1/*",
                            "memories/.agent-memory/store.json",
                        ]
                    }
                },
            },
        ],
    }


def test_without_an_agent_the_policy_is_that_of_the_service(run: Run) -> None:
    resources, prefixes = patterns(policy(run, "--url", URL))
    assert prefixes == ["memories/agent_memory/*", "memories/.agent-memory/*"]
    assert resources == [f"arn:aws:s3:::my-bucket/{prefix}" for prefix in prefixes]


def test_the_default_agents_policy_is_printed_only_if_the_agent_is_named(run: Run) -> None:
    assert patterns(policy(run, "--url", URL, "--agent", "default"))[1] == [
        "memories/agent_memory/default/*",
        "memories/.agent-memory/receipts/default/*",
        "memories/.agent-memory/versions/default/*",
        "memories/.agent-memory/no-conversation/default/*",
        "memories/.agent-memory/limits/default/*",
        "memories/.agent-memory/store.json",
    ]


@pytest.mark.parametrize("url", ["s3://my-bucket", "s3://my-bucket/", "S3://my-bucket//"])
def test_a_bucket_without_prefix_is_a_root(run: Run, url: str) -> None:
    resources, prefixes = patterns(policy(run, "--url", url, "--agent", "ann"))
    assert prefixes == [
        "agent_memory/ann/*",
        ".agent-memory/receipts/ann/*",
        ".agent-memory/versions/ann/*",
        ".agent-memory/no-conversation/ann/*",
        ".agent-memory/limits/ann/*",
        ".agent-memory/store.json",
    ]
    assert resources == [f"arn:aws:s3:::my-bucket/{prefix}" for prefix in prefixes]


def test_slashes_around_the_prefix_are_ignored(run: Run) -> None:
    assert (
        policy(run, "--url", f"{URL}/") == policy(run, "--url", "s3://my-bucket//memories") == policy(run, "--url", URL)
    )


def test_iam_wildcards_and_variables_in_names_are_escaped(run: Run) -> None:
    resources, prefixes = patterns(policy(run, "--url", "s3://my-bucket/a*b/${aws:username}/$", "--agent", "ann"))
    assert prefixes[0] == "a${*}b/${$}{aws:username}/${$}/agent_memory/ann/*"
    assert resources == [f"arn:aws:s3:::my-bucket/{prefix}" for prefix in prefixes]


def test_the_url_may_come_from_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = policy(run, "--url", URL)
    monkeypatch.setenv("AGENT_MEMORY_URL", URL)
    assert policy(run) == expected


def test_the_json_option_prints_the_same_policy_in_one_line(run: Run) -> None:
    result = run("s3-policy", "--url", URL, "--json")
    assert result.stdout.count("\n") == 1
    assert json.loads(result.stdout) == policy(run, "--url", URL)


def test_the_command_needs_neither_s3fs_nor_credentials(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("s3fs", "aiobotocore", "botocore"):
        monkeypatch.setitem(sys.modules, module, None)
    assert policy(run, "--url", URL)


@pytest.mark.parametrize(
    "url", ["./memories", "memory://x", "file:///s3://b", "s3://", "s3:///x", "s3://b?x=1", "s3://b/x?y", "s3://b/x#y"]
)
def test_a_url_that_is_no_s3_root_is_a_usage_error(run: Run, url: str) -> None:
    result = run("s3-policy", "--url", url)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "s3" in result.stderr.lower()


@pytest.mark.parametrize("agent", ["", "*", "ann/*", "..", "${aws:username}"])
def test_an_invalid_agent_id_is_refused(run: Run, agent: str) -> None:
    for command in ("s3-policy", "ls"):
        result = run("--url", URL if command == "s3-policy" else "memory://x", "--agent", agent, command, "--json")
        assert (result.exit_code, result.stdout) == (5, "")
        assert json.loads(result.stderr)["error"]["rule"] == "agent-id"


@pytest.mark.parametrize("name", ["aws.json", "minio.json"])
def test_the_policies_of_the_examples_are_what_the_command_prints(run: Run, name: str) -> None:
    file = Path(__file__).parents[2] / "examples" / "policies" / name
    assert run("s3-policy", "--url", "s3://my-bucket/memory").stdout == file.read_text()
