"""Which tests run in one process, if a run has several."""

from __future__ import annotations

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
