"""What is damaged: runs of every method and ingested rows. A target of another kind is a function in ``TARGETS``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import dask.array
import dask.threaded  # noqa: F401
import distributed  # noqa: F401
import numba  # noqa: F401
import numpy as np
import scipy.linalg
import scipy.sparse.csgraph
import scipy.sparse.linalg  # noqa: F401
import threadpoolctl  # noqa: F401
import zarr.codecs  # noqa: F401

import bigembed as be
from bigembed.errors import DamagedError, InterruptedRun
from bigembed.estimator.scikit_learn import coordinate_names
from bigembed.jobs.report import RunSummary
from bigembed.jobs.report.page import write_report
from bigembed.jobs.run import plan_job, run_job
from bigembed.jobs.scene import export
from bigembed.jobs.spec import read_job
from bigembed.jobs.verify import certify_paths, verify
from bigembed.jobs.watching import RunOptions
from bigembed.jobs.watching.status import read_status
from bigembed.maps import REGISTRY
from bigembed.maps import method as class_of
from bigembed.maps.walk import spectral
from bigembed.rows.formats import copying, ingest
from bigembed.rows.opening import open_array
from bigembed.stages.runs import Run
from tests.fault.corruption import Target

SOME = ("pca", "diffusion_map", "isomap", "landmark_mds", "nmf", "kernel_pca")
MORE = {
    "classical_mds": 'metric = "cityblock"',
    "diffusion_map": "n_neighbors = 8",
    "isomap": "n_neighbors = 8\nn_landmarks = 30",
    "landmark_diffusion_map": "n_landmarks = 40",
    "landmark_mds": "n_landmarks = 30",
    "linear_discriminant": "",
}
JOB = """
[input]
path = "rows.npy"
{labels}
[method]
name = "{method}"
n_components = {count}
{more}
[output]
path = "run.zarr"
"""


def all_targets(methods: str = "some") -> list[Target]:
    """Every target; ``methods``: ``"some"`` or ``"all"``."""
    from tests.fault.growing_targets import growing
    from tests.fault.model_targets import models

    return [target for make in (*TARGETS, models, growing) for target in make(methods)]


def runs(methods: str) -> Iterator[Target]:
    """A run of each method."""
    for method in SOME if methods == "some" else sorted(REGISTRY):
        yield run_of(method)


def run_of(method: str) -> Target:
    """A run of a job with this method, and one with fewer coordinates before it."""

    def job(folder: Path, count: int = 2) -> Any:
        labels = 'labels = "labels.npy"' if method == "linear_discriminant" else ""
        text = JOB.format(labels=labels, method=method, count=count, more=MORE.get(method, ""))
        (folder / "job.toml").write_text(text)
        return read_job(folder / "job.toml")

    def older(folder: Path) -> None:
        rows = surface(300)
        np.save(folder / "rows.npy", rows)
        np.save(folder / "labels.npy", np.arange(len(rows)) % 4)
        run_job(job(folder, 1))

    def coordinates(folder: Path) -> str:
        return digest(Run(folder / "run.zarr").array("coordinates", "embedding"))

    def fitted(folder: Path) -> str:
        return digest(np.load(exported(folder)))

    def exported(folder: Path) -> Path:
        export(folder / "run.zarr", folder / "table.npy", overwrite=True)
        return folder / "table.npy"

    def table(folder: Path) -> str:
        export(folder / "run.zarr", folder / "table.csv", overwrite=True)
        names, _, rows = (folder / "table.csv").read_text().partition("\n")  # (without a record no name of a method)
        own = names.replace("coordinate", coordinate_names(class_of(method), 1)[0].removesuffix("0"))
        return own + hashlib.sha256(rows.encode()).hexdigest()

    def opened(folder: Path) -> str:
        return digest(open_array(folder / "run.zarr" / "stages" / "coordinates" / "embedding"))

    def page(folder: Path) -> Any:
        write_report(folder / "run.zarr", folder / "page.html")
        text = (folder / "page.html").read_text()
        if "damaged" in text or "cannot be read" in text or "not there" in text:
            raise DamagedError("said on the page")
        return RunSummary.read(folder / "run.zarr").certificate

    def verified(folder: Path) -> Any:
        found = verify(folder / "run.zarr")
        if found["problems"] or not found["finished"]:
            raise DamagedError("; ".join(found["problems"]) or "unfinished")
        return found["certificate"]

    def status(folder: Path) -> Any:
        if not (said := read_status(folder / "run.zarr")):
            raise DamagedError("no status")
        return said.get("state")

    def planned(folder: Path) -> Any:
        return len(plan_job(job(folder)).stages)

    def certified(folder: Path) -> Any:
        return certify_paths(folder / "rows.npy", folder / "run.zarr", samples=30)[0].figures

    readers = {
        "array": coordinates, "export npy": fitted, "export csv": table, "open_array": opened, "report": page,
        "verify": verified, "status": status, "plan": planned, "certify": certified,
    }  # fmt: skip
    return Target(
        f"run of {method}",
        lambda folder: run_job(job(folder)),
        lambda folder: stored(folder / "run.zarr", folder),
        readers,
        {"run": lambda folder: run_job(job(folder)), "run --fresh": lambda folder: run_job(job(folder), fresh=True)},
        older=older,
        found=lambda file: file.parts[1] in ("stages", "manifest"),
    )


def stopped(methods: str) -> Iterator[Target]:
    """Runs that were stopped inside a stage that goes on from its last step: what it goes on from."""
    yield stopped_run("nmf", "iteration 3")
    yield stopped_run("diffusion_map", "iteration 3")
    yield stopped_run("linearized_diffusion_nmf", "iteration 2")


def stopped_run(method: str, note: str) -> Target:
    """A run of a job with this method, stopped when it says this."""
    whole = run_of(method)

    def make(folder: Path) -> None:
        spectral.DENSE_ROWS = 100  # (of this process: a fork)

        def listen(event: Any) -> None:
            if note in event.message:
                raise InterruptedRun("stopped")

        np.save(folder / "rows.npy", surface(600))
        text = JOB.format(labels="", method=method, count=2, more=MORE.get(method, ""))
        (folder / "job.toml").write_text(text)
        with suppress(InterruptedRun):
            run_job(read_job(folder / "job.toml"), RunOptions(observer=listen))
        assert list((folder / "run.zarr" / "exchange").iterdir())

    def mended(mend: Callable[[Path], Any], folder: Path) -> Any:
        spectral.DENSE_ROWS = 100
        return mend(folder)

    return Target(
        f"stopped run of {method}",
        make,
        lambda folder: [*stored(folder / "run.zarr" / "exchange", folder), Path("run.zarr/job.json")],
        {name: whole.readers[name] for name in ("status", "plan")},
        {name: partial(mended, mend) for name, mend in whole.mends.items()},
        {name: whole.readers[name] for name in ("array", "verify", "status")},
    )


def ingested(methods: str) -> Iterator[Target]:
    """Rows that were ingested with ids."""

    def older(folder: Path) -> None:
        copying.block_rows = lambda *_: 100  # type: ignore[assignment]
        rows = surface(300)
        np.save(folder / "a.npy", rows + 1)
        np.save(folder / "ids.npy", np.arange(len(rows)) + 7)
        ingest(folder / "a.npy", folder / "rows.zarr", aligned={"ids": str(folder / "ids.npy")})

    def make(folder: Path) -> None:
        copying.block_rows = lambda *_: 100  # type: ignore[assignment]  # (of this process, a fork: four chunks)
        rows = surface(400)
        for name in ("rows.zarr", "rows-ids.zarr"):
            remove_tree(folder / name)
        np.save(folder / "a.npy", rows)
        np.save(folder / "ids.npy", np.arange(len(rows)))
        ingest(folder / "a.npy", folder / "rows.zarr", aligned={"ids": str(folder / "ids.npy")})

    def fitted(folder: Path) -> str:
        return digest(be.PCA(2).fit(folder / "rows.zarr").embedding_)

    def read(folder: Path) -> str:
        return digest(open_array(folder / "rows.zarr"))

    def table(folder: Path) -> str:
        export(folder / "rows.zarr", folder / "table.csv", overwrite=True)
        return hashlib.sha256((folder / "table.csv").read_bytes()).hexdigest()

    def job(folder: Path) -> Any:
        text = JOB.format(labels="", method="pca", count=2, more="").replace("rows.npy", "rows.zarr")
        (folder / "job.toml").write_text(text)
        return read_job(folder / "job.toml")

    def run(folder: Path) -> str:
        run_job(job(folder))
        return digest(Run(folder / "run.zarr").array("coordinates", "embedding"))

    def planned(folder: Path) -> Any:
        return len(plan_job(job(folder)).stages)

    def certified(folder: Path) -> Any:
        return certify_paths(folder / "rows.zarr", folder / "rows.zarr", samples=30)[0].figures

    readers = {"open_array": read, "fit": fitted, "export csv": table, "run": run, "plan": planned}
    yield Target(
        "ingested rows",
        make,
        lambda folder: [file for file in stored(folder, folder) if file.parts[0] in ("rows.zarr", "rows-ids.zarr")],
        readers | {"certify": certified},
        older=older,
    )


TARGETS: list[Callable[[str], Iterator[Target]]] = [runs, stopped, ingested]


def surface(n: int) -> np.ndarray:
    """Rows on a curved surface, none negative."""
    generator = np.random.default_rng(0)
    u, v = generator.uniform(0, 2, size=(2, n))
    return (np.c_[np.cos(u) + 1, np.sin(u), v, u * v, np.cos(v) + 1] + 0.02 * generator.uniform(size=(n, 5))).astype(
        "f4"
    )


def digest(array: Any) -> str:
    """Of shape, type and bytes."""
    values = np.asarray(array.compute(scheduler="synchronous") if hasattr(array, "compute") else array)
    return hashlib.sha256(f"{values.shape} {values.dtype}".encode() + values.tobytes()).hexdigest()


def stored(place: Path, folder: Path) -> Sequence[Path]:
    """Every file at a place but the log and who held it, from the folder on."""
    files = sorted(file for file in place.rglob("*") if file.is_file())
    names = [file.relative_to(folder) for file in files]
    return [name for name in names if "hold" not in name.parts and name.suffix != ".log" and name.name != "log.jsonl"]


def remove_tree(path: Path) -> None:
    """Delete a folder if it is there."""
    from bigembed.store import remove

    remove(path)
