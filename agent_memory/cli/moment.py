"""The type of options that take a time."""

from __future__ import annotations

from datetime import UTC, datetime

import click


class Moment(click.ParamType):  # type: ignore[type-arg]  # generic only from click 8.4 on
    """A date or a time in ISO 8601, in UTC unless it has an offset; as POSIX seconds."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is no time like 2026-03-01 or 2026-03-01 09:12:07Z", param, ctx)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
