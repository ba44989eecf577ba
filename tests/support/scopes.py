"""Which tests run in one process, if a run has several."""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadScopeScheduling

_ON_CEPH = ("::TestCeph", "::TestObstoreOnCeph", "on_ceph", "::test_ceph_")
"""Parts of the node ids of tests that use Ceph."""
_TOGETHER = (
    "tests/backends/s3/",
    "tests/cli/test_demo.py",
    "tests/cli/test_mcp",
    "tests/cli/test_wrong_inputs.py",
    "tests/faults/test_full_disk.py",
    "tests/faults/test_power_loss.py",
    "tests/faults/test_swaps.py",
    "tests/test_uncopied.py",
)
"""The beginnings of the node ids of tests that run in one process: they share a slow fixture, or write a page."""


def scope_of(node_id: str) -> str:
    """The name of the tests that run in the same process as a test; a test alone is its own scope."""
    if any(name in node_id for name in _ON_CEPH):
        return "ceph"
    return next((start for start in _TOGETHER if node_id.startswith(start)), node_id)


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Give each process one test after the other.

    The tests of one scope run in one process. So do all tests on Ceph, to start one cluster.
    """

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forget each completed scope: the base class counts the tests of all of them after each test."""
        super().mark_test_complete(node, item_index, duration)
        self._complete(node, self.registered_collections[node][item_index])

    def _complete(self, node: Any, test: str) -> None:
        work, scope = self.assigned_work[node], self._split_scope(test)
        work[scope][test] = True
        if all(work[scope].values()):
            del work[scope]

    def remove_node(self, node: Any) -> Any:
        """Run no test again that ended its process: the base class gives it to the next one, and so on."""
        work = self.assigned_work[node]
        ended = next((test for tests in work.values() for test, is_done in tests.items() if not is_done), None)
        if ended is not None:
            self._complete(node, ended)
        super().remove_node(node)
        return ended
