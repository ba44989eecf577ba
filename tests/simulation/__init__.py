"""Simulate many writers of one file, on a network that loses, delays and repeats requests, in simulated time.

A random seed determines a **schedule**: up to six writers, some in one process, run the real flows over the real
`agent_memory.object_store.ObjectStoreBackend`. Its engine calls a simulated store through a network with faults.
Afterwards the history of the file is checked: one order explains it (see `history`), no acknowledged append is
missing or duplicated, no operation was refused only because of other writers, and none outlived its deadline.

In a schedule of the second kind (`run_keyed_schedule`) several callers repeat calls with idempotency keys, and some die
amid a call: no call is made twice, and a call is made if any of its callers was told so.

In a schedule of the third kind (`run_versioned_schedule`) the store keeps versions, and the clocks of the writers are
up to an hour apart: each state that was replaced or deleted is a version, with the right content and operations, and
there is no other version.

In a schedule of the fourth kind (`run_cloned_schedule`) the writers are restored from one image of a process, as by
snapshots of virtual machines: they have the same memory, and none of them can find out.

In a schedule of the fifth kind (`run_rename_schedule`) files get other names and their old names again, in stores with
and without versions, and many conditional requests arrive late or twice: no content is lost.

    python -m tests.simulation --schedules 2000
    python -m tests.simulation --seed 1234

prints the schedules that failed; the same seed gives the same schedule again.
"""

from tests.simulation.clones import cloned_failures, run_cloned_schedule
from tests.simulation.keyed import keyed_failures, run_keyed_schedule
from tests.simulation.network import ComposingClient, Faults, SimulatedClient, SimulatedStore
from tests.simulation.renames import rename_failures, run_rename_schedule
from tests.simulation.schedule import Failure, Schedule, failures, run_schedule
from tests.simulation.versioned import run_versioned_schedule, versioned_failures

__all__ = [
    "ComposingClient",
    "Failure",
    "Faults",
    "Schedule",
    "SimulatedClient",
    "SimulatedStore",
    "cloned_failures",
    "failures",
    "keyed_failures",
    "rename_failures",
    "run_cloned_schedule",
    "run_keyed_schedule",
    "run_rename_schedule",
    "run_schedule",
    "run_versioned_schedule",
    "versioned_failures",
]
