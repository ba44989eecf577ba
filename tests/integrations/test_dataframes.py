"""DataFrames and arrays over agentmemory:// URLs, as seen by users of pandas, pyarrow, polars, duckdb, zarr, dask."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import zarr
from pyarrow import dataset
from pyarrow.fs import FSSpecHandler, PyFileSystem
from upath import UPath
from zarr.storage import FsspecStore

from tests.support.pages import blocks_of

pytestmark = pytest.mark.usefixtures("_fresh")
Options = dict[str, Any]
FRAME = pd.DataFrame({"x": [1, 2, 3], "name": ["a", "b", "é"]})
open_url: Any = fsspec.open


def test_what_a_user_sees_first_of_pandas_and_upath(options: Options) -> None:
    notes = UPath("agentmemory://notes", **options)
    (notes / "today.md").write_text("learnt\n")
    FRAME.to_csv("agentmemory://notes/points.csv", index=False, storage_options=options)
    assert pd.read_csv("agentmemory://notes/points.csv", storage_options=options).equals(FRAME)
    assert sorted(path.name for path in notes.iterdir()) == ["points.csv", "today.md"]


def test_pandas_reads_and_writes_by_url(options: Options, seen: Callable[[], set[tuple[str, str]]]) -> None:
    FRAME.to_csv("agentmemory://d/points.csv", index=False, storage_options=options)
    FRAME.to_parquet("agentmemory://d/points.parquet", storage_options=options)
    FRAME.to_json("agentmemory://d/points.jsonl", orient="records", lines=True, storage_options=options)
    for found in (
        pd.read_csv("agentmemory://d/points.csv", storage_options=options),
        pd.read_parquet("agentmemory://d/points.parquet", storage_options=options),
        pd.read_json("agentmemory://d/points.jsonl", lines=True, storage_options=options),
    ):
        pd.testing.assert_frame_equal(found, FRAME, check_dtype=False)
    assert {("write", "d/points.csv"), ("read", "d/points.parquet")} <= seen()


def test_pyarrow_reads_and_writes_a_dataset(options: Options, seen: Callable[[], set[tuple[str, str]]]) -> None:
    files = PyFileSystem(FSSpecHandler(fsspec.filesystem("agentmemory", **options)))
    table = pa.table({"x": [1, 2, 3], "part": ["a", "a", "b"]})
    dataset.write_dataset(table, "set", filesystem=files, format="parquet", partitioning=["part"])
    found = dataset.dataset("set", filesystem=files, format="parquet", partitioning=["part"]).to_table()
    assert sorted(found.column("x").to_pylist()) == [1, 2, 3]
    assert {("write", "set/a/part-0.parquet"), ("read", "set/b/part-0.parquet")} <= seen()


def test_polars_reads_and_writes_files_that_fsspec_opens(
    options: Options, seen: Callable[[], set[tuple[str, str]]]
) -> None:
    frame = pl.DataFrame({"x": [1, 2, 3]})
    with open_url("agentmemory://d/points.parquet", "wb", **options) as file:
        frame.write_parquet(file)
    with open_url("agentmemory://d/points.parquet", **options) as file:
        assert pl.read_parquet(file).equals(frame)
    assert {("write", "d/points.parquet"), ("read", "d/points.parquet")} <= seen()


def test_duckdb_reads_and_writes_by_url(options: Options, seen: Callable[[], set[tuple[str, str]]]) -> None:
    with duckdb.connect() as database:
        database.register_filesystem(fsspec.filesystem("agentmemory", **options))
        database.sql("copy (select 42 as x union all select 43) to 'agentmemory://d/points.csv'")
        found = database.sql("select sum(x) from read_csv('agentmemory://d/*.csv')").fetchall()
        assert found == [(85,)]
    assert {("write", "d/points.csv"), ("read", "d/points.csv")} <= seen()


def test_zarr_keeps_arrays(options: Options, seen: Callable[[], set[tuple[str, str]]]) -> None:
    store = FsspecStore.from_url("agentmemory://arrays/one", storage_options=options)
    array = zarr.create_array(store, shape=(4, 4), chunks=(2, 2), dtype="i4")
    array[:] = np.arange(16).reshape(4, 4)
    again = FsspecStore.from_url("agentmemory://arrays/one", storage_options=options, read_only=True)
    assert zarr.open_array(again)[:].sum() == 120  # type: ignore[union-attr]
    assert ("write", "arrays/one/zarr.json") in seen()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # dask's own, in other processes
def test_dask_reads_and_writes_in_two_worker_processes(
    options: Options, seen: Callable[[], set[tuple[str, str]]]
) -> None:
    import dask.config
    import dask.dataframe as dd

    with dask.config.set(scheduler="processes", num_workers=2):
        frame = dd.from_pandas(FRAME, npartitions=3)  # type: ignore[no-untyped-call]
        frame.to_csv("agentmemory://parts/*.csv", index=False, storage_options=options)
        found = dd.read_csv("agentmemory://parts/*.csv", storage_options=options).compute()
    assert sorted(found["x"]) == [1, 2, 3]
    assert {("write", f"parts/{number}.csv") for number in range(3)} <= seen()


def test_the_programs_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs/filesystem.md"
    monkeypatch.chdir(tmp_path)
    blocks = [block for block in blocks_of(page.read_text()) if block.info == "ecosystem"]
    assert len(blocks) == 2
    for block in blocks:
        Path("program.py").write_text(block.code)
        subprocess.run([sys.executable, "program.py"], check=True)
