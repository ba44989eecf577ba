"""The command s3-policy: the IAM policy of credentials that reach one agent's tree, or the service's, and no more.

Listing is allowed by prefix, for two reasons: the backend lists nothing above a tree, and S3 answers a request for a
missing object with 404 only to who may list it; to others with 403, as if it were forbidden.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

import click

from agent_memory.cli.output import show_json
from agent_memory.cli.settings import Command, Settings, pass_settings
from agent_memory.key import AGENTS, RESERVED, Key

_ACTIONS: Final = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")
_BUCKET: Final = re.compile(r"[A-Za-z0-9._-]+")
_SPECIAL: Final = re.compile(r"[*?$]")
"""What IAM reads as wildcards and variables, in resources and in conditions."""


@click.command("s3-policy", cls=Command)
@pass_settings
def s3_policy(settings: Settings) -> None:
    """Print the smallest IAM policy for --agent, or for all.

    With --agent it allows the memory of that agent, without it those of all agents and this package's own data: the
    audit log, what doctor writes. The store is an s3:// URL; nothing is asked of it.
    """
    bucket, prefix = _location(settings.url)
    trees = _trees(settings.chosen_agent)
    policy = _policy(bucket, [_literal(prefix + tree) + "/*" for tree in trees])
    if settings.json:
        show_json(policy)
        return
    click.echo(json.dumps(policy, indent=2))


def _location(url: str) -> tuple[str, str]:
    """The bucket of a URL, and what stands before every name in it, as the backend takes them."""
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme.lower() != "s3" or not _BUCKET.fullmatch(bucket):
        raise click.UsageError("a policy is for a store on S3: --url s3://bucket/prefix")
    if "?" in prefix or "#" in prefix:
        raise click.UsageError("an S3 URL has no query")
    prefix = prefix.strip("/")
    return bucket, prefix + "/" if prefix else ""


def _trees(agent: str | None) -> Sequence[str]:
    return (AGENTS.storage, RESERVED) if agent is None else (Key.agent(agent).storage,)


def _policy(bucket: str, patterns: Sequence[str]) -> dict[str, Any]:
    arn = f"arn:aws:s3:::{bucket}"
    objects = {"Effect": "Allow", "Action": list(_ACTIONS), "Resource": [f"{arn}/{pattern}" for pattern in patterns]}
    listing = {
        "Effect": "Allow",
        "Action": ["s3:ListBucket"],
        "Resource": [arn],
        "Condition": {"StringLike": {"s3:prefix": list(patterns)}},
    }
    return {"Version": "2012-10-17", "Statement": [objects, listing]}


def _literal(text: str) -> str:
    """A text as it matches itself alone."""
    return _SPECIAL.sub(r"${\g<0>}", text)
