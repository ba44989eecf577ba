"""`BackendContract`: every promise of `agent_memory.backend`, as tests for backends of either kind."""

from __future__ import annotations

from agent_memory.testing._listing import ListingContract, NamesContract
from agent_memory.testing._moving import ErasingContract, MovingContract, MovingFilesContract
from agent_memory.testing._operations import AppendingContract, OperationsContract
from agent_memory.testing._parts import OriginsContract, PartsContract, PartsRaceContract
from agent_memory.testing._reading import ReadingContract
from agent_memory.testing._writing import DeletingContract, WritingContract
from agent_memory.testing.races import RaceContract

__all__ = ["BackendContract", "FunctionalContract"]


class FunctionalContract(
    ReadingContract,
    WritingContract,
    DeletingContract,
    AppendingContract,
    ListingContract,
    MovingContract,
    MovingFilesContract,
    PartsContract,
    ErasingContract,
    OriginsContract,
    NamesContract,
    OperationsContract,
):
    """The contract without races, for a test double that is not atomic; real backends need `BackendContract`."""


class BackendContract(FunctionalContract, PartsRaceContract, RaceContract):
    """The contract as a test class for backend authors: subclass it and define the fixture ``backend``.

    ``backend`` is an empty `Backend` or `BlockingBackend`, new for each test; the fixture also closes it. The fixture
    ``another_backend`` is the same storage opened again, as another process would; by default it is the same object.
    A backend is tested against the `Capabilities` that it states. Every operation that it does not state must be
    refused with `UnsupportedOperationError`. For a slow store, lower the class attributes `rounds`, `workers`,
    `many_files`, `large_bytes`, `model_examples` and `model_steps`. ``single_writer = True`` says that the
    backend was opened with the caller's assurance that there is no other writer.

    Example:
        >>> class TestMyBackend(BackendContract):
        ...     @pytest.fixture
        ...     def backend(self, tmp_path: Path) -> MyBackend:
        ...         return MyBackend(tmp_path)
    """
