"""Reading a file four times as long takes no more memory: every format is streamed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.rows.written import FORMATS, NAMED, TABLES, libraries, rows_of

LINUX = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux for the peak of a process")
SHORT, LONG, WIDTH = 150_000, 600_000, 32
"""Rows of 256 bytes: 37 and 147 MiB."""
ALLOWED = 64 << 20
"""Of the 110 MiB that the longer one has more: what allocators keep, and vectors of n (ids and their hashes)."""
INGEST = """
import json, sys
import dask
from bigembed.rows.formats.registry import ingest
from bigembed.rows.reader import Choice
source, out, columns, ids = json.loads(sys.argv[1])
with dask.config.set(scheduler="synchronous"):
    ingest(source, out, Choice(columns=tuple(columns)), {"ids": ids} if ids else {})
print(next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
"""(``ru_maxrss`` would count what the process that starts this one holds.)"""


def peak(folder: Path, name: str, rows: int) -> int:
    """Bytes that a process held at the most to ingest a file of so many rows."""
    path = folder / f"{rows}-{name}"
    FORMATS[name](path, rows_of(rows, WIDTH), [f"row {number}" for number in range(rows)])
    columns = [f"x{j}" for j in range(WIDTH)] if name in TABLES else []
    given = json.dumps([str(path), str(folder / f"{rows}.zarr"), columns, "cell" if name in NAMED else None])
    done = subprocess.run([sys.executable, "-c", INGEST, given], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet", "rows.h5", "rows.h5ad", "rows.nc", "rows.fvecs"])
def test_memory_does_not_grow_with_the_file(name: str, tmp_path: Path) -> None:
    libraries(name)
    short, long = (peak(tmp_path, name, rows) for rows in (SHORT, LONG))
    assert long - short < ALLOWED, f"{short >> 20} MiB, {long >> 20} MiB"


@LINUX
@pytest.mark.slow
def test_a_reader_that_loads_everything_would_be_noticed(tmp_path: Path) -> None:
    """The control: the same measure of a process that holds all rows."""
    held = []
    for rows in (SHORT, LONG):
        code = f"import numpy; x = numpy.ones(({rows}, {WIDTH}))\n{INGEST.splitlines()[-1]}"
        held.append(
            int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        )
    assert held[1] - held[0] > 1.5 * ALLOWED
