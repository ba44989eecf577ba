"""Measure the redaction of hostile texts at three lengths; the time must grow linearly with the length.

    python -m benchmarks.redaction [--all]

The texts come from `tests.plugins.secret_forms`, a few thousand, at 10 kB. The slowest are measured at 100 kB, and the
slowest of those at 1 MB; ``--all`` measures all at 100 kB. A row has the seconds at each length, the slowest pattern
with its seconds, and the repeated unit of the text.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable

from agent_memory.hookspecs import Operation
from agent_memory.plugins._secrets import KEY_FORMS, PATTERNS, known_secrets
from agent_memory.plugins.redaction import RedactionPlugin
from tests.plugins.secret_forms import hostile_units, text_of

LENGTHS = (10_000, 100_000, 1_000_000)
WORST = (400, 12)
Unit = tuple[str, str]
_PLUGIN = RedactionPlugin()
_OPERATION = Operation(id="1", time=0.0, kind="write", agent=None, path="a.md")


def seconds(call: Callable[[], object]) -> float:
    """Return the CPU seconds of a call."""
    began = time.process_time()
    call()
    return time.process_time() - began


def of_text(unit: Unit, length: int) -> float:
    """Return the CPU seconds of the whole filter for a text."""
    content = text_of(*unit, length).encode()
    return seconds(lambda: _PLUGIN.agent_memory_filter_content(_OPERATION, content))


def of_patterns(unit: Unit, length: int) -> tuple[str, float]:
    """Return the slowest pattern for a text, and its seconds."""
    text = text_of(*unit, length)
    times = {
        f"{kind} {pattern.pattern[:20]}": seconds(lambda pattern=pattern: list(pattern.finditer(text)))
        for kind, pattern in PATTERNS
    }
    times["Private Key"] = seconds(lambda: list(known_secrets(text))) - sum(times.values())
    return max(times.items(), key=lambda item: item[1])


def worst(units: Iterable[Unit], length: int, most: int) -> list[Unit]:
    """Return the units with the slowest texts."""
    return sorted(units, key=lambda unit: of_text(unit, length), reverse=True)[:most]


def main() -> None:
    """Measure and print."""
    units = list(hostile_units())
    print(f"{len(units):,} texts, {len(PATTERNS)} patterns and {len(KEY_FORMS)} forms of keys")
    slow = units if "--all" in sys.argv else worst(units, LENGTHS[0], WORST[0])
    for unit in worst(slow, LENGTHS[1], WORST[1]):
        times = " ".join(f"{of_text(unit, length):8.3f}" for length in LENGTHS)
        name, most = of_patterns(unit, LENGTHS[2])
        print(f"{times}  {most:6.3f} {name:42} {unit[0][-30:]!a} {unit[1][:30]!a}")


if __name__ == "__main__":
    main()
