"""The list of scheduled jobs, ``cron/jobs.json``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from agent_memory._json import parse_json, refuse_constant, require_levels
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


class CronJobs(list[CronJob]):
    """Jobs, in the order of the file.

    Attributes:
        skipped: the number of malformed jobs in the file, which are left out.
    """

    def __init__(self, jobs: Iterable[CronJob] = (), skipped: int = 0) -> None:
        super().__init__(jobs)
        self.skipped = skipped


def job_values(jobs: Iterable[CronJob]) -> list[Any]:
    """Return the jobs as JSON values.

    Raises:
        InvalidContentError: a job cannot be encoded as JSON, or a field has the wrong type.
    """
    values: list[Any] = [{**job.extra, **{name: getattr(job, name) for name in _FIELDS}} for job in jobs]
    try:
        for value in values:
            _job(value)
        text = json.dumps(values, ensure_ascii=False, allow_nan=False)
        text.encode()
        require_levels(text)
        return values
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidContentError(f"a job is malformed: {type(error).__name__}: {error}") from None


def load_jobs(data: bytes) -> CronJobs:
    """Parse the jobs of a ``jobs.json``.

    Raises:
        ValueError: the data is not a JSON list.
    """
    values = _values(data)
    jobs = [job for value in values if (job := _job_or_none(value))]
    return CronJobs(jobs, len(values) - len(jobs))


def saved_jobs(values: Sequence[Any], old: bytes) -> bytes:
    """Return the file for the values of jobs; the malformed jobs of the old file stay at their places in the list.

    Raises:
        ValueError: the old file is not a JSON list.
    """
    saved = [*values]
    for place, value in enumerate(_values(old)):
        if _job_or_none(value) is None:
            saved.insert(place, value)
    try:
        return f"{json.dumps(saved, indent=2, ensure_ascii=False)}\n".encode()
    except UnicodeEncodeError:  # a malformed job holds half a character
        return f"{json.dumps(saved, indent=2)}\n".encode()


def _values(data: bytes) -> list[Any]:
    try:
        values = parse_json(data, parse_constant=refuse_constant)
    except ValueError as error:
        raise ValueError(f"not a list of jobs ({type(error).__name__})") from None
    if not isinstance(values, list):
        raise ValueError(f"not a list of jobs ({type(values).__name__})")
    return values


def _job_or_none(value: Any) -> CronJob | None:
    try:
        return _job(value)
    except TypeError:
        return None


def _job(value: Any) -> CronJob:
    if not isinstance(value, dict):
        raise TypeError("a job must be an object")
    extra = dict(value)
    known = {name: extra.pop(name) for name in _FIELDS if name in extra}
    for name, given in known.items():
        if not isinstance(given, _TYPES.get(name, str)):
            raise TypeError(f"{name} has the wrong type")
    return CronJob(**known, extra=extra)
