"""Damage of a growing embedding: named by readers; made again by the jobs where rows and model allow it."""

from __future__ import annotations

import json
import os
import shutil
import warnings

import numpy as np
import pytest
from typer.testing import CliRunner

from bigembed.cli import app
from bigembed.errors import DamagedError, DamageWarning
from bigembed.jobs.growth.audit import audit
from bigembed.jobs.growth.extend import extend
from bigembed.jobs.growth.refresh import refresh
from bigembed.jobs.growth.versions import Growth, open_growth
from bigembed.jobs.spec import parse_job
from bigembed.jobs.verify import verify
from bigembed.rows.growing import append_rows
from bigembed.store.arrays import write_array
from bigembed.store.files import read_json, sealed, write_json

N = 90


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    """60 rows fitted, twice 15 placed."""
    home = tmp_path_factory.mktemp("grown")
    rows = (np.random.default_rng(0).normal(size=(N, 4)) * [9, 5, 1, 1]).astype("f4")
    write_array(home / "x.zarr", rows[:60], chunk_rows=16)
    refresh(job_of(home))
    for first in (60, 75):
        append_rows(home / "x.zarr", rows[first : first + 15])
        extend(job_of(home))
    return home


@pytest.fixture
def home(grown, tmp_path):
    return shutil.copytree(grown, tmp_path / "home", copy_function=shutil.copyfile)


def job_of(home):
    tables = {
        "input": {"path": "x.zarr"},
        "method": {"name": "pca", "n_components": 2},
        "output": {"path": "out.zarr"},
    }
    return parse_job(tables, home / "job.toml")


def version_of(home):
    version = open_growth(home / "out.zarr").current
    assert version is not None
    return version


def there(home):
    return np.asarray(version_of(home).coordinates)


def edited(file, change):
    value = read_json(file)
    change(value)
    write_json(file, value)


def attributes(change):
    """An account that is damaged by somebody who makes its digest fit."""

    def act(version):
        value = read_json(version.array / "zarr.json")
        change(value)
        value["attributes"] = sealed(value["attributes"])
        write_json(version.array / "zarr.json", value)

    return act


def shape(version):
    edited(version.array / "zarr.json", lambda value: value["shape"].__setitem__(0, N + 10))


def digit(version):
    edited(version.array / "zarr.json", lambda value: value["attributes"]["ranges"][1].update(stop=70))


def flip(version):
    file = max(version.array.glob("c/*/0"), key=lambda path: int(path.parent.name))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)


def swap(version):
    write_array(version.root / "other", -np.asarray(version.coordinates), chunk_rows=N)
    with_attributes = read_json(version.array / "zarr.json")["attributes"]
    shutil.rmtree(version.array)
    shutil.move(version.root / "other", version.array)
    edited(version.array / "zarr.json", lambda value: value.update(attributes=with_attributes))


ARRAY = {
    "a shape": shape,
    "a digit": digit,
    "a flipped bit": flip,
    "other coordinates": swap,
    "no account": lambda version: os.truncate(version.array / "zarr.json", 0),
    "a gap": attributes(lambda value: value["attributes"]["ranges"].pop(1)),
    "an overlap": attributes(lambda value: value["attributes"]["ranges"][2].update(start=70)),
    "nothing": lambda version: shutil.rmtree(version.array),
}


@pytest.mark.parametrize("what", ARRAY)
def test_coordinates_are_made_again(home, grown, what):
    right, ranges = there(grown), [(part.start, part.stop) for part in version_of(grown).ranges]
    assert verify(home / "out.zarr")["problems"] == []
    ARRAY[what](version_of(home))
    with pytest.raises(DamagedError):
        there(home)
    assert verify(home / "out.zarr")["problems"]
    with pytest.warns(DamageWarning, match="coordinates"):
        found = extend(job_of(home))
    assert found["rows"] == N
    np.testing.assert_array_equal(there(home), right)
    assert [(part.start, part.stop) for part in version_of(home).ranges] in (ranges, [ranges[0], (60, N)])
    assert verify(home / "out.zarr")["problems"] == []
    assert extend(job_of(home))["unchanged"]


@pytest.mark.parametrize("file", ["current.json", "versions/*/rows.json"])
@pytest.mark.parametrize("how", ["empty", "digit", "list", "gone"])
def test_records_are_made_again(home, grown, file, how):
    [path] = (home / "out.zarr").glob(file)
    break_file(path, how)
    if file == "current.json":
        with pytest.raises(DamagedError, match=r"current\.json"):
            there(home)
        with pytest.raises(DamagedError, match=r"current\.json"):
            audit(job_of(home))
    assert verify(home / "out.zarr")["problems"]
    with pytest.warns(DamageWarning, match=path.name):
        assert extend(job_of(home))["rows"] == N
    np.testing.assert_array_equal(there(home), there(grown))
    assert verify(home / "out.zarr")["problems"] == []


