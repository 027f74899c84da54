"""Jobs that keep only what their map needs: what stays is enough, and the plan counts what is there at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

from bigembed.errors import JobError
from bigembed.jobs.extend import extend
from bigembed.jobs.report.lines import verify_lines
from bigembed.jobs.report.page import write_report
from bigembed.jobs.run import plan_job, run_job
from bigembed.jobs.scene import export, view_run
from bigembed.jobs.spec import read_job
from bigembed.jobs.verify import verify
from bigembed.stages.runs import Run
from bigembed.store.arrays import read_array
from bigembed.store.attributes import is_dataset
from tests.blocks import blocks_for
from tests.digests import published

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
N = 600


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Any]:
    """Write a job; its rows lie beside it."""
    rows = np.random.default_rng(0).normal(size=(N, 3)) * [4, 2, 1]
    np.save(tmp_path / "rows.npy", rows.astype(np.float32))

    def write(keep: str = "map", path: str = "run.zarr", t: float = 0.0, more: str = "") -> Any:
        text = '[input]\npath = "rows.npy"\n[method]\nname = "diffusion_map"\nn_components = 2\nn_neighbors = 8\n'
        model = "" if "[condense]" in more else f'model = "{path}-model"\n'
        text += f't = {t}\n[output]\npath = "{path}"\nkeep = "{keep}"\n{model}{more}'
        (tmp_path / "job.toml").write_text(text)
        return read_job(tmp_path / "job.toml")

    return write


def dropped(run: Path) -> set[str]:
    """Stages of which something was dropped."""
    return {stage["name"] for stage in verify(run)["stages"] if stage["dropped"]}


class TestWhatStays:
    @pytest.mark.parametrize("more", ["", "[condense]\nrows = 20\n"])
    def test_what_places_other_rows_is_not_given_up_where_it_is_needed(self, job: Any, more: str) -> None:
        with pytest.raises(JobError, match=r': with keep = "coordinates" what places'):
            job("coordinates", more=more)

    def test_it_is_enough_for_all_that_is_made_of_a_run(self, job: Any, tmp_path: Path) -> None:
        with blocks_for(N):
            run_job(job("all", "whole.zarr"))
            run_job(job())
        run = tmp_path / "run.zarr"
        assert {"graph", "search", "kernel"} <= dropped(run)
        found = verify(run)
        assert (found["problems"], found["unlisted"], found["finished"]) == ([], [], True)
        assert any(
            "dropped, as [output] keep" in line and "search (neighbors, squared)" in line
            for line in verify_lines(found)
        )
        assert published(run) == published(tmp_path / "whole.zarr")
        for name in ("run.zarr", "whole.zarr"):
            export(tmp_path / name, tmp_path / f"{name}.npy")
            extend(tmp_path / f"{name}-model", tmp_path / "rows.npy", tmp_path / f"{name}-new.zarr")
        for end in (".npy", "-new.zarr"):
            paths = [tmp_path / f"{name}{end}" for name in ("run.zarr", "whole.zarr")]
            one, other = (np.load(path) if end == ".npy" else read_array(path) for path in paths)
            np.testing.assert_array_equal(one, other)
        write_report(run, tmp_path / "report.html")
        view_run(run, tmp_path / "view")
        assert (tmp_path / "report.html").stat().st_size > 10_000
        assert (tmp_path / "view" / "index.html").exists()
        assert is_dataset(Run(run).root)

    def test_a_finished_run_drops_what_it_kept_and_makes_it_anew(self, job: Any, tmp_path: Path) -> None:
        run = tmp_path / "run.zarr"
        run_job(job("all"))
        before = published(run)
        assert run_job(job())["unchanged"]
        assert {"graph", "search", "kernel"} <= dropped(run)
        assert is_dataset(Run(run).root)
        assert run_job(job())["unchanged"]
        assert not run_job(job("all"))["unchanged"]
        assert dropped(run) == set()
        assert published(run) == before
        assert run_job(job("all"))["unchanged"]

    def test_another_parameter_makes_anew_what_it_reads(self, job: Any, tmp_path: Path) -> None:
        run_job(job())
        run_job(job(t=2.0))
        run_job(job("all", "whole.zarr", t=2.0))
        assert published(tmp_path / "run.zarr") == published(tmp_path / "whole.zarr")
        assert {"graph", "search", "kernel"} <= dropped(tmp_path / "run.zarr")


def space(folder: Path) -> int:
    """Bytes of the files of arrays and exchanges, which come and go."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            if not name.endswith((".json", ".jsonl")):
                with suppress(FileNotFoundError):
                    total += (Path(place) / name).stat().st_size
    return total


@contextmanager
def watched(folder: Path, most: list[int]) -> Iterator[None]:
    """Look at the space all the time."""
    ended = Event()

    def look() -> None:
        while not ended.is_set():
            most[0] = max(most[0], space(folder))

    thread = Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def figures(job: Any, tmp_path: Path, keep: str) -> tuple[int, int]:
    """Planned and measured space of a job."""
    asked, most = job(keep, f"{keep}.zarr"), [0]
    planned = plan_job(asked).disk_peak
    with watched(tmp_path / f"{keep}.zarr", most):
        run_job(asked)
    return planned, most[0]


def test_less_is_planned_and_less_is_there(job: Any, tmp_path: Path) -> None:
    with blocks_for(N):
        whole, less = (figures(job, tmp_path, keep) for keep in ("all", "map"))
    assert less[0] < whole[0]
    assert 0 < less[1] < whole[1]
