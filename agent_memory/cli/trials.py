"""Trials of doctor beside the probes: the whole contract, and two processes that edit one file at the same time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final

import click

from agent_memory.backend import AnyBackend
from agent_memory.cli.output import Exit, counted, draw, note, reported_progress, show_json
from agent_memory.cli.probes import ScratchTree, Sight
from agent_memory.cli.settings import Settings
from agent_memory.errors import AgentMemoryError, BackendNotAvailableError, install_hint
from agent_memory.key import Key
from agent_memory.registry import open_backend

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


_EDITS: Final = 50
_SECONDS: Final = 30
_NAME: Final = "counted.md"


def tried_in_two_processes(backend: AnyBackend, url: str, options: Mapping[str, object]) -> Sight:
    """Let this process and another one count up a number in one file; each edit must add one."""
    scratch = ScratchTree(backend)
    facts = {"url": url, "options": options, "directory": scratch.top.path}
    try:
        scratch.write(_NAME, b"0")
        command = [sys.executable, "-P", "-m", __name__]  # without modules of the current directory
        with subprocess.Popen(  # noqa: S603 - this interpreter
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as other:
            try:
                assert other.stdin  # noqa: S101
                other.stdin.write(json.dumps(facts).encode())
                other.stdin.close()
                own = _edits_while(other, scratch)
                failed = other.wait(_SECONDS) != 0
            finally:
                other.kill()
        counted = int(scratch.read(_NAME) or b"0")
    except (AgentMemoryError, OSError, ValueError, subprocess.SubprocessError) as error:
        return Sight("failed", f"two processes could not be tried: {type(error).__name__}")
    finally:
        with suppress(AgentMemoryError):
            scratch.clear()
    if failed:
        return Sight("failed", "two processes could not be tried: the other one failed")
    if lost := own + _EDITS - counted:
        return Sight("no", f"two processes lost {lost} of {own + _EDITS} edits")
    return Sight("yes", f"two processes lost none of {own + _EDITS} edits")


def _edits_while(other: subprocess.Popen[bytes], scratch: ScratchTree) -> int:
    """Edit until the other process has ended; returns the number of edits."""
    edits = 0
    while other.poll() is None and edits < _EDITS * _EDITS:
        scratch.add_one(_NAME)
        edits += 1
    return edits


def _main() -> None:
    facts = json.load(sys.stdin)
    scratch = ScratchTree(open_backend(facts["url"], facts["options"]), Key.internal(facts["directory"]))
    for _ in range(_EDITS):
        scratch.add_one(_NAME)


if __name__ == "__main__":
    _main()
