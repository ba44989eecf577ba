"""Count the lines that survive when processes append to one file, for several libraries, as a Markdown table.

    python benchmarks/lost_updates.py                   on local disk
    python benchmarks/lost_updates.py --s3              also on S3, on a local server that this command starts
    python benchmarks/lost_updates.py --s3 s3://BUCKET  also in a bucket of yours, which keeps the objects
    python benchmarks/lost_updates.py --frameworks      also the own stores of agent frameworks and our adapters
    python benchmarks/lost_updates.py --svg FILE        also draw a bar chart of the subjects that README.md shows

Four processes add 25 lines each to one file, all at once: a barrier lets them begin together. Each line is one call,
and each process opens its store once, before the barrier. This program repeats no call; the two rows that retry after a
conflict say so. Three rounds, each with a new file; a cell shows the least and the most of the rounds. Before them, one
process alone adds its lines: a store that does not keep these is not measured. ``TMPDIR`` chooses the disk.

- kept: lines in the file after the run, read by a new store.
- refused with an error: the call raised an exception or returned an error, so the caller knows.
- silently lost: the call returned, and the line is missing. The caller does not know.
- seconds: from the barrier to the end of the last process, without imports and without opening.

A row that is not installed says how to install it. The calls of each row are listed below its table. The subjects have
different aims; the table counts lines and nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import multiprocessing
import os
import platform
import shlex
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from _lost_update_chart import chart, span
from _lost_update_stores import s3_client
from _lost_update_subjects import ADAPTERS, FRAMEWORKS, LOCAL, S3, SUBJECTS, Subject

WRITERS, LINES, ROUNDS = 4, 25, 3
_SECONDS = 300  # after which a round that has not ended is stopped
SPAWN = multiprocessing.get_context("spawn")
KEYS = {"AWS_ACCESS_KEY_ID": "benchmark", "AWS_SECRET_ACCESS_KEY": "benchmark", "AWS_DEFAULT_REGION": "us-east-1"}


class Count(NamedTuple):
    """What one round found."""

    kept: int
    refused: int
    lost: int
    other: int
    seconds: float


class Shared(NamedTuple):
    """What the processes of a round share."""

    ready: Any
    refused: Any
    began: Any
    ended: Any


class UnmeasuredError(Exception):
    """A round that could not be counted."""


def counted(added: Sequence[str], refused: set[str], found: Sequence[str], seconds: float = 0) -> Count:
    """Compare the lines that were added with those that were found.

    A refused line may be found: then it counts as kept and as refused. "other" are found lines that are no added line,
    or an added line again.
    """
    kept = set(added) & set(found)
    lost = set(added) - kept - refused
    return Count(len(kept), len(refused), len(lost), len(found) - len(kept), seconds)


def work(name: str, place: str, writer: int, lines: list[str], shared: Shared) -> None:
    """Add the lines of one process."""
    warnings.simplefilter("ignore")
    try:
        store = SUBJECTS[name].open(place)
    except BaseException:
        shared.ready.abort()
        raise
    with contextlib.closing(store):
        shared.ready.wait()
        shared.began[writer] = time.monotonic()
        for number, line in enumerate(lines):
            try:
                store.add(line)
            except Exception:  # noqa: BLE001 - any exception is a reported failure
                shared.refused[writer * len(lines) + number] = 1
        shared.ended[writer] = time.monotonic()


def one_round(subject: Subject, place: str, writers: int = WRITERS, lines: int = LINES) -> Count:
    """Let processes add their lines at once, and count.

    Raises:
        UnmeasuredError: a process could not open the store, or ended early; its traceback is on standard error.
    """
    with contextlib.closing(subject.open(place)) as store:
        store.prepare()
    added = [[f"writer-{writer}-line-{number:02}" for number in range(lines)] for writer in range(writers)]
    shared = Shared(
        SPAWN.Barrier(writers, timeout=120),
        SPAWN.Array("b", writers * lines),
        SPAWN.Array("d", writers),
        SPAWN.Array("d", writers),
    )
    given = [(subject.name, place, writer, added[writer], shared) for writer in range(writers)]
    processes = [SPAWN.Process(target=work, args=each) for each in given]
    for process in processes:
        process.start()
    for process in processes:
        process.join(_SECONDS)
        process.kill()
    if any(process.exitcode for process in processes):
        raise UnmeasuredError("a process ended with an error")
    all_lines = list(itertools.chain(*added))
    refused = {line for line, was_refused in zip(all_lines, shared.refused, strict=True) if was_refused}
    with contextlib.closing(subject.open(place)) as store:
        return counted(all_lines, refused, store.lines(), max(shared.ended) - min(shared.began))


def measured(subject: Subject, place: Callable[[], str], rounds: int) -> list[Count] | str:
    """The counts of the rounds, or why there are none."""
    if missing := subject.missing:
        return f"not installed: `pip install {' '.join(missing)}`"
    try:
        if one_round(subject, place(), writers=1).kept < LINES:
            raise UnmeasuredError("one process alone does not keep its lines")
        return [one_round(subject, place()) for _ in range(rounds)]
    except Exception as error:  # noqa: BLE001 - a library may not fit its dependencies
        return f"not measured: {error if isinstance(error, UnmeasuredError) else type(error).__name__}"


def row(subject: Subject, found: list[Count] | str) -> str:
    """The row of a subject."""
    if isinstance(found, str):
        return f"| {subject.name} | {'' if subject.missing else subject.version} | {found} | | | |"
    kept, refused, lost, other, seconds = zip(*found, strict=True)
    note = f" ({span(other)} other lines)" if any(other) else ""
    return (
        f"| {subject.name} | {subject.version} | {span(kept)}{note} | {span(refused)} | {span(lost)} "
        f"| {span(seconds, '.2f')} |"
    )


def table(title: str, subjects: Sequence[Subject], place: Callable[[], str], rounds: int) -> dict[str, list[Count]]:
    """Measure the subjects, print each row when it is measured, and return the counts by the subjects' names."""
    print(f"\n{title}\n")
    print(f"| subject | version | kept of {WRITERS * LINES} | refused with an error | silently lost | seconds |")
    print("|---|---|---|---|---|---|", flush=True)
    counts = {}
    for subject in subjects:
        found = measured(subject, place, rounds)
        print(row(subject, found), flush=True)
        if not isinstance(found, str):
            counts[subject.name] = found
    print("\nThe call for each line:\n")
    for subject in subjects:
        print(f"- {subject.name}: {subject.calls}")
    return counts


