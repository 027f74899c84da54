"""Steps in a job: from a table with holes to coordinates with ids, for new rows, killed and resumed; what is wrong."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

import bigembed as be
from bigembed.errors import JobError
from bigembed.jobs.extend import extend
from bigembed.jobs.run import plan_job, run_job
from bigembed.jobs.spec import read_job
from bigembed.jobs.verify import verify
from bigembed.store.arrays import read_array

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
_RANDOM = np.random.default_rng(5)
ROWS = _RANDOM.normal(size=(400, 4)) * [1, 10, 100, 0.1] + 3
HOLES = np.where(_RANDOM.random(ROWS.shape) < 0.03, np.nan, ROWS)
THERE = ~np.isnan(HOLES).any(axis=1)
STEPS = """
[[steps]]
name = "missing"
[[steps]]
name = "robust_standardize"
[[steps]]
name = "pca"
n_components = 2
"""


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Write a table of the rows and a job on it."""

    def text_of(value: float) -> str:
        return "" if np.isnan(value) else repr(float(value))

    lines = [f"n{number}," + ",".join(map(text_of, row)) for number, row in enumerate(HOLES)]
    (tmp_path / "rows.csv").write_text("name,a,b,c,d\n" + "\n".join(lines) + "\n")

    def job(steps: str = STEPS, output: str = 'table = "map.csv"\nmodel = "model"', name: str = "run.zarr") -> Any:
        method = '[method]\nname = "linearized_diffusion_map"\n'
        text = f'[input]\npath = "rows.csv"\nids = "name"\n{steps}\n{method}[output]\npath = "{name}"\n{output}\n'
        (tmp_path / "job.toml").write_text(text)
        return tmp_path / "job.toml"

    return job


def expected() -> Any:
    steps = [be.RobustScaler(), be.PCA(n_components=2), be.LinearizedDiffusionMap()]
    return be.Pipeline(steps).fit(HOLES[THERE])


def test_from_a_table_with_holes_to_coordinates_with_ids(write: Any, tmp_path: Path) -> None:
    run_job(read_job(write()))
    found = read_array(tmp_path / "run.zarr" / "stages" / "coordinates" / "embedding")
    np.testing.assert_array_equal(found, expected().embedding_)
    with (tmp_path / "map.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [int(line["row"]) for line in table] == np.flatnonzero(THERE).tolist()
    assert [line["id"] for line in table] == [f"n{number}" for number in np.flatnonzero(THERE)]
    assert run_job(read_job(write()))["unchanged"]
    for path in ("run.zarr", "model"):
        assert verify(tmp_path / path)["problems"] == []


def test_new_rows_go_through_the_same_steps(write: Any, tmp_path: Path) -> None:
    run_job(read_job(write()))
    extend(tmp_path / "model", tmp_path / "rows.csv", tmp_path / "new.zarr", aligned={"ids": "name"})
    new = read_array(tmp_path / "new.zarr")
    np.testing.assert_array_equal(np.isnan(new).any(axis=1), ~THERE)
    np.testing.assert_array_equal(new[THERE], expected().transform(HOLES[THERE]))
    np.testing.assert_array_equal(be.load(tmp_path / "model").transform(HOLES), new)


def test_the_plan_has_the_steps_with_their_costs(write: Any) -> None:
    before = plan_job(read_job(write()))
    stages = dict(before.stages)
    assert [name for name in stages if name.startswith("step")] == [
        "step1-missing-rows",
        "step2-robust_standardize-quantiles",
        "step3-pca-moments",
        "step3-pca-solve",
    ]
    assert stages["step2-robust_standardize-quantiles"].passes == 5
    assert all(stages[name].read for name in stages if stages[name].passes)
    run_job(read_job(write()))
    after = plan_job(read_job(write()))
    assert set(dict(after.stages)) - set(after.published) == {"model", "table"}


WRONG = {
    '[[steps]]\nname = "standardise"': "1 unknown step 'standardise'; did you mean 'standardize'",
    '[[steps]]\nname = "missing"\nactoin = "drop"': "1 missing: 'actoin': unknown; did you mean 'action'",
    '[[steps]]\nname = "missing"\nwith = "mode"': "1 missing: with='mode'; allowed",
    '[[steps]]\nname = "missing"\nfill = 3': "1 missing: 'fill': unknown",
    '[[steps]]\nname = "clip"\nlow = 3\nhigh = 1': "1 clip: high=1",
    '[[steps]]\nname = "pca"\nn_components = 0.5': "1 pca: n_components: a whole number",
    "[[steps]]\nhigh = 1": "1 name: must be given",
    "[steps]\nname = 3": "steps must be a list of tables",
    '[[steps]]\nname = "missing"\n[[steps]]\nname = "missing"': "one step at the most",
}


def test_everything_wrong_is_said_at_once(write: Any) -> None:
    for text, message in WRONG.items():
        with pytest.raises(JobError) as error:
            read_job(write(text))
        assert message in str(error.value)
    tables = "\n".join(text for text in WRONG if text.startswith("[["))
    with pytest.raises(JobError) as error:
        read_job(write(tables))
    assert sum(message in str(error.value).replace("\n", "") for message in WRONG.values()) >= 1
    assert str(error.value).count("[[steps]]") >= len(WRONG) - 1


@pytest.mark.parametrize("method", ["linear_discriminant", "umap"])
def test_labels_stay_with_the_rows_that_a_step_leaves(tmp_path: Path, method: str) -> None:
    labels = np.array(["ash", "fir", "oak"])[np.argsort(np.argsort(ROWS[:, 0] + ROWS[:, 1] / 10)) * 3 // len(ROWS)]
    lines = [",".join(["" if np.isnan(v) else repr(float(v)) for v in row]) for row in HOLES]
    rows = "\n".join(f"{line},{label}" for line, label in zip(lines, labels, strict=True))
    (tmp_path / "rows.csv").write_text(f"a,b,c,d,tree\n{rows}\n")
    warm = {}
    for given in ("tree", "none"):
        column = 'labels = "tree"' if given == "tree" else 'columns = ["!tree"]'
        name = method if given == "tree" else "pca"
        text = (
            f'[input]\npath = "rows.csv"\n{column}\n[[steps]]\nname = "missing"\n[method]\nname = "{name}"\n'
            f'n_components = 2\n[output]\npath = "{given}.zarr"\npicture = "{given}.png"\n'
        )
        (tmp_path / "job.toml").write_text(text)
        run_job(read_job(tmp_path / "job.toml"))
        pixels = plt.imread(tmp_path / f"{given}.png")[..., :3].reshape(-1, 3)
        warm[given] = np.mean(pixels[:, 0] > pixels[:, 2] + 0.3)
    assert warm["tree"] > 0.001 > warm["none"] == 0  # (of one class the colour is yellow, without classes all is blue)
    if method != "umap":
        found = read_array(tmp_path / "tree.zarr" / "stages" / "coordinates" / "embedding")
        alone = be.LinearDiscriminantAnalysis(n_components=2).fit(HOLES[THERE], labels[THERE])
        np.testing.assert_allclose(found, alone.embedding_, atol=1e-9)
