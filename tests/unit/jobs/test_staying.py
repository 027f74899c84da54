"""A growing map stays put, over the version before, by what its method leaves open; what happens where it cannot."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest
import zarr

import bigembed as be
from bigembed import errors
from bigembed.jobs.growth import open_growth
from bigembed.jobs.growth import refresh as growth_refresh
from bigembed.jobs.growth.extend import export_any, extend
from bigembed.jobs.growth.frames import MovementLimits
from bigembed.jobs.growth.refresh import refresh
from bigembed.jobs.growth.repair import verify_growth
from bigembed.jobs.job import CondenseTable
from bigembed.jobs.report.lines import refresh_lines
from bigembed.jobs.spec import parse_job
from bigembed.jobs.watching.status import status_of
from bigembed.rows.appending import append_rows
from bigembed.store.arrays import read_array, write_array
from tests.some import a_few, these

METHODS = {
    "pca": {}, "diffusion_map": {"n_neighbors": 8}, "isomap": {"n_neighbors": 8},
    "umap": {"n_neighbors": 8, "n_epochs": 60}, "tsne": {"perplexity": 10, "n_iter": 60}, "pacmap": {},
    "phate": {"n_landmarks": 100},
}  # fmt: skip
ANY, TIGHT = MovementLimits(moved=9, drift=9), MovementLimits(moved=0.1)


def drawn(n, seed=0):
    """A sheet that is as wide as long, so that nothing but chance says which way a linear map lies; curved."""
    random = np.random.default_rng(seed)
    x, y = random.uniform(-1, 1, size=(2, n))
    return (np.c_[x, y, 0.3 * x * y, 0.2 * x**2] + 0.01 * random.normal(size=(n, 4))).astype("f4")


def body(n):
    return np.c_[np.linspace(0, 10, n), np.zeros(n)]


def arm(n):
    """From the end of the body up, and back over it."""
    along = np.linspace(0, 7, n)
    return np.c_[np.where(along < 2, 10, 12 - along), np.minimum(along, 2)]


def strip(places, seed):
    """Points around places in a plane, in a third direction."""
    return np.insert(places, 1, np.random.default_rng(seed).uniform(-0.3, 0.3, len(places)), axis=1).astype("f4")


def job_in(home, method="pca", output=None, **parameters):
    tables = {
        "input": {"path": "x.zarr"},
        "method": {"name": method, "n_components": 2, **METHODS.get(method, {}), **parameters},
        "output": {"path": "out.zarr", **(output or {})},
    }
    return parse_job(tables, home / "job.toml")


def current(home):
    return open_growth(home / "out.zarr").current


def grown(home, method="pca", output=None, first=400, then=(440,), **parameters):
    """A store fitted when it had ``first`` rows, and again later; the maps of all versions."""
    home.mkdir(exist_ok=True)
    rows, job, found = drawn(700), job_in(home, method, output, **parameters), []
    write_array(home / "x.zarr", rows[:first], chunk_rows=128)
    for stop in (first, *then):
        if found:
            append_rows(home / "x.zarr", rows[first:stop], first=first)
            first = stop
        refresh(job, limits=ANY)
        found.append(current(home).coordinates.compute())
    return found


def shares(old, new):
    """Movement as a share of the diameter, of the rows that were there."""
    size = 2 * np.quantile(np.linalg.norm(old - old.mean(axis=0), axis=1), 0.99)
    return np.linalg.norm(new[: len(old)] - old, axis=1) / size


class TestStays:
    """What is published of a version lies over the one before, and its model places rows there."""

    @these(("umap",), "method", METHODS)
    def test_rows_stay_where_they_were_and_new_ones_are_placed_in_the_frame(self, tmp_path, method):
        first, second, third = grown(tmp_path, method, then=(440, 484))
        version = current(tmp_path)
        model = be.load(version.model)
        figures = model.certificate_["frame"]
        for old, new in ((first, second), (second, third)):
            assert np.median(shares(old, new)) < 0.05
        moved = read_array(version.run / "stages" / "frame" / "moved")
        assert np.isnan(moved[440:]).all()  # (nobody has seen them before)
        np.testing.assert_allclose(moved[:440], np.linalg.norm(third[:440] - second, axis=1), atol=1e-5)
        assert figures["moved"]["0.5"] == pytest.approx(np.nanmedian(moved) / figures["diameter"], rel=1e-9)
        drift = np.median(np.linalg.norm(third[:400] - first, axis=1)) / figures["diameter"]
        assert figures["drift"]["0.5"] == pytest.approx(drift, rel=1e-4)
        assert figures["since"].startswith("0001-400-")
        rows = drawn(700)
        np.testing.assert_allclose(model.transform(rows[:484]), third, atol=1e-4 * np.abs(third).max())
        append_rows(tmp_path / "x.zarr", rows[484:500])
        extend(job_in(tmp_path, method))
        placed = current(tmp_path).coordinates[484:].compute()
        np.testing.assert_array_equal(placed.astype("f4"), model.transform(rows[484:500]))
        assert verify_growth(tmp_path / "out.zarr")["problems"] == []

    def test_the_way_back_takes_coordinates_in_the_frame(self, tmp_path):
        grown(tmp_path, then=(440,))
        model, rows = be.load(current(tmp_path).model), drawn(700)[:440]
        anew = be.PCA(n_components=2).fit(rows)
        expected = anew.inverse_transform(anew.transform(rows))
        np.testing.assert_allclose(model.inverse_transform(model.transform(rows)), expected, atol=1e-5)
        assert np.abs(anew.inverse_transform(model.transform(rows)) - expected).max() > 0.1  # (it is another frame)

    def test_a_map_that_shall_not_stay_is_that_of_its_rows_alone(self, tmp_path):
        found = grown(tmp_path, output={"align": False})[-1]
        np.testing.assert_allclose(found, be.PCA(n_components=2).fit_transform(drawn(700)[:440]), atol=1e-6)

    @pytest.mark.parametrize("method", ["pca", pytest.param("umap", marks=pytest.mark.slow)])
    def test_the_same_bytes_again_and_after_a_kill(self, tmp_path, method, monkeypatch):
        expected = grown(tmp_path / "a", method)[-1]
        home = tmp_path / "b"
        grown(home, method, then=())
        append_rows(home / "x.zarr", drawn(700)[400:440])

        def stopped(*arguments):
            raise errors.InterruptedRun("stopped")

        for name in ("_fit", "_publish"):
            monkeypatch.setattr(growth_refresh, name, stopped)
            with pytest.raises(errors.InterruptedRun):
                refresh(job_in(home, method), limits=ANY)
            monkeypatch.undo()
        append_rows(home / "x.zarr", drawn(700)[440:450])
        extend(job_in(home, method))  # places rows that the unfinished version is not of
        refresh(job_in(home, method), limits=ANY)
        assert current(home).fitted == 440
        assert current(home).coordinates.compute().tobytes() == expected.tobytes()


class TestChangedRows:
    """Rows that have changed are placed anew, and all others stay; what the command does without being told."""

    @a_few(1, ("method", "stored"), [("pca", "in one"), ("umap", "in shards")])
    def test_changed_rows_move_and_others_stay(self, tmp_path, method, stored):
        rows = drawn(400)
        write_array(tmp_path / "x.zarr", rows, chunk_rows=64 if stored == "in shards" else None)
        job = job_in(tmp_path, method, {"table": "all.csv"})
        refresh(job)
        old = current(tmp_path).coordinates.compute()
        near = [70, 71, 90]
        zarr.open_array(str(tmp_path / "x.zarr"))[near[0] : near[1] + 1] = rows[[300, 301]]
        zarr.open_array(str(tmp_path / "x.zarr"))[near[2]] = rows[302]
        with pytest.raises(errors.ChangedInputError, match=r"--changed, which leaves all other rows"):
            refresh(job)
        refresh(job, changed=True, limits=ANY)
        new = current(tmp_path).coordinates.compute()
        others = np.setdiff1d(np.arange(400), near)
        assert np.median(shares(old, new)[others]) < 0.03
        assert (shares(new[[300, 301, 302]], new[near]) < 0.05).all()  # (where the rows are that they equal now)
        moved = np.genfromtxt(tmp_path / "all.csv", delimiter=",", names=True)["moved"]
        assert np.flatnonzero(np.isnan(moved)).tolist() == near
        assert refresh(job)["unchanged"]
        assert verify_growth(tmp_path / "out.zarr")["problems"] == []

    def test_rows_that_are_gone_from_the_end(self, tmp_path):
        grown(tmp_path, then=())
        old = current(tmp_path).coordinates.compute()
        zarr.open_array(str(tmp_path / "x.zarr")).resize((300, 4))
        job = job_in(tmp_path)
        assert refresh(job, changed=True, limits=ANY)["fitted"] == 300
        assert np.median(shares(old[:300], current(tmp_path).coordinates.compute())) < 0.03
        append_rows(tmp_path / "x.zarr", drawn(20, 5))
        assert extend(job)["placed"] == 20


class TestDeletedRows:
    """Rows that are deleted leave the map at the next refresh, keep their numbers, and all others stay."""

    @pytest.mark.parametrize("method", ["pca", pytest.param("umap", marks=pytest.mark.slow)])
    def test_the_next_version_is_without_them(self, tmp_path, method):
        rows, gone = drawn(700), np.arange(7, 400, 13)
        write_array(tmp_path / "x.zarr", rows[:400], chunk_rows=128)
        job = job_in(tmp_path, method, {"table": "all.csv"})
        refresh(job)
        old = current(tmp_path).coordinates.compute()
        assert be.delete_rows(tmp_path / "x.zarr", rows=gone[:10]) == 10
        assert be.delete_rows(tmp_path / "x.zarr", rows=gone) == len(gone)
        assert extend(job)["unchanged"]
        found = refresh(job, limits=ANY)
        assert (found["fitted"], found["deleted"], found["left_out"]) == (400, len(gone), 0)
        version = current(tmp_path)
        new, there = version.coordinates.compute(), ~np.isin(np.arange(400), gone)
        np.testing.assert_array_equal(np.isnan(new).all(axis=1), ~there)
        assert np.median(shares(old[there], new[there])) < 0.03
        model = be.load(version.model)
        assert model.certificate_["frame"]["shared"] == there.sum()
        assert len(model.embedding_) == there.sum()
        append_rows(tmp_path / "x.zarr", rows[400:440])
        extend(job)
        table = np.genfromtxt(tmp_path / "all.csv", delimiter=",", names=True)
        assert table["row"].tolist() == [*np.flatnonzero(there), *range(400, 440)]
        assert np.isfinite(table["moved"][: there.sum()]).all()
        assert verify_growth(tmp_path / "out.zarr")["problems"] == []
        again = refresh(job, limits=ANY)
        assert (again["fitted"], again["deleted"]) == (440, len(gone))
        assert refresh(job)["unchanged"]
        third = current(tmp_path).coordinates.compute()
        assert np.isnan(third[gone]).all()
        assert np.median(shares(new[there], third[:400][there])) < 0.03

    def test_the_map_is_that_of_the_rows_that_are_left(self, tmp_path):
        rows = drawn(300)
        write_array(tmp_path / "x.zarr", rows, chunk_rows=128)
        be.delete_rows(tmp_path / "x.zarr", rows=range(100))
        job = job_in(tmp_path)
        refresh(job)
        expected = be.PCA(n_components=2).fit_transform(rows[100:])
        np.testing.assert_allclose(current(tmp_path).coordinates[100:], expected, atol=1e-6)

    def test_what_is_not_there_cannot_be_deleted(self, tmp_path):
        write_array(tmp_path / "x.zarr", drawn(20))
        for wrong, message in (
            ({"rows": [3, 20]}, r"rows \[20\] are not there"),
            ({"rows": [0.5]}, "whole numbers"),
            ({"ids": ["a"]}, "have no ids"),
            ({}, "one of them is needed"),
        ):
            with pytest.raises(errors.InputError, match=message):
                be.delete_rows(tmp_path / "x.zarr", **wrong)
        assert not (tmp_path / "x.zarr.deleted.npy").exists()
        with pytest.raises(errors.MissingPathError):
            be.delete_rows(tmp_path / "none.zarr", rows=[0])

    def test_of_all_rows_none_is_left_and_put_back_they_are_there(self, tmp_path):
        old = grown(tmp_path, then=())[0]
        be.delete_rows(tmp_path / "x.zarr", rows=range(0, 400, 2))
        refresh(job_in(tmp_path), limits=ANY)
        be.delete_rows(tmp_path / "x.zarr", rows=range(400))
        with pytest.raises(errors.InputError, match=r"all of its 400 rows are deleted.*deleted\.npy"):
            refresh(job_in(tmp_path))
        (tmp_path / "x.zarr.deleted.npy").unlink()
        refresh(job_in(tmp_path), limits=ANY)
        assert np.median(shares(old, current(tmp_path).coordinates.compute())) < 0.03

    def test_a_damaged_mask_is_noticed(self, tmp_path):
        write_array(tmp_path / "x.zarr", drawn(200), chunk_rows=128)
        be.delete_rows(tmp_path / "x.zarr", rows=[5])
        refresh(job_in(tmp_path))
        write_array(current(tmp_path).root / "kept", np.ones(200, np.uint8))
        assert any("kept" in problem for problem in verify_growth(tmp_path / "out.zarr")["problems"])
        with pytest.warns(errors.DamageWarning, match="kept"):
            assert refresh(job_in(tmp_path))["deleted"] == 1
        assert verify_growth(tmp_path / "out.zarr")["problems"] == []


class TestDecision:
    """A map that moved too far waits for somebody to decide."""

    @pytest.fixture
    def pending(self, tmp_path):
        """A store whose refresh moves its rows: another kind of rows has come."""
        grown(tmp_path, then=())
        other = drawn(300, 1) * np.array([0.2, 1, 1, 1], "f4") + np.array([0, 0, 0, 4], "f4")
        append_rows(tmp_path / "x.zarr", other)
        return tmp_path

    def test_the_version_before_stays_published(self, pending):
        before = current(pending)
        for _ in range(2):
            with pytest.raises(errors.MovedError, match=r"half of the rows moved .*--moved.*--new-frame") as found:
                refresh(job_in(pending), limits=TIGHT)
            assert current(pending).root == before.root
        assert status_of(found.value) == 9
        assert extend(job_in(pending))["rows"] == 700  # (goes on with the model that is published)

    def test_a_higher_limit_publishes_what_is_there(self, pending, monkeypatch):
        with pytest.raises(errors.MovedError):
            refresh(job_in(pending), limits=TIGHT)
        [waiting] = open_growth(pending / "out.zarr").unfinished()
        record = (waiting.run / "job.json").read_bytes()
        found = refresh(job_in(pending), limits=ANY)
        assert (found["version"], found["fitted"]) == (waiting.root.name, 700)
        assert (current(pending).run / "job.json").read_bytes() == record  # (not fitted again)
        assert found["frame"]["moved"]["0.5"] > TIGHT.moved

    def test_a_new_frame_is_a_map_from_nothing(self, pending):
        with pytest.raises(errors.MovedError):
            refresh(job_in(pending), limits=TIGHT)
        found = refresh(job_in(pending), new_frame=True)
        assert "frame" not in found
        assert len(list((pending / "out.zarr" / "versions").iterdir())) == 2
        anew = be.PCA(n_components=2).fit_transform(np.asarray(be.open_array(pending / "x.zarr")))
        np.testing.assert_allclose(current(pending).coordinates, anew, atol=1e-4)
        append_rows(pending / "x.zarr", drawn(20, 3))
        assert refresh(job_in(pending))["frame"]["since"] == found["version"]

    def test_drift_adds_up_where_no_night_moved_far(self, tmp_path):
        grown(tmp_path, then=(500,))
        moved = be.load(current(tmp_path).model).certificate_["frame"]["moved"]["0.5"]
        append_rows(tmp_path / "x.zarr", drawn(700)[500:520])
        with pytest.raises(errors.MovedError, match=r"since the first version of its frame, 0001-400-.*--drift"):
            refresh(job_in(tmp_path), limits=MovementLimits(moved=9, drift=moved / 10))

    @a_few(1, "joined", [True, False])
    def test_a_branch_that_flips_while_all_others_stay(self, tmp_path, joined):
        """A strip, and a tenth of its rows on an arm that bends back over it: unrolled, until new rows join its end."""
        write_array(tmp_path / "x.zarr", strip(np.concatenate([body(360), arm(40)]), 0))
        job = job_in(tmp_path, "isomap")
        refresh(job)
        before = current(tmp_path)
        bridge = np.c_[np.full(20, 5.0), np.linspace(0, 2, 20)]
        append_rows(tmp_path / "x.zarr", strip(bridge if joined else np.concatenate([body(18), arm(2)]), 1))
        if not joined:
            [line] = [line for line in refresh_lines(refresh(job)) if "moved" in line]
            assert re.search(r"half of the rows moved at most .* %.*; 99 of 100 \S+ % and \S+ %$", line)
            return
        with pytest.raises(errors.MovedError, match=r"1 of 100 rows moved .* limit is 30 % \(--moved-99\)") as found:
            refresh(job)
        assert "half of the rows" not in str(found.value)
        assert current(tmp_path).root == before.root
        frame = refresh(job, limits=MovementLimits(moved_99=0.6))["frame"]
        assert frame["moved"]["0.5"] < 0.1 < 0.3 < frame["moved"]["0.99"]

    def test_a_growing_store_is_not_condensed(self, tmp_path):
        """It says so before it reads rows or makes anything; a model that is there stays as it is."""
        write_array(tmp_path / "x.zarr", drawn(400))
        plain = job_in(tmp_path, "umap")
        condensed = plain.model_copy(update={"condense": CondenseTable(rows=50)})
        with pytest.raises(errors.JobError, match=r"\[condense\]: the rows of a growing store .*leave it out"):
            refresh(condensed)
        assert not (tmp_path / "out.zarr").exists()
        refresh(plain)
        append_rows(tmp_path / "x.zarr", drawn(20, 1))
        with pytest.raises(errors.JobError, match=r"\[condense\]: the rows of a growing store"):
            extend(condensed)
        assert current(tmp_path).covered == 400


def test_the_page_and_the_table_say_how_far_rows_moved(tmp_path):
    maps = grown(tmp_path, output={"report": str(tmp_path / "map.html")}, then=(440,))
    page = (tmp_path / "map.html").read_text()
    assert "Moved since the version before" in page
    assert "Drift of the frame" in page
    export_any(tmp_path / "out.zarr", tmp_path / "all.csv")
    columns = np.genfromtxt(tmp_path / "all.csv", delimiter=",", names=True)
    np.testing.assert_allclose(columns["moved"][:400], np.linalg.norm(maps[1][:400] - maps[0], axis=1), atol=1e-5)
    assert np.isnan(columns["moved"][400:]).all()
    shutil.rmtree(tmp_path / "out.zarr")