def draw(file: Path, counts: dict[str, list[Count]], rounds: int) -> None:
    """Draw the chart of the counts."""
    drawn = chart(
        counts,
        WRITERS * LINES,
        [
            f"{WRITERS} processes add {LINES} lines each to one file.",
            f"Solid: the least of {rounds} rounds; pale: the most.",
            "Where nothing was refused, missing lines were lost silently.",
        ],
    )
    file.write_text(drawn, encoding="utf-8")


@contextlib.contextmanager
def local_places() -> Iterator[Callable[[], str]]:
    """Directories on local disk, a new one for each call."""
    with tempfile.TemporaryDirectory() as root:

        def place() -> str:
            path = Path(root, uuid.uuid4().hex)
            path.mkdir()
            return str(path)

        yield place


@contextlib.contextmanager
def s3_places(url: str) -> Iterator[tuple[str, Callable[[], str]]]:
    """Prefixes on S3, a new one for each call, and the name of the server; without a URL, a server is started."""
    with contextlib.ExitStack() as stack:
        server = "a bucket on S3"
        if not url:
            from _s3_clients import ministack, new_name

            server = f"ministack {version('ministack')}"
            for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"):
                os.environ.pop(name, None)
            os.environ.update(KEYS, AWS_ENDPOINT_URL=stack.enter_context(ministack()))
            bucket = new_name()
            with contextlib.closing(s3_client()) as client:
                client.create_bucket(Bucket=bucket)
            url = f"s3://{bucket}"
        yield server, lambda: f"{url.rstrip('/')}/{uuid.uuid4().hex}"


def head(command: str, rounds: int) -> None:
    """Print when, on which machine and by which command the tables were made."""
    release = ".".join(platform.release().split(".")[:2])
    system = f"{platform.system()} {release}, {platform.machine()}, Python {platform.python_version()}"
    print(f"- date: {datetime.datetime.now(datetime.UTC).date()}")
    print(f"- machine: {os.cpu_count()} cores, {system}")
    print(f"- command: `{command}`")
    print(f"- {WRITERS} processes, {LINES} lines each, all at once; rounds: {rounds}, each with a new file")


def chosen(subjects: Sequence[Subject], words: Sequence[str]) -> list[Subject]:
    """The subjects whose names have one of the words, or all."""
    return [each for each in subjects if not words or any(word.lower() in each.name.lower() for word in words)]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--s3", nargs="?", const="", metavar="URL", help="also on S3; without a URL on a local server")
    parser.add_argument("--frameworks", action="store_true", help="also the stores of agent frameworks")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of each subject; by default {ROUNDS}")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="only subjects with a word in their name")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="also draw a bar chart")
    given = parser.parse_args()
    if given.rounds < 1:
        parser.error("--rounds is at least 1")
    if given.s3 == "":
        try:
            version("ministack")
        except PackageNotFoundError:
            parser.error("no local S3 server: `pip install ministack`, or name a bucket: --s3 s3://BUCKET")
    return given


def main() -> None:
    given = arguments()
    warnings.simplefilter("ignore")
    words = ["URL" if word == given.s3 else word for word in sys.argv[1:]]
    head(shlex.join(["python", "benchmarks/lost_updates.py", *words]), given.rounds)
    with local_places() as place:
        counts = table("On local disk:", chosen(LOCAL, given.only), place, given.rounds)
        if given.frameworks:
            title = "Stores of agent frameworks on local disk, and our adapters:"
            table(title, chosen(FRAMEWORKS, given.only), place, given.rounds)
    if given.s3 is not None:
        with s3_places(given.s3) as (server, prefix):
            counts |= table(f"On S3 ({server}):", chosen(S3, given.only), prefix, given.rounds)
            if given.frameworks:
                table(f"Our adapters on S3 ({server}):", chosen(ADAPTERS, given.only), prefix, given.rounds)
    if given.svg:
        draw(given.svg, counts, given.rounds)


if __name__ == "__main__":
    main()
