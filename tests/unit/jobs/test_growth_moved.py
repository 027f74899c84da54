"""A growing store whose input was written anew with other ids, and one that was moved or copied with its folder."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas
import pyarrow.parquet as pq
import pytest

import bigembed as be
from bigembed import errors
from bigembed.jobs.extend import extend as extend_by
from bigembed.jobs.growth import open_growth
from bigembed.jobs.growth.audit import audit
from bigembed.jobs.growth.extend import export_any, extend
from bigembed.jobs.growth.frames import MovementLimits
from bigembed.jobs.growth.ids import NO_IDS, digest_of_ids
from bigembed.jobs.growth.locations import located, written
from bigembed.jobs.growth.refresh import refresh
from bigembed.jobs.growth.repair import verify_growth
from bigembed.jobs.report.page import write_report
from bigembed.jobs.spec import parse_job
from bigembed.jobs.watching.status import status_of
from bigembed.rows.appending import append_rows
from bigembed.rows.deleting import delete_rows
from bigembed.rows.formats import ingest
from bigembed.rows.reader import Choice
from bigembed.store import at, files, remove
from bigembed.store.arrays import read_array
from tests.unit.jobs.test_staying import current, job_in

ROWS = np.random.default_rng(0).normal(size=(900, 4)) * [9, 5, 3, 1]
IDS = np.array([f"c{number}" for number in range(900)])
SHUFFLED = np.random.default_rng(1).permutation(500)


def ingested(home, numbers, ids=IDS, name="x.zarr"):
    """Write the input anew: these rows, with their ids, or none."""
    for path in home.glob(f"{name.removesuffix('.zarr')}*.zarr*"):
        remove(path)
    np.save(home / "rows.npy", ROWS[numbers])
    np.save(home / "names.npy", ids[numbers] if ids is not None else np.zeros(0))
    aligned = {} if ids is None else {"ids": str(home / "names.npy")}
    ingest(home / "rows.npy", home / name, aligned=aligned)


def appended(home, start, stop):
    append_rows(home / "x.zarr", ROWS[start:stop], ids=IDS[start:stop])


@pytest.mark.parametrize("deleted", [False, True])
def test_the_model_takes_columns_by_the_names_of_the_store(deleted, tmp_path):
    frame = pandas.DataFrame(ROWS[:500], columns=list("abcd"))
    frame.assign(id=IDS[:500]).to_csv(tmp_path / "rows.csv", index=False)
    ingest(tmp_path / "rows.csv", tmp_path / "x.zarr", Choice(columns=tuple("abcd")), {"ids": "id"})
    job = job_in(tmp_path)
    refresh(job)
    if deleted:
        delete_rows(tmp_path / "x.zarr", rows=[0, 7])
        refresh(job)
    model = current(tmp_path).model
    other = pandas.DataFrame(ROWS[500:520], columns=list("abcd"))
    other[list("dbac")].to_csv(tmp_path / "other.csv", index=False)
    extend_by(model, tmp_path / "other.csv", tmp_path / "o.zarr")
    wanted = be.load(model).transform(other)
    np.testing.assert_allclose(read_array(tmp_path / "o.zarr"), wanted, rtol=1e-6)
    with pytest.raises(errors.InputError, match="must be in the same order"):
        be.load(model).transform(other[list("dbac")])
    other.drop(columns="b").to_csv(tmp_path / "less.csv", index=False)
    with pytest.raises(errors.InputError, match="no columns b"):
        extend_by(model, tmp_path / "less.csv", tmp_path / "p.zarr")


def table(path):
    """Coordinates by id."""
    found = pq.read_table(path)
    return dict(zip(found["id"].to_pylist(), found["pca0"].to_pylist(), strict=True))


def exported(home, name="e.parquet"):
    export_any(home / "out.zarr", home / name, overwrite=True)
    return table(home / name)


def rewritten(file, change):
    """Change a sealed file of JSON."""
    known = {name: value for name, value in json.loads(file.read_text()).items() if name != "digest"}
    files.write_json(file, files.sealed(change(known)))


def as_written_earlier(home):
    """Make of a store what bigembed 0.2 left: no digests of ids, and where things are as absolute paths."""
    root = home / "out.zarr"
    [version] = (root / "versions").iterdir()
    rewritten(version / "version.json", lambda known: {name: one for name, one in known.items() if name != "ids"})
    rewritten(version / "rows.json", lambda known: {"path": str(home / known.pop("input")), **known})
    if (root / "table.json").exists():
        rewritten(root / "table.json", lambda known: {kind: absolute(home, known[kind]) for kind in known})
    file = version / "coordinates" / "zarr.json"
    metadata = json.loads(file.read_text())
    known = {name: one for name, one in metadata["attributes"].items() if name != "digest"}
    known["ranges"] = [{name: one for name, one in part.items() if name != "ids"} for part in known["ranges"]]
    files.write_json(file, metadata | {"attributes": files.sealed(known)})


def absolute(home, known):
    return {str(home / name): what for name, what in known.items()}


class TestIds:
    """Coordinates never stand beside the ids of other rows."""

    @pytest.fixture
    def job(self, tmp_path):
        ingested(tmp_path, np.arange(500))
        return job_in(tmp_path)

    def test_digests_are_of_the_ids_however_they_are_stored(self, tmp_path):
        ingested(tmp_path, np.arange(500))
        first = digest_of_ids(tmp_path / "x.zarr", 0, 300), digest_of_ids(tmp_path / "x.zarr", 300, 500)
        appended(tmp_path, 500, 900)
        assert (digest_of_ids(tmp_path / "x.zarr", 0, 300), digest_of_ids(tmp_path / "x.zarr", 300, 500)) == first
        assert digest_of_ids(tmp_path / "x.zarr", 0, 901) == NO_IDS
        found = {}
        for name, ids in {"text": IDS, "cut": np.char.add(IDS, "c"), "numbers": np.arange(900), "none": None}.items():
            ingested(tmp_path, np.arange(3), ids, f"{name}.zarr")
            found[name] = digest_of_ids(tmp_path / f"{name}.zarr", 0, 3)
        assert found.pop("none") == NO_IDS
        ingested(tmp_path, np.arange(3), np.array(["c", "0c1", "c2"]), "joined.zarr")  # (the same text, cut otherwise)
        assert digest_of_ids(tmp_path / "joined.zarr", 0, 3) != found["text"]
        assert len({*found.values()}) == 3

    def test_other_ids_beside_the_rows_are_refused_and_those_of_the_rows_are_written(self, job, tmp_path):
        refresh(job)
        appended(tmp_path, 500, 600)
        extend(job)
        right = exported(tmp_path)
        assert list(right) == IDS[:600].tolist()
        written_before = (tmp_path / "e.parquet").read_bytes()
        for numbers, ids in ((np.r_[SHUFFLED, 500:600], IDS), (np.r_[:500, 599:499:-1], IDS), (np.arange(600), None)):
            ingested(tmp_path, numbers, ids)
            with pytest.raises(errors.ChangedInputError, match=r"x\.zarr: the ids are not .*bigembed refresh") as found:
                exported(tmp_path)
            assert status_of(found.value) == 2
        with pytest.raises(errors.ChangedInputError, match="the ids are not"):
            be.view(tmp_path / "out.zarr", tmp_path / "view")
        remove(tmp_path / "x.zarr")
        with pytest.raises(errors.ChangedInputError, match=r"x\.zarr: is gone, and the ids with it"):
            exported(tmp_path)
        assert (tmp_path / "e.parquet").read_bytes() == written_before
        ingested(tmp_path, np.arange(900))  # more rows than were mapped
        assert exported(tmp_path) == right

    def test_without_digests_other_ids_were_written(self, job, tmp_path):
        """The control: what the digests are for."""
        refresh(job)
        right = exported(tmp_path)
        as_written_earlier(tmp_path)
        assert exported(tmp_path) == right  # stores of earlier versions can be read
        ingested(tmp_path, SHUFFLED)
        assert exported(tmp_path) != right

    def test_a_table_of_the_job_is_refused_and_a_refresh_takes_what_is_there(self, tmp_path):
        ingested(tmp_path, np.arange(500))
        job = job_in(tmp_path, output={"table": "t.parquet"})
        refresh(job)
        before = (tmp_path / "t.parquet").read_bytes()
        renamed = np.char.add("k", IDS)
        ingested(tmp_path, np.arange(600), renamed)  # the same rows under other ids
        with pytest.raises(errors.ChangedInputError, match="the ids are not"):
            extend(job)
        assert (tmp_path / "t.parquet").read_bytes() == before
        refresh(job)
        assert list(table(tmp_path / "t.parquet")) == renamed[:600].tolist()
        ingested(tmp_path, np.arange(600))  # as many rows as before
        assert not refresh(job)["unchanged"]
        assert list(table(tmp_path / "t.parquet")) == IDS[:600].tolist()
        assert refresh(job)["unchanged"]
        ingested(tmp_path, SHUFFLED)
        refresh(job, changed=True, limits=MovementLimits(moved=9, drift=9))
        assert list(table(tmp_path / "t.parquet")) == IDS[SHUFFLED].tolist()

    def test_rows_that_were_deleted_and_damage_change_nothing(self, job, tmp_path):
        delete_rows(tmp_path / "x.zarr", ids=["c7", "c40"])
        refresh(job)
        appended(tmp_path, 500, 600)
        extend(job)
        right = exported(tmp_path)
        assert list(right) == [one for one in IDS[:600].tolist() if one not in ("c7", "c40")]
        [version] = (tmp_path / "out.zarr" / "versions").iterdir()
        remove(version / "coordinates")
        with pytest.warns(errors.DamageWarning):
            extend(job)  # the coordinates are made again, with the digests of the ids
        assert exported(tmp_path) == right
        ingested(tmp_path, np.r_[SHUFFLED, 500:600])
        with pytest.raises(errors.ChangedInputError, match="rows 0:500"):
            exported(tmp_path)

    def test_rows_without_ids_stay_without(self, tmp_path):
        ingested(tmp_path, np.arange(500), None)
        refresh(job := job_in(tmp_path))
        export_any(tmp_path / "out.zarr", tmp_path / "e.csv")
        ingested(tmp_path, np.arange(500))
        with pytest.raises(errors.ChangedInputError, match="the ids are not"):
            exported(tmp_path)
        refresh(job)
        assert list(exported(tmp_path)) == IDS[:500].tolist()


OUTPUT = {"table": "t.parquet", "picture": "map.png", "report": "report.html"}


def altered(home):
    """What lies at the old place now is of other rows, in other order."""
    ingested(home, np.r_[SHUFFLED, 599:499:-1])
    remove(home / "out.zarr")
    (home / "t.parquet").write_text("other")


class TestMoved:
    """A folder with all that belongs to a growing store works wherever it is put."""

    @pytest.fixture(params=[shutil.rmtree, altered])
    def home(self, tmp_path, request):
        """A store that was copied with its folder; the original is removed, or is of other rows."""
        old, new = tmp_path / "old", tmp_path / "deep" / "new"
        old.mkdir()
        ingested(old, np.arange(500))
        job = job_in(old, output=OUTPUT)
        refresh(job)
        appended(old, 500, 600)
        extend(job)
        shutil.copytree(old, new)
        request.param(old)
        return new

    def test_all_commands_go_on(self, home):
        job = job_in(home, output=OUTPUT)
        before = table(home / "t.parquet")
        assert list(before) == IDS[:600].tolist()
        assert exported(home) == before
        assert be.view(home / "out.zarr", home / "view").rows == 600
        assert verify_growth(home / "out.zarr")["problems"] == []
        assert audit(job)["rows"]["new"] == 100
        assert extend(job)["unchanged"]
        appended(home, 600, 700)
        assert extend(job)["placed"] == 100
        assert exported(home) == table(home / "t.parquet")
        assert refresh(job)["fitted"] == 700
        version = open_growth(home / "out.zarr").current
        write_report(version.run, home / "again.html")
        assert "new/x.zarr" in (home / "again.html").read_text()
        assert list(exported(home)) == IDS[:700].tolist()
        assert refresh(job)["unchanged"]

    def test_what_is_current_stays_and_what_others_wrote_is_not_taken(self, home):
        appended_then = open_growth(home / "out.zarr").current
        (home / "mine.parquet").write_text("mine")
        with pytest.raises(errors.ExistingOutputError, match="did not write it"):
            extend(job_in(home, output={"table": "mine.parquet"}))
        assert extend(job_in(home, output={"picture": "map.png"}))["unchanged"]
        assert open_growth(home / "out.zarr").current == appended_then

    def test_a_version_that_waits_for_a_decision_is_published_in_its_new_place(self, tmp_path):
        old, new = tmp_path / "old", tmp_path / "new"
        old.mkdir()
        ingested(old, np.arange(500))
        refresh(job_in(old, output=OUTPUT))
        appended(old, 500, 900)
        with pytest.raises(errors.MovedError):
            refresh(job_in(old, output=OUTPUT), limits=MovementLimits(moved=0, drift=0))
        old.rename(new)
        found = refresh(job_in(new, output=OUTPUT))
        assert (found["fitted"], found["version"][:4]) == (900, "0002")
        assert list(table(new / "t.parquet")) == IDS.tolist()
        new.rename(old)
        assert refresh(job_in(old, output=OUTPUT))["unchanged"]  # (where it lies is not what was asked for)

    def test_the_store_alone_says_what_is_missing_until_a_job_says_where_it_is(self, tmp_path):
        old, new = tmp_path / "old", tmp_path / "new"
        old.mkdir()
        new.mkdir()
        ingested(old, np.arange(500))
        refresh(job_in(old))
        shutil.move(old / "out.zarr", new / "out.zarr")
        with pytest.raises(errors.ChangedInputError, match=r"new/x\.zarr: is gone.*bigembed extend"):
            exported(new)
        tables = {"input": {"path": str(old / "x.zarr")}, "method": {"name": "pca"}}
        elsewhere = parse_job(tables | {"output": {"path": "out.zarr"}}, new / "job.toml")
        extend(elsewhere)
        assert list(exported(new)) == IDS[:500].tolist()

    def test_stores_of_earlier_versions_are_read_where_they_were_and_after_a_job_where_they_are(self, tmp_path):
        old, new = tmp_path / "old", tmp_path / "new"
        old.mkdir()
        ingested(old, np.arange(500))
        refresh(job_in(old, output=OUTPUT))
        as_written_earlier(old)
        assert list(exported(old)) == IDS[:500].tolist()
        assert extend(job_in(old, output=OUTPUT))["unchanged"]  # (what it wrote is known as its own)
        as_written_earlier(old)
        (tmp_path / "link").symlink_to(old)
        assert list(exported(tmp_path / "link")) == IDS[:500].tolist()
        shutil.copytree(old, new)
        ingested(old, SHUFFLED)
        with pytest.raises(errors.ChangedInputError, match=r"was moved .*bigembed extend"):
            exported(new)
        extend(job_in(new))
        assert list(exported(new)) == IDS[:500].tolist()

    def test_what_moves_together_is_written_from_the_folder_on(self, tmp_path):
        tables = {"input": {"path": "../in/x.zarr"}, "method": {"name": "pca"}, "output": {"path": "../out/g.zarr"}}
        job = parse_job(tables, tmp_path / "jobs" / "job.toml")
        root, elsewhere = tmp_path / "out" / "g.zarr", tmp_path / "moved" / "out" / "g.zarr"
        assert written(job.input_path, root, job) == "../in/x.zarr"
        assert located("../in/x.zarr", elsewhere) == tmp_path / "moved" / "in" / "x.zarr"
        assert written(root.parent / "deep" / "t.csv", root, job) == "deep/t.csv"
        given = str(job.input_path)
        assert written(given, root, parse_job(tables | {"input": {"path": given}}, job.file)) == given
        assert located(given, elsewhere) == job.input_path
        url = at("s3://bucket/maps/g.zarr")
        for place, text in (("s3://bucket/maps/x.zarr", "x.zarr"), ("s3://other/x.zarr", "s3://other/x.zarr")):
            assert (written(place, url, job), str(located(text, url))) == (text, place)
