"""What a report holds is what the plan of a job counts for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bigembed.jobs.planning.plan import REPORT_BYTES

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


@pytest.mark.parametrize("n", [240_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_report_holds_what_the_plan_says(n: int, tmp_path: Path) -> None:
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
