"""Jobs that keep only what their map needs: what stays is enough, and the plan counts what is there at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigembed.errors import JobError
from bigembed.jobs.extend import extend
from bigembed.jobs.report.lines import verify_lines
from bigembed.jobs.report.page import write_report
from bigembed.jobs.run import plan_job, run_job
from bigembed.jobs.scene import export, view_run
from bigembed.jobs.session import prepare
from bigembed.jobs.verify import verify
from bigembed.stages.runs import Run, opens
from bigembed.store.arrays import read_array
from bigembed.store.attributes import is_dataset
from tests.blocks import blocks_for
from tests.digests import published
from tests.job_files import job_in

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
N = 600


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Any]:
    """Write a job; its rows lie beside it."""
    rows = np.random.default_rng(0).normal(size=(N, 3)) * [4, 2, 1]
    np.save(tmp_path / "rows.npy", rows.astype(np.float32))

    def write(keep: str = "map", path: str = "run.zarr", more: str = "") -> Any:
        method = 'name = "diffusion_map"\nn_components = 2\nn_neighbors = 8'
        model = "" if "[condense]" in more else f'model = "{path}-model"\n'
        return job_in(tmp_path, method, output=f'keep = "{keep}"\n{model}{more}', path=path)

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

    def test_lengths_of_edges_are_not_kept_for_rows_that_repeat_others(self, job: Any, tmp_path: Path) -> None:
        """They are the most of a graph, and are gone before the solve, whose vectors need the most of the disk."""
        rows = np.load(tmp_path / "rows.npy")
        rows[400:500] = rows[:100]
        np.save(tmp_path / "rows.npy", rows)
        for keep in ("all", "map"):
            run_job(job(keep, f"{keep}.zarr"))
        assert Run(tmp_path / "map.zarr").results("coordinates")["repeated_rows"] == 100
        assert published(tmp_path / "map.zarr") == published(tmp_path / "all.zarr")
        stages = {stage.name: stage for stage in prepare(job()).stages}
        assert opens(stages["kernel"], "graph", ["squared"], None)  # (a control)
        graph = Run(tmp_path / "all.zarr").manifest("graph")
        assert not opens(stages["coordinates"], "graph", ["squared", "indices"], graph)
        earlier = replace(graph, files={name: size for name, size in graph.files.items() if "repeats" not in name})
        assert opens(stages["coordinates"], "graph", ["squared"], earlier)

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


def test_less_is_planned(job: Any) -> None:
    """That it goes as soon as nothing is left to read it: ``tests/unit/test_stages.py``."""
    with blocks_for(N):
        assert plan_job(job()).disk_peak < plan_job(job("all", "whole.zarr")).disk_peak