def break_file(path, how):
    if how == "gone":
        path.unlink()
    elif how == "digit":
        value = read_json(path)
        key = "fitted" if "fitted" in value else "width"
        path.write_text(json.dumps(value | {key: value[key] + 1}))
    else:
        path.write_text({"empty": "", "list": "[1]"}[how])


@pytest.mark.parametrize("how", ["gone", "older"])
@pytest.mark.parametrize("job", [extend, refresh])
def test_the_newest_version_published_is_found_again(home, how, job):
    file = home / "out.zarr" / "current.json"
    before = file.read_bytes()
    refresh(job_of(home))
    newest, right = version_of(home), there(home)
    begun = Growth(home / "out.zarr").begin("another job", newest.ledger)
    shutil.copytree(newest.array, begun.array)  # killed after its coordinates, before it was published
    file.write_bytes(before) if how == "older" else file.unlink()
    with pytest.raises(DamagedError, match=newest.root.name):
        there(home)
    assert verify(home / "out.zarr")["problems"]
    with pytest.warns(DamageWarning, match=newest.root.name):
        assert job(job_of(home))["unchanged"]
    assert version_of(home).root == newest.root
    np.testing.assert_array_equal(there(home), right)
    assert verify(home / "out.zarr")["problems"] == []


def test_a_version_that_does_not_say_that_it_was_published_is_found_too(home, grown):
    edited(version_of(home).root / "version.json", lambda value: (value.pop("published"), value.pop("digest")))
    (home / "out.zarr" / "current.json").write_text("")
    with pytest.warns(DamageWarning, match=r"current\.json"):
        assert extend(job_of(home))["unchanged"]
    np.testing.assert_array_equal(there(home), there(grown))
    assert version_of(home).published


@pytest.mark.parametrize("part", ["coordinates", "model.zarr"])
def test_a_whole_part_of_another_version_is_not_taken(home, part):
    """Its own digests fit."""
    before = version_of(home)
    shutil.copytree(before.root, home / "before")
    refresh(job_of(home), fresh=True)
    right, newest = there(home), version_of(home)
    shutil.rmtree(newest.root / part)
    shutil.move(home / "before" / part, newest.root / part)
    assert verify(home / "out.zarr")["problems"]
    if part == "coordinates":
        with pytest.raises(DamagedError, match="another version"):
            there(home)
        with pytest.warns(DamageWarning, match="another version"):
            extend(job_of(home))
    else:
        with pytest.raises(DamagedError, match=r"another model.*bigembed refresh"):
            extend(job_of(home))
        with pytest.warns(DamageWarning, match="another"):
            refresh(job_of(home))
    np.testing.assert_array_equal(there(home), right)
    assert verify(home / "out.zarr")["problems"] == []


@pytest.mark.parametrize("what", ["version.json", "model.zarr/model.json", "model.zarr/manifest/survey.json"])
def test_what_cannot_be_made_again_alone_is_made_by_a_refresh(home, grown, what):
    file = version_of(home).root / what
    file = file if file.exists() else next((version_of(home).root / "model.zarr" / "manifest").glob("*.json"))
    file.write_text("{")
    append_rows(home / "x.zarr", np.zeros((2, 4), "f4"))
    with pytest.raises(DamagedError, match=r"bigembed refresh"):
        extend(job_of(home))
    assert verify(home / "out.zarr")["problems"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        assert refresh(job_of(home))["fitted"] == N + 2
    assert verify(home / "out.zarr")["problems"] == []
    assert len(there(home)) == N + 2


def test_a_damaged_model_is_no_reason_to_do_nothing(home):
    refresh(job_of(home))
    (version_of(home).model / "model.json").write_text("{")
    with pytest.warns(DamageWarning, match=r"model\.json"):
        assert not refresh(job_of(home))["unchanged"]
    assert refresh(job_of(home))["unchanged"]


def test_the_file_of_the_folder_itself(home, grown):
    (home / "out.zarr" / "zarr.json").write_text("")
    with pytest.raises(DamagedError, match=r"zarr\.json"):
        open_growth(home / "out.zarr")
    assert extend(job_of(home))["unchanged"]
    np.testing.assert_array_equal(there(home), there(grown))


def test_a_store_of_the_version_before_is_read(home):
    def before(value):
        value["attributes"].pop("digest", None)
        value["attributes"].pop("seal", None)
        for part in value["attributes"]["ranges"]:
            part.pop("coordinates")

    edited(version_of(home).array / "zarr.json", before)
    for file in ("current.json", f"versions/{version_of(home).root.name}/version.json"):
        edited(home / "out.zarr" / file, lambda value: value.pop("digest", None))
    assert len(there(home)) == N
    assert extend(job_of(home))["unchanged"]


def test_the_command_says_what_is_damaged_and_what_to_do(home):
    whole = CliRunner().invoke(app, ["verify", str(home / "out.zarr")])
    assert whole.exit_code == 0, whole.output
    assert "as published" in whole.output
    shape(version_of(home))
    found = CliRunner().invoke(app, ["verify", str(home / "out.zarr")])
    assert found.exit_code == 6
    assert "its ranges end with row 90" in found.output
    assert "bigembed refresh" in found.output
