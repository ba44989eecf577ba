"""``doctor --contract``: run the whole backend contract against a URL, and print a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from agent_memory.cli.output import Exit, counted, draw, note, reported_progress, show_json
from agent_memory.cli.settings import Settings
from agent_memory.errors import AgentMemoryError, BackendNotAvailableError, install_hint

if TYPE_CHECKING:
    from agent_memory.testing.conformance import Outcome, Promise


def report_contract(settings: Settings, url: str, rounds: int) -> Exit:
    """Run the contract against a URL, print the results, and return the exit code."""
    try:
        from agent_memory.testing.conformance import conform
    except ImportError as error:
        advice = f"the contract needs pytest and Hypothesis: {install_hint('testing')}"
        raise BackendNotAvailableError(advice) from error
    with ExitStack() as stack:
        bars: list[Any] = []

        def begun(tests: int) -> None:
            bars.append(stack.enter_context(reported_progress("Testing", tests)))

        try:
            promises, left = conform(
                url, settings.given_options(), rounds=rounds, begun=begun, advance=lambda: bars[0]()
            )
        except AgentMemoryError:
            raise
        except (TypeError, ValueError) as error:
            raise click.UsageError(f"the store does not open: {error}") from error
    if settings.json:
        show_json({"promises": [each._asdict() for each in promises], "left": left})
    else:
        _print(promises)
    if left:
        note(f"{left} could not be deleted: it is the directory that the tests used")
    return Exit.FAILED if any(each.outcome in ("broken", "not tried") for each in promises) else Exit.OK


def _print(promises: Sequence[Promise]) -> None:
    from rich import box
    from rich.table import Table

    counts = Counter((each.part, each.outcome) for each in promises)
    outcomes: list[Outcome] = ["kept", "broken", "not promised"]
    untried = [each for each in promises if each.outcome == "not tried"]
    if untried:
        outcomes.append("not tried")
    table = Table("promises about", *outcomes, box=box.SIMPLE)
    for part in dict.fromkeys(each.part for each in promises):
        numbers = [counts[part, outcome] for outcome in outcomes]
        table.add_row(part, *map(str, numbers), style="bold red" if numbers[1] else "")
    draw(table)
    for outcome in ("not promised", "not tried"):
        for reason, times in Counter(each.detail for each in promises if each.outcome == outcome).items():
            click.echo(f"{outcome.capitalize()} ({times}): {reason}")
    broken = [each for each in promises if each.outcome == "broken"]
    for each in broken:
        click.echo(f"Broken: {each.part}: {each.text}: {each.detail}")
    if broken:
        click.echo(f"Verdict: {counted(len(broken), 'promise')} of {len(promises)} broken.")
    elif untried:
        click.echo(f"Verdict: none. The storage failed in {counted(len(untried), 'test')} of {len(promises)}.")
    else:
        click.echo("Verdict: every promise that the backend makes was kept.")
