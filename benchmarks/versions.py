"""Measure the price of versions on local disk in one run, as ratios to the plain call.

    python benchmarks/versions.py [DIRECTORY]

Every row is the median of interleaved rounds, with hooks and logging at their defaults.

- replace, durable: compared with temp + write + fsync + rename + fsync(directory). "two files" is the floor with
  versions: the same once more, for a new file in another directory. "off" is a store that keeps no versions.
- append, read: compared with the same store without versions.
- versions: the newest 20 of 1,000 versions, compared with the reading of 20 files.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from pathlib import Path

from _comparing import compare
from local import LINE, TEXTS, replace_durably

from agent_memory import AgentMemory, VersionLimits


def replacements(plain: Path, off: AgentMemory, on: AgentMemory) -> None:
    numbers = itertools.count()
    whole = plain / "whole"
    (plain / "kept").mkdir()

    def two_files(text: str) -> None:
        replace_durably(plain / "kept" / f"{next(numbers)}", text)
        replace_durably(whole, text)

    for size, text in TEXTS.items():
        compare(
            f"replace {size}, durable",
            lambda text=text: replace_durably(whole, text),
            lambda text=text: on.write("whole", text),
            {"two files": lambda text=text: two_files(text), "off": lambda text=text: off.write("whole", text)},
            calls=20,
        )


def unchanged(off: AgentMemory, on: AgentMemory) -> None:
    for memory in (off, on):
        memory.write("small", TEXTS["1 KB"])
        memory.append("log", LINE)
    compare("append, compared with off", lambda: off.append("log", LINE), lambda: on.append("log", LINE))
    compare("read 1 KB, compared with off", lambda: off.read("small"), lambda: on.read("small"))


def listings(plain: Path, on: AgentMemory) -> None:
    for number in range(1_001):
        on.write("often", f"{number}")
    files = [plain / f"file-{number}" for number in range(20)]
    for file in files:
        file.write_text("x")
    compare(
        "the newest 20 of 1,000 versions",
        lambda: [file.read_text() for file in files],
        lambda: on.versions.list("often", limit=20),
        calls=20,
    )


def main(directory: Path) -> None:
    plain = directory / "plain"
    plain.mkdir()
    off = AgentMemory.open(directory / "off")
    on = AgentMemory.open(directory / "on", versions=VersionLimits(keep=100_000))
    replacements(plain, off, on)
    process = f"{(directory / 'process').as_uri()}?durability=process"
    kept = AgentMemory.open(f"{(directory / 'kept').as_uri()}?durability=process", versions=VersionLimits(keep=100_000))
    unchanged(AgentMemory.open(process), kept)
    listings(plain, kept)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as scratch_directory:
        main(Path(scratch_directory))
