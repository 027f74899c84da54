"""Memory as it is measured, beside the plan."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bigembed.jobs.planning.plan import REPORT_BYTES
from bigembed.maps import REGISTRY
from tests.cases import by_default, sizes, write_job
from tests.job_files import job_file
from tests.unit.rows.written import FORMATS, NAMED, TABLES, libraries, rows_of

METHOD = 'name = "diffusion_map"\nn_components = 2\nn_neighbors = 10\ntol = 1e-4\ncomponents = "largest"'


def peaks(folder: Path, n: int) -> tuple[dict[str, int], dict[str, int], int]:
    """Planned and measured resident peaks of a whole job, and the vectors that the coordinating process holds."""
    folder.mkdir()
    source = f'dataset = "swiss_roll"\nn = {n}\nnoise = 0.05\npath = "rows.zarr"'
    job = job_file(folder, METHOD, source, more='[cluster]\nworkers = 2\nmemory = "1 GiB"')
    subprocess.run([sys.executable, "-m", "bigembed.cli", "run", str(job)], check=True, timeout=280)
    record = json.loads((folder / "run.zarr" / "job.json").read_text())
    assert "while the workers idle" in record["plan"]["vectors"]
    return record["predicted"], record["measured"], max(stage["held"] for stage in record["plan"]["stages"])


class TestMemory:
    """The memory of every process stays under the plan, and does not grow with the number of rows."""

    @pytest.mark.cluster
    @pytest.mark.slow
    @pytest.mark.parametrize("n", [33_000, 200_000])
    def test_memory_is_planned_and_does_not_grow_with_the_rows(self, tmp_path: Path, n: int) -> None:
        small_plan, small, fewer = peaks(tmp_path / "small", n)
        large_plan, large, more = peaks(tmp_path / "large", 2 * n)
        assert small["total"] <= small_plan["total"]
        assert large["total"] <= large_plan["total"]
        rows_added = n * 3 * 4 + n * 2 * 8
        assert large["worker"] <= 1.15 * small["worker"]  # block sizes differ a little from one partition to the next
        assert large["total"] <= 1.15 * small["total"] + 8 * rows_added + more - fewer

    @pytest.mark.cluster
    @pytest.mark.slow
    @pytest.mark.parametrize("large", [False, True])
    @pytest.mark.parametrize("name", sorted(REGISTRY))
    def test_memory_of_every_method_is_planned(self, tmp_path: Path, name: str, large: bool) -> None:
        job = write_job(tmp_path, name, sizes(name)[large])
        subprocess.run([sys.executable, "-m", "bigembed.cli", "run", str(job)], check=True, timeout=280)
        record = json.loads((tmp_path / "run.zarr" / "job.json").read_text())
        assert {stage["name"] for stage in record["stages"]} >= set(record["keys"])
        for process, planned in record["predicted"].items():
            assert record["measured"][process] <= planned, process
        for stage in record["stages"]:
            assert stage["predicted_seconds"] > 0
            for process, held in stage["memory"].items():
                assert held <= record["predicted"][process], (stage["name"], process)

    @pytest.mark.parametrize("n", [300, pytest.param(4000, marks=pytest.mark.slow)])
    @pytest.mark.parametrize("name", by_default(sorted(REGISTRY), only=("nmf",)))
    def test_memory_of_a_small_job_in_one_process_is_planned(self, tmp_path: Path, name: str, n: int) -> None:
        """With what it compiles anew, as after an installation."""
        job = write_job(tmp_path, name, n)
        job.write_text(job.read_text().partition("[cluster]")[0])
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "compiled")}
        command = [sys.executable, "-m", "bigembed.cli", "run", str(job)]
        subprocess.run(command, check=True, timeout=280, env=environment)
        record = json.loads((tmp_path / "run.zarr" / "job.json").read_text())
        assert record["measured"]["total"] <= record["predicted"]["total"]

    @pytest.mark.cluster
    @pytest.mark.parametrize("name", ["rows.csv", pytest.param("rows.parquet", marks=pytest.mark.slow)])
    @pytest.mark.slow
    def test_memory_of_workers_that_read_a_table_is_planned(self, tmp_path: Path, name: str) -> None:
        pd = pytest.importorskip("pandas")
        rows = pd.DataFrame(np.random.default_rng(0).normal(size=(30_000, 8)).round(4)).rename(columns="c{}".format)
        rows.to_csv(tmp_path / name, index=False) if name.endswith("csv") else rows.to_parquet(tmp_path / name)
        cluster = '[cluster]\nworkers = 2\nmemory = "500 MiB"'
        job = job_file(tmp_path, 'name = "pca"\nn_components = 2', f'path = "{name}"', more=cluster)
        subprocess.run([sys.executable, "-m", "bigembed.cli", "run", str(job)], check=True, timeout=280)
        record = json.loads((tmp_path / "run.zarr" / "job.json").read_text())
        for process, planned in record["predicted"].items():
            assert record["measured"][process] <= planned, process


LINUX = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux for the peak of a process")
SHORT, LONG, WIDTH = 150_000, 600_000, 32
"""Rows of 256 bytes: 37 and 147 MiB."""
ALLOWED = 64 << 20
"""Of the 110 MiB that the longer one has more: what allocators keep, and vectors of n (ids and their hashes)."""
INGEST = """
import json, sys
import dask
from bigembed.rows.formats import ingest
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


