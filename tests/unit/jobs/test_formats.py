"""Jobs on every format: the same bytes as of .npy, names of the rows carried to every table."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigembed as be
from bigembed import errors
from bigembed.jobs.extend import extend
from bigembed.jobs.job import JobSpec
from bigembed.jobs.record import read_record
from bigembed.jobs.run import plan_job, run_job
from bigembed.jobs.scene import export
from bigembed.jobs.verify import verify
from bigembed.rows.formats import ingest
from bigembed.rows.formats.copying import aligned_of
from bigembed.store.arrays import read_array
from tests.job_files import job_in
from tests.some import a_few
from tests.unit.rows import written

EMBEDDING = "stages/coordinates/embedding"
Plain = tuple[dict[str, bytes], np.ndarray, Path]


def job(folder: Path, source: str, method: str = "pca", output: str = "", name: str = "job") -> JobSpec:
    asked = f'name = "{method}"\nn_components = 2'
    return job_in(folder, asked, source, output, path=f"{name}.zarr", name=f"{name}.toml")


def lines_of(path: Path) -> list[list[str]]:
    return list(csv.reader(path.read_text(encoding="utf-8").splitlines()))


def records_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def source_of(name: str, ids: bool = True) -> str:
    lines = [f'path = "{name}"']
    if name in written.TABLES:
        lines.append(f"columns = {list(written.COLUMNS)}")
    if ids and name in written.NAMED:
        lines.append('ids = "cell"')
    return "\n".join(lines)


def stored_bytes(root: Path) -> dict[str, bytes]:
    """Every array that the run wrote, without its ids and its records."""
    found = {str(file.relative_to(root)): file.read_bytes() for file in (root / "stages").rglob("*") if file.is_file()}
    return {name: content for name, content in found.items() if not name.startswith("stages/ids")}


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Plain:
    folder = tmp_path_factory.mktemp("plain")
    np.save(folder / "plain.npy", written.rows_of())
    run_job(job(folder, 'path = "plain.npy"', name="plain"))
    root = folder / "plain.zarr"
    return stored_bytes(root), read_array(root / EMBEDDING), root


@pytest.fixture
def wanted(once: Plain, tmp_path: Path) -> Plain:
    """The bytes of the run on .npy, which lies in the folder; its coordinates; where it is."""
    np.save(tmp_path / "plain.npy", written.rows_of())
    return once


@a_few(1, "name", [name for name in written.FORMATS if name not in ("rows.h5ad", "rows.zarr", "rows2.zarr")])
def test_any_format_gives_the_bytes_of_npy(name: str, wanted: Any, tmp_path: Path) -> None:
    written.libraries(name)
    rows = written.rows_of()
    written.FORMATS[name](tmp_path / name, rows, written.names_of())
    if name in written.BARE:
        np.save(tmp_path / "plain.npy", rows.astype("f4"))
        run_job(job(tmp_path, 'path = "plain.npy"', name="plain"))
        wanted = stored_bytes(tmp_path / "plain.zarr"), None
    spec = job(tmp_path, source_of(name))
    planned = [stage for stage, _ in plan_job(spec).stages]
    assert planned[: len(planned) - 4] == ["input"] if name in written.BARE else ["ids", "input"]
    run_job(spec)
    assert stored_bytes(tmp_path / "job.zarr") == wanted[0]
    assert run_job(spec)["unchanged"]
    other = written.rows_of()
    other[-1, -1] += 1
    written.FORMATS[name](tmp_path / f"other-{name}", other, written.names_of())
    run_job(job(tmp_path, source_of(name).replace(name, f"other-{name}"), name="other"))
    assert stored_bytes(tmp_path / "other.zarr") != wanted[0]


@a_few(1, "name", ["rows.h5ad", "rows.zarr", "rows2.zarr"])
def test_sparse_rows_of_an_anndata(name: str, tmp_path: Path) -> None:
    written.libraries(name)
    written.FORMATS[name](tmp_path / name, written.rows_of(), written.names_of())
    spec = job(tmp_path, f'path = "{name}"', output='table = "table.csv"')
    run_job(spec)
    assert (tmp_path / "job-input.zarr" / "indptr").exists()
    ingest(tmp_path / name, tmp_path / "group.zarr")
    run_job(job(tmp_path, 'path = "group.zarr"', name="again"))
    assert stored_bytes(tmp_path / "again.zarr") == stored_bytes(tmp_path / "job.zarr")
    table = lines_of(tmp_path / "table.csv")
    assert table[0] == ["id", "pca0", "pca1"]
    assert [row[0] for row in table[1:]] == written.names_of()
    assert run_job(spec)["unchanged"]


def test_labels_and_weights_by_their_names_in_the_source(tmp_path: Path) -> None:
    written.libraries("rows.h5ad")
    written.h5ad_file(tmp_path / "a.h5ad", written.rows_of(), written.names_of(), "dense")
    run_job(job(tmp_path, 'path = "a.h5ad"\nlabels = "kind"', "linear_discriminant"))
    fitted = be.LinearDiscriminantAnalysis().fit(
        written.rows_of(), np.array([f"kind {i % 3}" for i in range(written.N)])
    )
    np.testing.assert_array_equal(read_array(tmp_path / "job.zarr" / EMBEDDING), fitted.embedding_)
    run_job(job(tmp_path, 'path = "a.h5ad"\nweights = "depth"', name="weighted"))
    weighted = be.PCA(2).fit(written.rows_of(), sample_weight=np.arange(written.N))
    np.testing.assert_array_equal(read_array(tmp_path / "weighted.zarr" / EMBEDDING), weighted.embedding_)
    record = read_record(tmp_path / "weighted.zarr")
    assert record["job"]["input"]["weights"] == "depth"
    assert record["beside"]["weights"].endswith("weighted-input-weights.zarr")


# ------------------------------------------------------------------------------------------ ids


def test_ids_are_found_again_after_an_ingest_and_do_not_change_the_result(wanted: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.array(written.names_of()))
    ingest(tmp_path / "plain.npy", tmp_path / "points.zarr", aligned={"ids": str(tmp_path / "ids.npy")})
    spec = job(tmp_path, 'path = "points.zarr"', output='table = "t.csv"')
    run_job(spec)
    assert stored_bytes(tmp_path / "job.zarr") == wanted[0]
    assert [row["id"] for row in records_of(tmp_path / "t.csv")] == written.names_of()
    assert verify(tmp_path / "job.zarr")["problems"] == []
    chunk = next(path for path in (tmp_path / "job.zarr/stages/ids").rglob("*") if path.is_file() and "c" in path.parts)
    chunk.write_bytes(chunk.read_bytes()[:-1])
    assert any("ids" in problem for problem in verify(tmp_path / "job.zarr")["problems"])
    with pytest.warns(errors.DamageWarning, match="ids"):
        run_job(spec)
    assert verify(tmp_path / "job.zarr")["problems"] == []


def test_ids_of_another_run_are_not_exported(wanted: Any, tmp_path: Path) -> None:
    roots = [tmp_path / "one.zarr", tmp_path / "other.zarr"]
    for root, ids in zip(roots, (np.arange(written.N), np.arange(written.N)[::-1]), strict=True):
        np.save(tmp_path / "ids.npy", ids)
        spec = job(tmp_path, 'path = "plain.npy"\nids = "ids.npy"')
        run_job(spec)
        (tmp_path / "job.zarr").rename(root)
    for name in ("stages/ids", "manifest/ids.json"):
        (shutil.rmtree if (roots[0] / name).is_dir() else Path.unlink)(roots[0] / name)
        (roots[1] / name).rename(roots[0] / name)
    with pytest.raises(errors.DamagedError, match=r"stage 'ids' is not the one that job\.json names"):
        export(roots[0], tmp_path / "t.csv")
    assert not (tmp_path / "t.csv").exists()


def test_extend_carries_names_and_reads_any_format(wanted: Any, tmp_path: Path) -> None:
    written.libraries("rows.csv")
    run_job(job(tmp_path, 'path = "plain.npy"', output='model = "model.zarr"', name="fitted"))
    written.csv_file(tmp_path / "new.csv", written.rows_of(), written.names_of())
    found = extend(
        tmp_path / "model.zarr",
        tmp_path / "new.csv",
        tmp_path / "out.zarr",
        aligned={"ids": "cell"},
        choice=be_choice(written.COLUMNS),
        results=tmp_path / "out.csv",
    )
    assert found["table"] == str(tmp_path / "out.csv")
    np.testing.assert_array_equal(read_array(tmp_path / "out.zarr"), wanted[1])
    assert aligned_of(tmp_path / "out.zarr") == {"ids": tmp_path / "out-ids.zarr"}
    table = lines_of(tmp_path / "out.csv")
    assert table[0] == ["id", "pca0", "pca1"]
    assert [row[0] for row in table[1:]] == written.names_of()
    np.testing.assert_array_equal(np.array([row[1:] for row in table[1:]], float), wanted[1])
    assert not list(tmp_path.glob("out-input*"))
    assert not list(tmp_path.glob("*.partial"))
    with pytest.raises(errors.ExistingOutputError):
        extend(tmp_path / "model.zarr", tmp_path / "plain.npy", tmp_path / "out.zarr")


def be_choice(columns: tuple[str, ...]) -> Any:
    from bigembed.rows.reader import Choice

    return Choice(columns=columns)


# --------------------------------------------------------------------------------------- export


def test_tables_hold_names_and_coordinates(wanted: Any, tmp_path: Path) -> None:
    written.libraries("rows.parquet")
    parquet = pytest.importorskip("pyarrow.parquet")
    np.save(tmp_path / "ids.npy", np.arange(written.N) + 7)
    run_job(job(tmp_path, 'path = "plain.npy"\nids = "ids.npy"', output='table = "t.parquet"'))
    table = parquet.read_table(tmp_path / "t.parquet")
    assert table.column_names == ["id", "pca0", "pca1"]
    assert table["id"].to_pylist() == list(range(7, written.N + 7))
    np.testing.assert_array_equal(np.stack([table["pca0"], table["pca1"]], axis=1), wanted[1])
    made = json.loads(table.schema.metadata[b"bigembed"])
    assert (made["method"], made["parameters"]) == ("pca", {"n_components": 2})
    export(tmp_path / "job.zarr", tmp_path / "x.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), wanted[1])
    export(tmp_path / "x.npy", tmp_path / "y.csv")
    assert lines_of(tmp_path / "y.csv")[0] == ["coordinate0", "coordinate1"]
    with pytest.raises(errors.ExistingOutputError, match="--overwrite"):
        export(tmp_path / "job.zarr", tmp_path / "x.npy")
    export(tmp_path / "job.zarr", tmp_path / "x.npy", overwrite=True)
    with pytest.raises(errors.InputError, match=r"written as \.parquet, \.csv, \.npy"):
        export(tmp_path / "job.zarr", tmp_path / "x.txt")
    with pytest.raises(errors.MissingPathError):
        export(tmp_path / "none.zarr", tmp_path / "z.npy")
    assert not list(tmp_path.glob(".partial*"))


@a_few(1, "suffix", ["h5ad", "zarr"])
def test_coordinates_into_an_anndata_by_its_names(suffix: str, wanted: Any, tmp_path: Path) -> None:
    ad = pytest.importorskip("anndata")
    written.libraries("rows.h5ad")
    np.save(tmp_path / "ids.npy", np.array(written.names_of()))
    run_job(job(tmp_path, 'path = "plain.npy"\nids = "ids.npy"'))
    order = np.random.default_rng(1).permutation(written.N)
    other = tmp_path / f"other.{suffix}"
    write_annotated(other, written.rows_of()[order], [written.names_of()[row] for row in order])
    export(tmp_path / "job.zarr", other)
    with written.quiet():
        found = ad.read_h5ad(other) if suffix == "h5ad" else ad.read_zarr(other)
    np.testing.assert_array_equal(found.obsm["X_pca"], wanted[1][order])
    assert not np.array_equal(found.obsm["X_pca"], wanted[1])
    np.testing.assert_array_equal(found.X.toarray(), written.rows_of()[order])
    assert found.uns["pca"]["parameters"] == {"n_components": 2}
    assert len(found.uns["pca"]["eigenvalues"]) == 2
    assert set(found.obsm) == {"X_pca", "X_two"}
    with pytest.raises(errors.ExistingOutputError, match="obsm/X_pca, uns/pca: there already"):
        export(tmp_path / "job.zarr", other)
    export(tmp_path / "job.zarr", other, overwrite=True)
    missing = tmp_path / f"missing.{suffix}"
    write_annotated(missing, written.rows_of(), ["new", *written.names_of()[1:]])
    with pytest.raises(errors.InputError, match="1 of its 517 names are not ids of the coordinates: new"):
        export(tmp_path / "job.zarr", missing)
    with pytest.raises(errors.InputError, match="have no ids"):
        export(wanted[2], other, overwrite=True)
    with pytest.raises(errors.InputError, match="no AnnData is there"):
        export(tmp_path / "job.zarr", tmp_path / f"none.{suffix}")


def write_annotated(path: Path, rows: np.ndarray, names: list[str]) -> None:
    from tests.unit.rows.written import anndata_zarr

    (written.h5ad_file if path.suffix == ".h5ad" else anndata_zarr)(path, rows, names)


# ------------------------------------------------------------------------------------- job file


def test_a_copy_that_is_there_is_found_without_another_look_at_its_source(
    wanted: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    written.libraries("rows.csv")
    written.csv_file(tmp_path / "rows.csv", written.rows_of(), written.names_of())
    spec = job(tmp_path, source_of("rows.csv"), output='table = "t.csv"')
    run_job(spec)
    looks: list[Any] = []
    monkeypatch.setattr("bigembed.jobs.inputs.open_reader", lambda *given: looks.append(given))
    assert run_job(spec)["unchanged"]
    (tmp_path / "t.csv").unlink()
    run_job(spec)
    assert [row["id"] for row in records_of(tmp_path / "t.csv")] == written.names_of()
    assert not looks
    (tmp_path / "rows.csv").touch()
    with pytest.raises(AttributeError):  # (the reader is asked, and this is none)
        run_job(spec)
    assert looks


def test_what_a_killed_export_left_is_swept(wanted: Any, tmp_path: Path) -> None:
    written.libraries("rows.h5ad")
    h5py = pytest.importorskip("h5py")
    written.h5ad_file(tmp_path / "a.h5ad", written.rows_of(), written.names_of())
    run_job(job(tmp_path, 'path = "a.h5ad"'))
    with h5py.File(tmp_path / "a.h5ad", "r+") as file:
        file["obsm/bigembed-partial-X_pca"] = np.zeros((written.N, 1))
        file["uns/bigembed-partial-pca"] = 1
    export(tmp_path / "job.zarr", tmp_path / "a.h5ad")
    with h5py.File(tmp_path / "a.h5ad") as file:
        assert sorted(file["obsm"]) == ["X_pca", "X_two"]
        assert list(file["uns"]) == ["pca"]


def test_a_growing_input_has_nothing_to_choose(tmp_path: Path) -> None:
    """It says so before it looks whether the input can grow."""
    from bigembed.jobs.growth.refresh import refresh

    np.save(tmp_path / "rows.npy", written.rows_of())
    spec = job(tmp_path, 'path = "rows.npy"\nids = "x"\narray = "X"')
    with pytest.raises(errors.JobError, match=r"(?s)\[input\] ids: a growing input.*\[input\] array: a growing input"):
        refresh(spec)
    with pytest.raises(errors.JobError, match=r"\[output\] keep: with \"coordinates\" what places new rows is deleted"):
        refresh(job(tmp_path, 'path = "rows.npy"', output='keep = "coordinates"'))


@pytest.mark.parametrize(
    "lines",
    [
        ["a,b,c", "1,2,x", "3,4,y"],
        ["a,b,c", "1,2,3", "4,,6"],
        ["a,b,c", "1,2,3", "4,5"],
        ["a,b,c", "1,2,3", "4,12345678901234567891,6"],
        ["a,a,c", "1,2,3", "4,5,6"],
        ["a,b,c", "1;2;3"],
    ],
    ids=["text", "missing", "short line", "rounded", "name twice", "separators"],
)
def test_a_plan_refuses_the_table_that_the_job_refuses_with_the_same_words(lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    asked = job(tmp_path, 'path = "rows.csv"')
    with pytest.raises(errors.InputError) as planned:
        plan_job(asked)
    with pytest.raises(errors.InputError) as ran:
        run_job(asked)
    assert str(planned.value) == str(ran.value)
    assert not asked.output_path.exists()


def test_a_plan_reads_a_bounded_part_of_a_table(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("bigembed.jobs.inputs.FIRST_ROWS", 10)
    monkeypatch.setattr("bigembed.rows.formats.delimited.PIECE_BYTES", 100)
    (tmp_path / "rows.csv").write_text("a,b\n" + "1,2\n" * 500 + "1,\n", encoding="utf-8")
    asked = job(tmp_path, 'path = "rows.csv"')
    assert plan_job(asked).shape == (501, 2)
    with pytest.raises(errors.InputError, match="500 \\(counted from 0\\)"):
        run_job(asked)
