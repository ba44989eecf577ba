"""Run schedules from the command line; exit with 1 if a schedule fails."""

from __future__ import annotations

import argparse
import sys

from tests.simulation import (
    cloned_failures,
    failures,
    keyed_failures,
    rename_failures,
    run_cloned_schedule,
    run_keyed_schedule,
    run_rename_schedule,
    run_schedule,
    run_versioned_schedule,
    versioned_failures,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument(
        "--schedules", type=int, default=2000, metavar="N", help="the number of schedules, from the first seed on"
    )
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--keyed", action="store_true", help="schedules of calls with idempotency keys")
    kind.add_argument("--versions", action="store_true", help="schedules of a store that keeps versions")
    kind.add_argument("--renames", action="store_true", help="schedules of files that get other names")
    parser.add_argument("--seed", type=int, metavar="SEED", help="run and show only the schedule of this seed")
    kind.add_argument("--clones", action="store_true", help="schedules of processes restored from one image")
    given = parser.parse_args()
    run, find = run_schedule, failures
    if given.keyed:
        run, find = run_keyed_schedule, keyed_failures
    elif given.versions:
        run, find = run_versioned_schedule, versioned_failures
    elif given.clones:
        run, find = run_cloned_schedule, cloned_failures
    elif given.renames:
        run, find = run_rename_schedule, rename_failures
    if given.seed is not None:
        schedule = run(given.seed)
        sys.stdout.write(f"{schedule}\n")
        return bool(schedule.faults)
    seeds = range(given.first, given.first + given.schedules)
    found = list(find(seeds))
    for failure in found:
        sys.stdout.write(f"{failure}\n")
    sys.stdout.write(f"{given.schedules} schedules, {len(found)} failed\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