class TestFormatMemory:
    """Reading a file four times as long takes no more memory: every format is streamed."""

    @LINUX
    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["rows.csv", "rows.parquet", "rows.h5", "rows.h5ad", "rows.nc", "rows.fvecs"])
    def test_memory_does_not_grow_with_the_file(self, name: str, tmp_path: Path) -> None:
        libraries(name)
        short, long = (peak(tmp_path, name, rows) for rows in (SHORT, LONG))
        assert long - short < ALLOWED, f"{short >> 20} MiB, {long >> 20} MiB"

    @LINUX
    @pytest.mark.slow
    def test_a_reader_that_loads_everything_would_be_noticed(self, tmp_path: Path) -> None:
        """The control: the same measure of a process that holds all rows."""
        held = []
        for rows in (SHORT, LONG):
            code = f"import numpy; x = numpy.ones(({rows}, {WIDTH}))\n{INGEST.splitlines()[-1]}"
            held.append(
                int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
            )
        assert held[1] - held[0] > 1.5 * ALLOWED


PEAK = """
import json, sys
from pathlib import Path
from bigembed.jobs.report.page import write_report
small, large, color = sys.argv[1:]
def peak():  # of this process alone: ru_maxrss would begin with that of its parent
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
write_report(small, small + ".html")  # loads what is needed
before = peak()
found = write_report(large, large + ".html", color=color)
print(json.dumps({"held": peak() - before, "bytes": found["bytes"], "points": found["points"]}))
"""


def fitted(folder: Path, n: int) -> Path:
    """A run of PCA with its coordinates written."""
    from bigembed import PCA
    from bigembed.estimator.fitting import write_output

    rows = np.random.default_rng(0).standard_normal((n, 6), dtype=np.float32)
    np.save(folder / f"{n}.npy", rows)
    write_output(PCA(n_components=5, workdir=folder / f"{n}.zarr").fit(str(folder / f"{n}.npy")))
    return folder / f"{n}.zarr"


class TestReportMemory:
    """What a report holds is what the plan of a job counts for it."""

    @pytest.mark.parametrize("n", [pytest.param(n, marks=pytest.mark.slow) for n in (240_000, 1_000_000)])
    def test_a_report_holds_what_the_plan_says(self, n: int, tmp_path: Path) -> None:
        """As discs (up to 250 000 rows) and counted."""
        small, large = fitted(tmp_path, 50), fitted(tmp_path, n)
        np.save(tmp_path / "color.npy", np.random.default_rng(1).integers(0, 12, n))
        command = [sys.executable, "-c", PEAK, str(small), str(large), str(tmp_path / "color.npy")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        assert found["points"] == n
        assert 15 << 20 < found["held"] <= REPORT_BYTES
        assert found["bytes"] < 3_000_000
