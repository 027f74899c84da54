"""Functions that a file names are called only if the reader allows them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import bigembed as be
from bigembed.errors import InputError, JobError
from bigembed.jobs.extend import extend
from bigembed.jobs.growth.refresh import refresh
from bigembed.jobs.report.page import write_report
from bigembed.jobs.run import run_job
from bigembed.jobs.spec import parse_job, read_job
from bigembed.jobs.sweep.run import sweep, varied
from bigembed.rows.formats.registry import ingest
from bigembed.runtime.parameters import allowed_functions as allowed
from bigembed.runtime.parameters import uncalled
from tests.unit.block_functions import manhattan

NAME = "tests.unit.block_functions:manhattan"
MODULE = "tests.unit.block_functions"
ROWS = np.random.default_rng(0).normal(size=(40, 3))
PROOF = "import pathlib\npathlib.Path(__file__).with_name('executed').touch()\ndef kernel(a, b):\n    return a @ b.T\n"


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module that leaves a file if it is imported; it is the working folder, and on the path."""
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "stranger_kernel.py").write_text(PROOF)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    np.save(folder / "rows.npy", ROWS)
    yield folder
    sys.modules.pop("stranger_kernel", None)


def job_file(folder: Path, method: str = "kernel_pca", **keys: str) -> Path:
    lines = "".join(f'{key} = "{value}"\n' for key, value in keys.items())
    text = f'[input]\npath = "rows.npy"\n[method]\nname = "{method}"\n{lines}[output]\npath = "run.zarr"\n'
    (folder / "job.toml").write_text(text + 'model = "model.zarr"\n')
    return folder / "job.toml"


@pytest.mark.parametrize(
    ("method", "key"), [("kernel_pca", "kernel"), ("landmark_mds", "metric"), ("classical_mds", "metric"),
                        ("landmark_diffusion_map", "kernel")]
)  # fmt: skip
@pytest.mark.parametrize("name", ["stranger_kernel:kernel", "cProfile:run", "os:system"])
def test_a_job_file_executes_nothing(stranger: Path, method: str, key: str, name: str) -> None:
    file = job_file(stranger, method, **{key: name})
    with pytest.raises(JobError, match=rf"{key}: '{name}' names a function.*--allow-functions"):
        read_job(file)
    with pytest.raises(JobError, match="--allow-functions"):
        read_job(file, ["somebody", "cProfiler", "stranger_kernel.below", "o"])
    assert not (stranger / "executed").exists()


def test_a_sweep_executes_nothing_that_was_not_allowed(stranger: Path) -> None:
    job = varied(read_job(job_file(stranger, kernel="rbf")), ["kernel=rbf,stranger_kernel:kernel"])
    with pytest.raises(JobError, match="--allow-functions"):
        sweep(job)
    assert not (stranger / "executed").exists()


def test_a_saved_model_executes_nothing(stranger: Path) -> None:
    be.KernelPCA(2, kernel="stranger_kernel:kernel").fit(ROWS).save("model.zarr")
    (stranger / "executed").unlink()
    del sys.modules["stranger_kernel"]
    for refused in (lambda: be.load("model.zarr"), lambda: extend("model.zarr", "rows.npy", "out.zarr")):
        with pytest.raises(InputError, match=r"'stranger_kernel:kernel' names .*functions=.*--allow-functions"):
            refused()
    with pytest.raises(InputError, match="names a function"):
        be.load("model.zarr", functions={"another:kernel": manhattan})
    assert not (stranger / "executed").exists()
    given = be.load("model.zarr", functions={"stranger_kernel:kernel": lambda a, b: a @ b.T})
    assert not (stranger / "executed").exists()
    trusted = be.load("model.zarr", functions=["stranger_kernel"])
    assert np.array_equal(trusted.transform(ROWS), given.transform(ROWS))
    extend("model.zarr", "rows.npy", "out.zarr", functions=["stranger_kernel:kernel"])
    assert (stranger / "executed").exists()


def test_a_report_of_a_run_executes_nothing(stranger: Path) -> None:
    run_job(read_job(job_file(stranger, kernel="stranger_kernel:kernel"), ["stranger_kernel"]))
    (stranger / "executed").unlink()
    del sys.modules["stranger_kernel"]
    write_report("run.zarr", "page.html")
    assert "stranger_kernel:kernel" in Path("page.html").read_text()
    assert not (stranger / "executed").exists()


def test_a_growing_embedding_calls_what_its_job_allows(stranger: Path) -> None:
    ingest("rows.npy", "rows.zarr")
    tables = {
        "input": {"path": "rows.zarr"},
        "method": {"name": "kernel_pca", "kernel": "stranger_kernel:kernel", "n_components": 2},
        "output": {"path": "growing.zarr"},
    }
    with pytest.raises(JobError, match="--allow-functions"):
        parse_job(tables, stranger / "job.toml")
    job = parse_job(tables, stranger / "job.toml", ["stranger_kernel"])
    assert refresh(job)["fitted"] == len(ROWS)


def test_of_a_trusted_module_only_what_is_defined_in_it() -> None:
    taken, problems = allowed({"metric": NAME, "k": 3}, [MODULE], "")
    assert (taken, problems) == ({"metric": NAME, "k": 3}, [])
    assert allowed({"metric": NAME}, MODULE, "") == ({"metric": NAME}, [])
    assert allowed({"metric": NAME}, ["tests.unit"], "")[1] == []
    assert allowed({"metric": NAME}, {NAME: manhattan}, "") == ({"metric": manhattan}, [])
    (problem,) = allowed({"metric": "subprocess:os.system"}, ["subprocess"], "")[1]
    assert "not defined there but in posix" in problem
    assert allowed({"metric": "numpy:dot"}, ["numpy:dot"], "")[1] == []
    assert not allowed({"metric": "euclidean"}, (), "")[1]


def test_a_sealed_name_is_not_called() -> None:
    with pytest.raises(InputError, match="not executed"):
        uncalled({"kernel": NAME})["kernel"](ROWS, ROWS)
    assert uncalled({"kernel": "rbf"}) == {"kernel": "rbf"}


def test_the_command_line_names_the_option_and_takes_it(stranger: Path) -> None:
    from typer.testing import CliRunner

    from bigembed.cli import app

    file = str(job_file(stranger, kernel="stranger_kernel:kernel"))
    for command in (["plan", file], ["run", file]):
        found = CliRunner().invoke(app, command)
        assert found.exit_code == 2
        assert "--allow-functions" in found.output
    assert not (stranger / "executed").exists()
    assert CliRunner().invoke(app, ["run", file, "--allow-functions", "stranger_kernel"]).exit_code == 0
    extend_it = ["extend", "model.zarr", "rows.npy", "out.zarr"]
    assert CliRunner().invoke(app, extend_it).exit_code == 2
    assert CliRunner().invoke(app, [*extend_it, "--allow-functions", "stranger_kernel:kernel"]).exit_code == 0
