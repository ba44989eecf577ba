"""Many writers of one file, on a store that loses, delays and repeats, in a time that costs nothing.

A **schedule** is made of a seed: up to six writers, some in one process, run the real flows over the real
`agent_memory.object_store.ObjectStoreBackend`, whose engine talks to a simulated store through a network with faults.
Afterwards the history of the file is checked: one order explains it (see `_history`), no acknowledged append is
missing or there twice, nobody was refused only because others wrote, and nothing outlived its deadline.

    python -m agent_memory.testing.simulation --schedules 2000
    python -m agent_memory.testing.simulation --seed 1234

prints the schedules that failed; a seed makes the same schedule again.
"""

from agent_memory.testing.simulation._network import ComposingClient, Faults, SimulatedClient, SimulatedStore
from agent_memory.testing.simulation._schedule import Failure, Schedule, failures, run_schedule

__all__ = [
    "ComposingClient",
    "Failure",
    "Faults",
    "Schedule",
    "SimulatedClient",
    "SimulatedStore",
    "failures",
    "run_schedule",
]
