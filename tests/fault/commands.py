"""Every command that writes, in small: what it is given, how it is called, and what somebody who reads then sees."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

import bigembed as be
from bigembed import viewer as scene
from bigembed.jobs import deletion
from bigembed.jobs.extend import extend as extend_model
from bigembed.jobs.growth import open_growth
from bigembed.jobs.growth.audit import audit
from bigembed.jobs.growth.extend import extend
from bigembed.jobs.growth.refresh import refresh
from bigembed.jobs.report.page import write_report
from bigembed.jobs.run import plan_job, run_job
from bigembed.jobs.scene import export
from bigembed.jobs.spec import parse_job, read_job
from bigembed.jobs.sweep.run import sweep, varied
from bigembed.jobs.verify import certify_paths
from bigembed.rows.appending import append_rows
from bigembed.rows.formats import ingest
from bigembed.rows.growing import deleted_rows
from bigembed.stages.runs import Run
from bigembed.store import stored
from bigembed.store.arrays import read_array, write_array
from bigembed.store.superseded import superseded
from bigembed.viewer import sorting, tiles
from tests.fault.night import write_job

ABSENT = "absent"
Seen = dict[str, str]


@dataclass(frozen=True)
class Command:
    """``prepare`` makes what ``run`` is given in a folder; ``look`` tells what is there by name, or :data:`ABSENT`."""

    prepare: Callable[[Path], object]
    run: Callable[[Path], object]
    look: Callable[[Path], Seen]
    once: bool = False
    """Whether it refuses outputs that are there: so does the same call after the last step."""


def rows_of(n: int) -> np.ndarray:
    """Rows that a plane shows."""
    return (np.random.default_rng(0).normal(size=(n, 4)) * [9, 5, 1, 1]).astype("f4")


def write_csv(path: Path, n: int) -> None:
    """Rows with an id each."""
    lines = [",".join([f"row{i}", *map(str, row)]) for i, row in enumerate(rows_of(n).tolist())]
    path.write_text("\n".join(["id,a,b,c,d", *lines]) + "\n")


def _file(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest() if path.is_file() else ABSENT


def _there(path: Path) -> str:
    return "there" if path.is_file() and path.stat().st_size else ABSENT


def _figures(page: Path) -> str:
    """How much of the variance the coordinates keep, as a report says."""
    return repr(re.findall(r"\d coordinates keep [\d.]+ %", page.read_text())) if page.is_file() else ABSENT


def _array(path: Path) -> str:
    return sha256(read_array(path).tobytes()).hexdigest() if path.exists() else ABSENT


def _model(path: Path) -> str:
    return sha256(be.load(path).transform(rows_of(9)).tobytes()).hexdigest() if path.exists() else ABSENT


def _run(path: Path) -> str:
    if not (path / "manifest" / "coordinates.json").exists() or superseded(path):
        return ABSENT
    run = Run(path)
    return sha256(np.asarray(run.array("coordinates", "embedding")).tobytes()).hexdigest()


def the_job(folder: Path, source: str = "rows.csv", components: int = 2, **outputs: str):  # type: ignore[no-untyped-def]
    """A job of the folder."""
    given = {"path": source} | ({"ids": "id"} if source.endswith(".csv") else {})
    tables = {
        "input": given,
        "method": {"name": "pca", "n_components": components},
        "output": {"path": "run.zarr", **outputs},
    }
    return parse_job(tables, folder / "job.toml")


def _fitted(folder: Path, **outputs: str) -> None:
    write_csv(folder / "rows.csv", 60)
    run_job(the_job(folder, **outputs))


OUTPUTS = {"model": "model.zarr", "table": "table.csv", "picture": "map.png", "report": "page.html", "view": "every"}


def _job_seen(folder: Path) -> Seen:
    return {
        "run": _run(folder / "run.zarr"),
        "model": _model(folder / "model.zarr"),
        "table": _file(folder / "table.csv"),
        "picture": _file(folder / "map.png"),
        "report": _figures(folder / "page.html"),
        **_view_seen(folder),
    }


def _new_rows(folder: Path) -> None:
    _fitted(folder, model="model.zarr")
    write_csv(folder / "new.csv", 30)


def _extend_model(folder: Path) -> None:
    given = {"aligned": {"ids": "id"}, "results": folder / "table.csv"}
    extend_model(folder / "model.zarr", folder / "new.csv", folder / "out.zarr", **given)


def _annotated(folder: Path) -> None:
    import anndata

    _fitted(folder)
    cells = anndata.AnnData(rows_of(60))
    cells.obs_names = [f"row{i}" for i in range(60)]
    cells.write_zarr(folder / "cells.zarr")


def _obsm(folder: Path) -> Seen:
    import anndata

    found = anndata.io.read_zarr(folder / "cells.zarr").obsm
    return {"obsm": sha256(np.asarray(found["X_pca"]).tobytes()).hexdigest() if "X_pca" in found else ABSENT}


def _store(folder: Path) -> None:
    write_array(folder / "points.zarr", rows_of(90)[:60], chunk_rows=16)


def _named_store(folder: Path) -> None:
    write_csv(folder / "rows.csv", 60)
    ingest(folder / "rows.csv", folder / "points.zarr", None, {"ids": "id"})


def _deleted(folder: Path) -> None:
    _named_store(folder)
    deletion.delete(folder / "points.zarr", ["row3", "row50"])


def _erased(folder: Path) -> Seen:
    """Rows and ids, each as it was or erased; all others must be as they were."""
    rows, ids = read_array(folder / "points.zarr"), read_array(folder / "points-ids.zarr")
    left = np.delete(np.arange(60), [3, 50])
    assert np.allclose(rows[left], rows_of(60)[left])
    assert ids[left].tolist() == [f"row{i}" for i in left]
    return {"rows": repr(rows[[3, 50]].tolist()), "ids": repr(ids[[3, 50]].tolist())}


def _grown(folder: Path, more: int = 30, method: str = "pca", parameters: str = "") -> None:
    _store(folder)
    refresh(read_job(write_job(folder, method, parameters, ".").rename(folder / "grow.toml")))
    append_rows(folder / "points.zarr", rows_of(60 + more)[60:])


def _growth_seen(folder: Path) -> Seen:
    version = open_growth(folder / "growing.zarr").current
    assert version is not None
    ranges = [(part.start, part.stop, part.how) for part in version.ranges]
    assert [part[0] for part in ranges] == [0, *(part[1] for part in ranges[:-1])]
    coordinates = np.asarray(version.coordinates)
    assert ranges[-1][1] == len(coordinates) == version.covered
    assert len({part.model for part in version.ranges}) == 1
    return {"growth": sha256(coordinates.tobytes() + repr(ranges).encode()).hexdigest()}


def _save(folder: Path) -> None:
    be.load(folder / "model.zarr").save(folder / "copy.zarr")


def _mapped(folder: Path) -> None:
    """A map with a graph, ids, and a column beside it."""
    for name, values in {"rows": rows_of(600), "height": rows_of(600)[:, 2], "names": np.arange(600)}.items():
        np.save(folder / f"{name}.npy", values)
    method = {"name": "diffusion_map", "n_components": 2, "n_neighbors": 8}
    tables = {"input": {"path": "rows.npy", "ids": "names.npy"}, "method": method, "output": {"path": "run.zarr"}}
    run_job(parse_job(tables, folder / "job.toml"))


def _viewed(folder: Path) -> None:
    _mapped(folder)
    be.view(rows_of(50)[:, :2], folder / "every")


def _view(folder: Path) -> None:
    """With blocks, cells and buckets so small that there are several of each."""
    for module, values in ((scene, {"BLOCK": 150, "SAMPLE": 200}),
                           (sorting, {"BLOCK": 150, "CELL_ROWS": 100, "BUCKET_ROWS": 200}),
                           (tiles, {"LEAF": 64})):  # fmt: skip
        vars(module).update(values)
    be.view(folder / "run.zarr", folder / "every", columns=folder / "height.npy", points=True)


def _view_seen(folder: Path) -> Seen:
    """All of a page but the digest of what it was made from, which has the times of files."""
    home = folder / "every"
    pieces = [path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file() and path.name != "view.json"]
    return {"page": sha256(b"".join(pieces)).hexdigest() if (home / "index.html").is_file() else ABSENT}


def _grown_map(folder: Path) -> None:
    _grown(folder, 30, "diffusion_map", "n_neighbors = 6")


COMMANDS = {
    "run": Command(
        lambda folder: write_csv(folder / "rows.csv", 60), lambda f: run_job(the_job(f, **OUTPUTS)), _job_seen
    ),
    "run with other parameters": Command(
        lambda folder: _fitted(folder, **OUTPUTS), lambda f: run_job(the_job(f, components=3, **OUTPUTS)), _job_seen
    ),
    "run --fresh": Command(
        lambda folder: _fitted(folder, **OUTPUTS), lambda f: run_job(the_job(f, **OUTPUTS), fresh=True), _job_seen
    ),
    "extend --table": Command(
        _new_rows,
        _extend_model,
        lambda f: {
            "coordinates": _array(f / "out.zarr"),
            "table": _file(f / "table.csv"),
            "ids": _ids(f / "out-ids.zarr"),
        },
        once=True,
    ),
    "ingest --ids": Command(
        lambda folder: write_csv(folder / "rows.csv", 60),
        lambda f: ingest(f / "rows.csv", f / "points.zarr", None, {"ids": "id"}),
        lambda f: {"rows": _array(f / "points.zarr"), "ids": _ids(f / "points-ids.zarr")},
        once=True,
    ),
    "export": Command(
        _fitted,
        lambda f: export(f / "run.zarr", f / "table.parquet", overwrite=True),
        lambda f: {"table": _file(f / "table.parquet")},
    ),
    "annotate": Command(_annotated, lambda f: export(f / "run.zarr", f / "cells.zarr"), _obsm, once=True),
    "append": Command(
        _store,
        lambda f: append_rows(f / "points.zarr", rows_of(90)[60:], first=60),
        lambda f: {"rows": _array(f / "points.zarr")},
    ),
    "delete": Command(
        _named_store,
        lambda f: deletion.delete(f / "points.zarr", ["row3", "row50"]),
        lambda f: {"deleted": repr(np.flatnonzero(deleted_rows(f / "points.zarr", 60)).tolist())},
    ),
    "purge": Command(
        _deleted,
        lambda f: deletion.purge(f / "points.zarr"),
        _erased,
    ),
    "refresh": Command(_grown, lambda f: refresh(read_job(f / "grow.toml")), _growth_seen),
    "extend": Command(_grown, lambda f: extend(read_job(f / "grow.toml")), _growth_seen),
    "refresh of a diffusion map": Command(_grown_map, lambda f: refresh(read_job(f / "grow.toml")), _growth_seen),
    "extend of a diffusion map": Command(_grown_map, lambda f: extend(read_job(f / "grow.toml")), _growth_seen),
    "audit": Command(
        lambda folder: _grown(folder, 110),
        lambda f: audit(read_job(f / "grow.toml")),
        lambda f: {"audit": _there(f / "growing.zarr" / "audit.json")},
    ),
    "save": Command(
        lambda folder: _fitted(folder, model="model.zarr"), _save, lambda f: {"model": _model(f / "copy.zarr")}, True
    ),
    "certify --out": Command(
        _fitted,
        lambda f: certify_paths(f / "run-input.zarr", f / "run.zarr", f / "page.html", n_neighbors=5, samples=20),
        lambda f: {"page": _there(f / "page.html")},
    ),
    "report": Command(
        _fitted, lambda f: write_report(f / "run.zarr", f / "page.html"), lambda f: {"page": _there(f / "page.html")}
    ),
    "view": Command(_mapped, _view, _view_seen),
    "view of another map, where one is": Command(_viewed, _view, _view_seen),
    "sweep": Command(
        _store,
        lambda f: sweep(varied(the_job(f, "points.zarr"), ["n_components=1,2"])),
        lambda f: _table(f / "run.zarr" / "table.json"),
    ),
    "plan --calibrate": Command(
        _store, lambda f: plan_job(the_job(f, "points.zarr"), True), lambda f: {"output": _array(f / "run.zarr")}
    ),
}
"""By name, as a user knows them."""


def _ids(path: Path) -> str:
    return sha256(repr(read_array(path).tolist()).encode()).hexdigest() if path.exists() else ABSENT


def _table(path: Path) -> Seen:
    """What a sweep has so far, point by point, without times."""
    rows = json.loads(path.read_text()) if path.exists() else []
    return {f"point {i}": repr(row["eigenvalue_1"]) for i, row in enumerate(rows)} | {
        f"point {i}": ABSENT for i in range(len(rows), 2)
    }


def names(folder: Path) -> set[str]:
    """Every file that is there, but for holds, whose numbers differ, and small files that a kill left half named."""
    found = {file.name for file in stored(folder) if "hold/" not in file.name}
    return {name for name in found if not re.search(r"[.-][0-9a-f]+\.partial$", name)}
