"""The page of the fault matrix: faults and engines with the same results share a row."""

from __future__ import annotations

from tests.object_store.matrix import CANCELLED, CLONES_OF_AN_IMAGE, Cell, page


def test_faults_and_engines_with_the_same_results_share_a_row() -> None:
    found = page(
        {
            ("s3fs", "read", "500", True): Cell("ReadError", 8, 2.9),
            ("s3fs", "rename", "500", True): Cell("ReadError", 9, 2.1),
            ("s3fs", "write, SHA256", "500", True): Cell("WriteError", 3, 1.0),
            ("s3fs", "read", "reset", True): Cell("ReadError", 7, 3.0),
            ("s3fs", "write, SHA256", "reset", True): Cell("WriteError", 3, 1.0),
            ("obstore", "read", "500", True): Cell("ReadError", 4, 0.1),
            ("obstore", "read", "reset", True): Cell("ReadError", 10, 0.1),
        }
    )
    row = "ReadError: read, rename; WriteError: write (SHA256); at most 10 requests, 3.0 s"
    assert f"| every request, deadline 3 s: 500, reset | obstore, s3fs | {row} |" in found


def test_another_result_of_an_operation_is_another_row() -> None:
    found = page(
        {
            ("s3fs", "read", "500", False): Cell("done", 2, 0.1),
            ("s3fs", "read", "reset", False): Cell("ReadError", 2, 0.1),
            ("obstore", "read", "reset", False): Cell("done", 2, 0.1),
        }
    )
    rows = [line for line in found.split("\n") if line.startswith("| the first request")]
    assert rows == [
        "| the first request of each kind: 500 | s3fs | done: every operation; at most 2 requests, 0.1 s |",
        "| the first request of each kind: reset | obstore | done: every operation; at most 2 requests, 0.1 s |",
        "| the first request of each kind: reset | s3fs | ReadError: every operation; at most 2 requests, 0.1 s |",
    ]


def test_numbers_in_results_are_added_up() -> None:
    found = page(
        {
            ("s3fs", "read", CANCELLED, False): Cell("3 awaits: 3 old, 0 new", 0, 0.0),
            ("obstore", "read", CANCELLED, False): Cell("5 awaits: 1 old, 4 new", 0, 0.0),
            ("local", "append", CLONES_OF_AN_IMAGE, True): Cell("100 of 100", 0, 0.0),
            ("local", "append", CLONES_OF_AN_IMAGE, False): Cell("99 of 100", 0, 0.0),
        }
    )
    assert "| cancelled at every await | obstore, s3fs | 8 awaits: 4 old, 4 new: every operation |" in found
    assert "| four clones of one image race: cold, warm | local | 199 of 200: every operation |" in found
