"""The command s3-policy: the IAM policy for credentials that reach only one agent's tree, or only the service's data.

Listing is allowed by prefix. This is enough, because the backend lists nothing above a tree. It is necessary, because
S3 answers a request for a missing object with 404 only if the caller may list it, and otherwise with 403.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

import click

from agent_memory.backend.helpers import STORE_RECORD
from agent_memory.cli.output import show_json
from agent_memory.cli.settings import Command, Settings, pass_settings
from agent_memory.core.conversation_marks import marks_of
from agent_memory.core.receipts import receipts_of
from agent_memory.core.versions.record import records_of
from agent_memory.key import AGENTS, RESERVED, Key

_ACTIONS: Final = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")
_BUCKET: Final = re.compile(r"[A-Za-z0-9._-]+")
_SPECIAL: Final = re.compile(r"[*?$]")
"""Characters that IAM reads as wildcards and variables, in resources and in conditions."""


@click.command("s3-policy", cls=Command)
@pass_settings
def s3_policy(settings: Settings) -> None:
    """Print the smallest IAM policy for --agent, or for all agents.

    With --agent the policy allows the memory of that agent, its receipts of idempotency keys, its versions, its marks
    of directories without a conversation, and to read the record of the store. Without it, the memories of all agents
    and this package's own data: the record of the store, the audit log, all receipts and the scratch files of doctor.
    The store is an s3:// URL; no request is sent to it.
    """
    bucket, prefix = _location(settings.url)
    trees = _trees(settings.chosen_agent)
    read = [] if settings.chosen_agent is None else [_literal(prefix + STORE_RECORD.storage)]
    policy = _policy(bucket, [_literal(prefix + tree) + "/*" for tree in trees], read)
    if settings.json:
        show_json(policy)
        return
    click.echo(json.dumps(policy, indent=2))


def _location(url: str) -> tuple[str, str]:
    """The bucket of a URL, and the prefix of every name in it, as the backend reads them."""
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme.lower() != "s3" or not _BUCKET.fullmatch(bucket):
        raise click.UsageError("s3-policy needs a store on S3: --url s3://bucket/prefix")
    if "?" in prefix or "#" in prefix:
        raise click.UsageError("an S3 URL has no query")
    prefix = prefix.strip("/")
    return bucket, prefix + "/" if prefix else ""


def _trees(agent: str | None) -> Sequence[str]:
    if agent is None:
        return AGENTS.storage, RESERVED
    return Key.agent(agent).storage, receipts_of(agent).base, records_of(agent).base, marks_of(agent).base


def _policy(bucket: str, patterns: Sequence[str], read: Sequence[str]) -> dict[str, Any]:
    arn = f"arn:aws:s3:::{bucket}"
    objects = {"Effect": "Allow", "Action": list(_ACTIONS), "Resource": [f"{arn}/{pattern}" for pattern in patterns]}
    listing = {
        "Effect": "Allow",
        "Action": ["s3:ListBucket"],
        "Resource": [arn],
        "Condition": {"StringLike": {"s3:prefix": [*patterns, *read]}},
    }
    reading = {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": [f"{arn}/{name}" for name in read]}
    return {"Version": "2012-10-17", "Statement": [objects, *([reading] if read else []), listing]}


def _literal(text: str) -> str:
    """A pattern that matches only this text."""
    return _SPECIAL.sub(r"${\g<0>}", text)
