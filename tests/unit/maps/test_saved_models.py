"""A saved model is what was saved, or refused: altered, swapped and hostile ones; and nobody writes in its folder."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

import bigembed as be
from bigembed.errors import DamagedError, InputError
from bigembed.jobs.report.lines import verify_lines
from bigembed.jobs.verify import verify
from bigembed.store.arrays import write_array
from bigembed.store.files import digest_of

ROWS = np.random.default_rng(3).normal(size=(60, 4))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    be.KernelPCA(2, gamma=0.3).fit(ROWS).save(tmp_path / "model.zarr")
    return tmp_path / "model.zarr"


def reseal(model: Path) -> None:
    """Every digest as if it had been written so: what a stranger can do."""
    from hashlib import sha256

    for file in sorted(model.glob("manifest/*.json")):
        said = json.loads(file.read_text())
        base = model / "stages" / file.stem
        names = [str(path.relative_to(base)) for path in sorted(base.rglob("*")) if path.is_file()]
        said["files"] = {
            name: [(base / name).stat().st_size, sha256((base / name).read_bytes()).hexdigest()] for name in names
        }
        write_sealed(file, said)
    said = json.loads((model / "model.json").read_text())
    listed = [model / "zarr.json", *sorted(model.glob("manifest/*.json"))]
    said["files"] = {str(path.relative_to(model)): sha256(path.read_bytes()).hexdigest() for path in listed}
    write_sealed(model / "model.json", said)


def write_sealed(file: Path, said: dict[str, Any]) -> None:
    said.pop("digest", None)
    file.write_text(json.dumps({**said, "digest": digest_of(said)}))


def edit(file: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    said = json.loads(file.read_text())
    change(said)
    file.write_text(json.dumps(said))


def files(folder: Path) -> dict[str, Any]:
    return {str(path): (path.stat().st_mtime_ns, path.is_file() and path.read_bytes()) for path in folder.rglob("*")}


@pytest.mark.parametrize("name", ["model.json", "zarr.json", "manifest/solve.json", "manifest/landmarks.json"])
def test_one_digit_in_any_metadata_is_noticed(saved: Path, name: str) -> None:
    text = (saved / name).read_text()
    places = [i for i, letter in enumerate(text) if letter.isdigit()]
    for place in places[:: max(1, len(places) // 12)]:
        changed = f"{text[:place]}{(int(text[place]) + 1) % 10}{text[place + 1 :]}"
        if json.loads(changed) == json.loads(text):
            continue  # (the seventeenth digit of a number may be read as the same number)
        (saved / name).write_text(changed)
        with pytest.raises((DamagedError, InputError)):
            be.load(saved)
        assert verify(saved)["problems"] if name != "zarr.json" else True
    (saved / name).write_text(text)
    assert not verify(saved)["problems"]


def test_metadata_of_arrays_are_compared_when_a_model_is_loaded(saved: Path) -> None:
    file = saved / "stages" / "solve" / "mean" / "zarr.json"
    file.write_text(file.read_text().replace("60", "61"))
    with pytest.raises(DamagedError, match=r"mean/zarr.json: damaged: not as published; copy the model again"):
        be.load(saved)
    assert any("mean/zarr.json" in line for line in verify(saved)["problems"])


def test_swapped_arrays_are_noticed_when_they_are_read(saved: Path) -> None:
    solve = saved / "stages" / "solve"
    (solve / "eigenvalues").rename(solve / "aside")
    (solve / "residuals").rename(solve / "eigenvalues")
    (solve / "aside").rename(solve / "residuals")
    with pytest.raises(DamagedError, match="stage 'solve' is damaged"):
        be.load(saved)


def test_a_model_of_an_earlier_version_is_read_and_verify_says_so(saved: Path) -> None:
    expected = be.load(saved).transform(ROWS)
    for file in (saved / "model.json", *saved.glob("manifest/*.json")):
        said = json.loads(file.read_text())
        file.write_text(json.dumps({key: value for key, value in said.items() if key != "digest"}))
    edit(saved / "model.json", lambda said: said.pop("files"))
    assert np.array_equal(be.load(saved).transform(ROWS), expected)
    found = verify(saved)
    assert not found["problems"]
    assert not found["digest"]


def test_what_is_pickled_is_compared_too() -> None:
    found = be.PCA(2).fit(ROWS)
    state = found.__getstate__()
    again = pickle.loads(pickle.dumps(found))
    assert np.array_equal(again.transform(ROWS), found.transform(ROWS))
    text = b'"n_features_in": 4'
    assert text in state["model"]
    altered = be.PCA.__new__(be.PCA)
    with pytest.raises(DamagedError, match="digest"):
        altered.__setstate__({**state, "model": state["model"].replace(text, b'"n_features_in": 5')})


# --- what a stranger wrote, every digest right ---------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda said: said.update(method="os.system"), "Known: alternating_diffusion_map"),
        (lambda said: said.update(method=["pca"]), "Known: alternating_diffusion_map"),
        (lambda said: said["parameters"].update(workdir="/tmp/elsewhere"), r"parameters: \['workdir'\]"),
        (lambda said: said["parameters"].update(callbacks=["x"]), r"parameters: \['callbacks'\]"),
        (lambda said: said["parameters"].update(n_components=-1), "n_components=-1; allowed"),
        (lambda said: said["parameters"].update(kernel=None), "kernel=None"),
        (lambda said: said.update(parameters=[]), "parameters"),
        (lambda said: said.update(n_features_in=-4), "n_features_in: -4"),
        (lambda said: said.update(feature_names_in=["a"]), "feature_names_in"),
        (lambda said: said.update(certificate=3), "certificate"),
        (lambda said: said.update(in_memory="yes"), "in_memory"),
        (lambda said: said.pop("format"), "format None"),
    ],
)
def test_what_no_model_says_is_refused(saved: Path, change: Callable[[dict[str, Any]], Any], message: str) -> None:
    edit(saved / "model.json", change)
    reseal(saved)
    with pytest.raises((DamagedError, InputError), match=message):
        be.load(saved)


def test_a_shape_that_its_bytes_cannot_hold_is_refused(saved: Path) -> None:
    file = saved / "stages" / "landmarks" / "rows" / "zarr.json"
    whole = file.read_text()
    for shape, chunk in (([10**12, 4], [60, 4]), ([10**12, 4], [10**12, 4]), ([60, 4], [10**9, 4]), ([-1, 4], [60, 4])):
        file.write_text(whole)
        edit(file, lambda said, shape=shape: said.update(shape=shape))
        edit(file, lambda said, chunk=chunk: said["chunk_grid"]["configuration"].update(chunk_shape=chunk))
        reseal(saved)
        with pytest.raises(DamagedError, match=r"zarr.json: damaged: (an array of shape|not the metadata)"):
            be.load(saved)
    file.write_text(whole)
    reseal(saved)
    assert be.load(saved).transform(ROWS).shape == (60, 2)


def test_parts_that_do_not_fit_are_damage_and_no_traceback(saved: Path) -> None:
    shutil.rmtree(saved / "stages" / "solve" / "matrix")
    write_array(saved / "stages" / "solve" / "matrix", np.zeros((7, 2)))
    reseal(saved)
    with pytest.raises(DamagedError, match="the parts of the model do not fit"):
        be.load(saved).transform(ROWS)


def test_nothing_in_a_model_leads_out_of_its_folder(saved: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"of the user")
    chunk = next(
        path for path in (saved / "stages" / "solve").rglob("*") if path.is_file() and path.name != "zarr.json"
    )
    inside = chunk.read_bytes()
    chunk.unlink()
    chunk.symlink_to(secret)
    with pytest.raises(InputError, match="is a link or no file"):
        be.load(saved)
    chunk.unlink()
    chunk.write_bytes(inside)
    manifest = saved / "manifest" / "solve.json"
    edit(saved / "model.json", lambda said: (said.pop("files"), said.pop("digest")))
    whole = json.loads(manifest.read_text())
    for change in (
        {"files": {"../../../secret": [11, "0" * 64]}},
        {"files": {str(secret): [11, ""]}},
        {"stage": "../x"},
    ):
        write_sealed(manifest, whole | change)
        with pytest.raises(DamagedError, match=r"not a manifest|the manifest of another stage"):
            be.load(saved)


def test_what_only_verify_and_save_would_stumble_over(saved: Path) -> None:
    edit(saved / "model.json", lambda said: said["certificate"].pop("seed"))
    edit(saved / "model.json", lambda said: said["certificate"].update(warnings=0.5))
    reseal(saved)
    with pytest.raises(DamagedError, match="the parts of the model do not fit"):
        be.load(saved).save(saved.with_name("again.zarr"))
    with pytest.raises(DamagedError, match="the parts of the model do not fit"):
        be.load(saved)._repr_html_()
    assert "the certificate cannot be shown" in "".join(verify_lines(verify(saved)))
    said = json.loads((saved / "manifest" / "solve.json").read_text())
    said["files"] = {name: [10**400, digest] for name, (_, digest) in said["files"].items()}
    write_sealed(saved / "manifest" / "solve.json", said)
    with pytest.raises(DamagedError):
        be.load(saved)
    assert verify_lines(verify(saved))


# --- reading only --------------------------------------------------------------------------------


def test_nobody_writes_in_the_folder_of_a_model(saved: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", ROWS)
    before = files(saved)
    loaded = be.load(saved)
    expected = loaded.transform(ROWS)
    path = str(tmp_path / "rows.npy")
    assert np.array_equal(loaded.transform(path).compute(), expected)
    assert np.array_equal(loaded.transform(da.from_array(ROWS, chunks=(7, 2))).compute(), expected)
    loaded.transform_to(path, tmp_path / "out.zarr")
    verify(saved)
    pickle.dumps(loaded)
    assert files(saved) == before


def test_what_was_placed_stays_as_long_as_it_is_held(saved: Path, tmp_path: Path) -> None:
    """Also when the estimator is gone: the coordinates lie in a temporary folder that they keep."""
    np.save(tmp_path / "rows.npy", ROWS)
    expected = be.load(saved).transform(ROWS)
    lazy = be.load(saved).transform(str(tmp_path / "rows.npy"))
    assert np.array_equal(lazy.compute(), expected)
