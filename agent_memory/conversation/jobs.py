"""The list of scheduled jobs, ``cron/jobs.json``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from agent_memory.conversation.messages import refuse_constant
from agent_memory.errors import InvalidContentError


@dataclass(frozen=True, slots=True)
class CronJob:
    """One job; ``last_run`` is ISO 8601, ``extra`` preserves unknown fields of other programs."""

    id: str
    name: str
    message: str
    schedule: str
    channel: str = "cli:local"
    enabled: bool = True
    timezone: str = "local"
    last_run: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


_FIELDS = {f.name: f for f in fields(CronJob) if f.name != "extra"}
_TYPES: dict[str, type | tuple[type, ...]] = {"enabled": bool, "last_run": (str, type(None)), "metadata": dict}


def dump_jobs(jobs: Iterable[CronJob]) -> str:
    """Format the jobs as the text of ``jobs.json``.

    Raises:
        InvalidContentError: a job cannot be encoded as JSON, or a field has the wrong type.
    """
    values = [{**job.extra, **{name: getattr(job, name) for name in _FIELDS}} for job in jobs]
    try:
        for value in values:
            _job(dict(value))
        text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        text.encode()  # raises if it holds lone surrogates
        return text
    except (TypeError, ValueError, KeyError, RecursionError) as error:
        raise InvalidContentError(f"a job is malformed: {type(error).__name__}: {error}") from None


def load_jobs(data: bytes) -> list[CronJob]:
    """Parse the jobs of a ``jobs.json``.

    Raises:
        ValueError: the data is not a JSON list of jobs.
    """
    try:
        values = json.loads(data.decode(), parse_constant=refuse_constant)
        if not isinstance(values, list):
            raise TypeError("not a list")
        return [_job(value) for value in values]
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"not a list of jobs ({type(error).__name__})") from None


def _job(value: Any) -> CronJob:
    if not isinstance(value, dict):
        raise TypeError("a job must be an object")
    known = {name: value.pop(name) for name in _FIELDS if name in value}
    for name, given in known.items():
        if not isinstance(given, _TYPES.get(name, str)):
            raise TypeError(f"{name} has the wrong type")
    return CronJob(**known, extra=value)
