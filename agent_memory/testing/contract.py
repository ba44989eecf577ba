"""`BackendContract`: every promise of `agent_memory.backend`, as tests for any backend of either kind."""

from __future__ import annotations

from agent_memory.testing._appending import AppendingContract
from agent_memory.testing._erasing import ErasingContract
from agent_memory.testing._listing import ListingContract
from agent_memory.testing._moving import MovingContract
from agent_memory.testing._names import NamesContract
from agent_memory.testing._operations import OperationsContract
from agent_memory.testing._parts import MovingFilesContract, PartsContract, PartsRaceContract
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
    NamesContract,
    OperationsContract,
):
    """The contract without its races, for a stand-in that is not atomic; a backend's users get `BackendContract`."""


class BackendContract(FunctionalContract, PartsRaceContract, RaceContract):
    """The contract for implementers, as a test class: subclass it and give it the fixture ``backend``.

    ``backend`` is an empty `Backend` or `BlockingBackend`, a new one for each test; whoever makes it closes
    it. The fixture ``another_backend``, the same storage opened once more as another process would, is the
    same object unless overridden. A backend is held to the `Capabilities` it states: what it does not state
    it has to refuse with `UnsupportedOperationError`. A slow store lowers the class attributes `rounds`,
    `workers`, `many_files`, `large_bytes`, `model_examples` and `model_steps`; ``single_writer = True`` says
    that the backend was opened on its caller's word that nobody else writes.

    Example:
        >>> class TestMyBackend(BackendContract):
        ...     @pytest.fixture
        ...     def backend(self, tmp_path: Path) -> MyBackend:
        ...         return MyBackend(tmp_path)
    """
