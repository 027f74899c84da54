"""Sweeps: shared stages once, the same bytes as separate runs, refusals as rows, and going on."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bigembed.cli import app
from bigembed.errors import ExistingOutputError, InputError, InterruptedRun, JobError
from bigembed.jobs.parameters import points_of
from bigembed.jobs.report.lines import sweep_lines
from bigembed.jobs.run import plan_job, run_job
from bigembed.jobs.spec import parse_job
from bigembed.jobs.sweep.run import parse_values, sweep, varied
from bigembed.jobs.watching import RunOptions
from bigembed.store.arrays import read_array
from tests.view_folder import Folder

METHOD = {"name": "diffusion_map", "n_components": 2, "n_neighbors": 8}


@pytest.fixture
def rows(tmp_path):
    values = np.random.default_rng(0).normal(size=(300, 4)) * [1.2, 1, 0.2, 0.2]  # two coordinates show them
    np.save(tmp_path / "x.npy", values)
    return values


@pytest.fixture
def asked(tmp_path, rows):
    def make(output="sweep.zarr", fits=METHOD, **values):
        tables = {"input": {"path": "x.npy"}, "method": fits, "output": {"path": output}}
        return parse_job(tables | ({"sweep": values} if values else {}), tmp_path / "job.toml")

    return make


def without_times(row):
    return {key: value for key, value in row.items() if key not in ("stages_computed", "seconds")}


def test_shared_stages_are_computed_once_and_results_are_those_of_separate_runs(asked, tmp_path):
    told = []
    options = RunOptions(lambda event: told.append((event.kind, event.stage)))
    job = asked(n_neighbors=[8, 12], alpha=[0.0, 1.0], points=[{"method": "pca"}])
    found = sweep(job, options)
    done = [stage.partition(" ")[0] for kind, stage in told if kind == "done" and stage != "page"]
    names = ("survey", "order", "graph", "kernel", "solve", "judgement", "quality")
    assert [done.count(name) for name in names] == [1, 1, 2, 4, 5, 5, 0]
    assert ("reused", "graph [diffusion_map, n_neighbors=8, alpha=0.0]") in told
    assert (found["points"], found["stages"], found["refused"]) == (5, len(done), [])
    for number in (3, 4):
        row, point = found["rows"][number], points_of(job)[number]
        alone = run_job(asked(f"run{number}.zarr", {"name": point.method, **point.parameters}))
        expected = read_array(tmp_path / f"run{number}.zarr/stages/coordinates/embedding")
        assert read_array(row["coordinates"]).tobytes() == expected.tobytes()
        if point.method != "pca":
            assert row["recall.recall"] == alone["certificate"]["recall"]["recall"]
            assert row["trustworthiness"] == alone["certificate"]["judgement"]["map"]["trustworthiness"]["value"]
            texts = [text for texts in alone["certificate"]["warnings"].values() for text in texts]
            assert row["warnings"] == " | ".join(texts)
    assert all(0.9 < row["trustworthiness"] <= 1 for row in found["rows"])
    assert len({row["eigenvalue_1"] for row in found["rows"]}) == 5
    with open(tmp_path / "sweep.zarr" / "table.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert [(row["n_neighbors"], row["alpha"]) for row in table][:3] == [("8", "0.0"), ("8", "1.0"), ("12", "0.0")]
    assert table[4]["alpha"] == ""
    assert float(table[3]["eigenvalue_1"]) == found["rows"][3]["eigenvalue_1"]
    assert json.loads((tmp_path / "sweep.zarr" / "table.json").read_text()) == found["rows"]
    page = (tmp_path / "sweep.zarr" / "maps.html").read_text()
    assert page.count("<img ") == 5
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert "<h3>diffusion_map, n_neighbors=12, alpha=1.0</h3>" in page


def test_the_page_links_to_the_pages_of_every_row(asked, rows, tmp_path):
    holed = rows.copy()
    holed[[3, 50], 1] = np.nan
    np.save(tmp_path / "holes.npy", holed)
    np.save(tmp_path / "names.npy", np.array([f"r{number}" for number in range(300)]))
    tables = {
        "input": {"path": "holes.npy", "ids": "names.npy"}, "steps": [{"name": "missing", "action": "drop"}],
        "method": METHOD, "output": {"path": "sweep.zarr", "view": "views"},
        "sweep": {"alpha": [0.0, 1.0], "points": [{"n_neighbors": 400}, {"method": "pca"}]},
    }  # fmt: skip
    job = parse_job(tables, tmp_path / "job.toml")
    (tmp_path / "views/pca").mkdir(parents=True)
    (tmp_path / "views/pca/thesis.tex").write_text("mine")
    with pytest.raises(ExistingOutputError, match="pca"):
        sweep(job)
    assert not (tmp_path / "sweep.zarr").exists()
    (tmp_path / "views/pca/thesis.tex").unlink()
    found = sweep(job)
    page = (tmp_path / "sweep.zarr" / "maps.html").read_text()
    links = re.findall('<a href="([^"]+)">Every row', page)
    assert links == [
        f"../views/{name}/index.html" for name in ("diffusion_map-alpha=0.0", "diffusion_map-alpha=1.0", "pca")
    ]
    assert any(found["view"] in line for line in sweep_lines(found))
    for row, link in zip([one for one in found["rows"] if not one["error"]], links, strict=True):
        folder = Folder((tmp_path / "sweep.zarr" / link).parent.resolve())
        leaf, points = folder.leaf(""), read_array(row["coordinates"])
        assert len(leaf["rows"]) == 298
        assert np.allclose(leaf["points"], points[leaf["rows"]], atol=1e-3 * np.ptp(points))
        assert [leaf["ids"][place] for place in np.argsort(leaf["rows"])][3] == "r4"
        assert folder.about["title"].endswith(row["point"])
    assert {"view [diffusion_map, alpha=0.0]", "view [pca]"} <= {name for name, _ in plan_job(job).stages}


def test_a_second_start_computes_only_what_is_new(asked):
    first = sweep(asked(alpha=[0.0, 1.0]))
    again = sweep(asked(alpha=[0.0, 1.0]))
    assert (first["stages"] > 0, again["stages"]) == (True, 0)
    more = sweep(asked(alpha=[0.0, 0.5]))  # one value less, another more
    assert 0 < more["stages"] < first["stages"]
    assert [row["stages_computed"] for row in more["rows"]] == [0, more["stages"]]
    assert without_times(more["rows"][0]) == without_times(first["rows"][0])
    assert sweep(asked(alpha=[1.0]))["stages"] == 0


def test_a_stopped_sweep_goes_on(asked):
    def stop(event):
        if event.kind == "start" and event.stage == "solve [alpha=1.0]":
            raise InterruptedRun("stopped")

    with pytest.raises(InterruptedRun):
        sweep(asked(alpha=[0.0, 1.0]), RunOptions(stop))
    found = sweep(asked(alpha=[0.0, 1.0]))
    assert found["rows"][0]["stages_computed"] == 0
    assert 0 < found["rows"][1]["stages_computed"] < found["rows"][1]["stages"]


def test_what_the_data_refuse_is_a_row_and_the_others_go_on(asked, tmp_path):
    found = sweep(asked(n_neighbors=[300, 8]))
    assert [bool(row["error"]) for row in found["rows"]] == [True, False]
    assert "n_neighbors=300" in found["refused"][0]
    page = (tmp_path / "sweep.zarr" / "maps.html").read_text()
    assert "Refused or failed" in page
    assert page.count("<img ") == 1
    with pytest.raises(InputError, match="every point was refused"):
        sweep(asked(n_neighbors=[300, 400], output="none.zarr"))
    assert not (tmp_path / "none.zarr").exists()


def test_the_plan_counts_each_stage_once(asked, tmp_path):
    plan = plan_job(asked(alpha=[0.0, 1.0], n_neighbors=[8, 300]))
    names = [name for name, _ in plan.stages]
    assert (names.count("survey"), sum(name.startswith("solve") for name in names)) == (1, 2)
    assert len(plan.notes) == 2
    assert plan.published == ()
    assert not (tmp_path / "sweep.zarr").exists()
    alone = plan_job(asked())
    assert alone.seconds < plan.seconds < 2 * alone.seconds
    sweep(asked(alpha=[0.0]))
    assert {"survey", "graph", "solve [alpha=0.0]"} <= {*plan_job(asked(alpha=[0.0, 1.0])).published}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"n_neighbours": [3]}, r"\[sweep\] 'n_neighbours': unknown; did you mean 'n_neighbors'"),
        ({"alpha": ["much"]}, r"\[sweep\] alpha: input should be a valid number"),
        ({"alpha": 0.5}, r"\[sweep\] alpha: a list of values"),
        ({"alpha": []}, r"\[sweep\] alpha: a list of values"),
        ({"alpha": [0, 0.0]}, r"alpha=0.0: the same as alpha=0"),
        ({"n_neighbors": [-3]}, r"n_neighbors=-3: .*n_neighbors"),
        ({"method": ["pca", "isomapp"]}, r"unknown method 'isomapp'; did you mean 'isomap'"),
        ({"points": [{"method": [1]}]}, r"\[sweep.points 1\] method: unknown"),
        ({"points": []}, r"\[sweep\] is empty"),
        ({"alpha": [i / 7000 for i in range(1001)]}, "gives 1,001 points; at most 1,000"),
    ],
)  # fmt: skip
def test_wrong_values(asked, tmp_path, values, said):
    with pytest.raises(JobError, match=said):
        asked(**values)


def test_ranges_are_those_of_the_points(asked):
    """What a point replaces, or makes possible, is not refused for the value alone under [method]."""
    points = [{"spread": 3.0}, {"spread": 4.0}]
    found = points_of(asked(fits={"name": "umap", "min_dist": 2.0}, points=points))
    assert [point.parameters for point in found] == [{"min_dist": 2.0, **point} for point in points]
    with pytest.raises(JobError) as caught:
        asked(fits={"name": "umap", "min_dist": 2.0}, points=[{"spread": 1.0}])
    assert str(caught.value).count("min_dist=2.0") == 1
    assert "[sweep.points 1] spread=1.0: " in str(caught.value)
    with pytest.raises(JobError, match=r"\[method\] .*min_dist=2.0"):
        asked(fits={"name": "umap", "min_dist": 2.0})


def test_everything_that_is_wrong_is_listed_at_once(tmp_path):
    tables = {
        "input": {"path": "x.npy", "weights": "w.npy"},
        "method": {"name": "diffusion_map", "alfa": 1},
        "output": {"path": "sweep.zarr", "picture": "map.png"},
        "sweep": {"alpha": ["much"], "points": [{"method": "linear_discriminant"}]},
    }
    with pytest.raises(JobError) as caught:
        parse_job(tables, tmp_path / "job.toml")
    for said in ("[method] 'alfa'", "[sweep] alpha", "[output] picture: a sweep writes"):
        assert said in str(caught.value)


def test_values_of_the_command_line(asked, tmp_path):
    job = varied(asked(alpha=[0.0], n_neighbors=[5]), ["alpha=0.5,1"])
    assert [point.label for point in points_of(job)] == ["alpha=0.5, n_neighbors=5", "alpha=1, n_neighbors=5"]
    for text in ("alpha", "alpha=", "=3"):
        with pytest.raises(JobError, match="NAME=VALUE"):
            parse_values([text])
    with pytest.raises(JobError, match="each name once"):
        parse_values(["a=1", "a=2"])
    (tmp_path / "job.toml").write_text('[input]\npath = "x.npy"\n[method]\nname = "pca"\n[output]\npath = "out.zarr"\n')
    done = CliRunner().invoke(app, ["sweep", str(tmp_path / "job.toml"), "--vary", "n_components=1,9"])
    assert done.exit_code == 1
    assert "n_components=9" in done.output
    assert Path(tmp_path / "out.zarr" / "maps.html").exists()


@pytest.mark.slow
def test_steps_are_fitted_once_for_all_points(tmp_path, rows):
    """The points of a sweep with steps are the runs of jobs with the same steps, whose rows may have holes."""
    holes = np.where(np.random.default_rng(1).random(rows.shape) < 0.01, np.nan, rows)
    np.save(tmp_path / "x.npy", holes)
    steps = [{"name": "missing"}, {"name": "standardize"}, {"name": "pca", "n_components": 3}]
    tables = {"input": {"path": "x.npy"}, "steps": steps, "method": METHOD}

    def job(output, **more):
        return parse_job(tables | {"output": {"path": output}} | more, tmp_path / "job.toml")

    asked = job("sweep.zarr", sweep={"alpha": [0.0, 1.0], "points": [{"method": "pca"}]})
    plan = [name for name, _ in plan_job(asked).stages]
    assert [name for name in plan if name.startswith("step")] == [
        "step1-missing-rows", "step2-standardize-moments", "step3-pca-moments", "step3-pca-solve"
    ]  # fmt: skip
    told = []
    found = sweep(asked, RunOptions(lambda event: told.append((event.kind, event.stage))))
    assert [told.count(("done", name)) for name in (*plan[:4], "survey", "graph")] == [1] * 6
    for row, point in list(zip(found["rows"], points_of(asked), strict=True))[1:]:
        run_job(job(f"{row['point']}.zarr", method={"name": point.method, **point.parameters}))
        expected = read_array(tmp_path / f"{row['point']}.zarr/stages/coordinates/embedding")
        assert read_array(row["coordinates"]).tobytes() == expected.tobytes()
        assert "were left out" in row["steps.1 missing"]
    assert len(expected) == (~np.isnan(holes).any(axis=1)).sum()
    again = sweep(asked, RunOptions(lambda event: told.append((event.kind, event.stage))))
    assert (again["stages"], told.count(("reused", "step2-standardize-moments"))) == (0, 1)
    assert set(plan) - {"page"} <= set(plan_job(asked).published)
    tables["steps"] = [{"name": "missing"}, {"name": "robust_standardize"}]
    assert sweep(job("sweep.zarr", sweep={"alpha": [0.0]}))["stages"] > 0
