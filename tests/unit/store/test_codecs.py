"""Codecs of Zarr arrays: those that are known are read, others are refused before they are built."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
import zarr.codecs

import bigembed as be
from bigembed.errors import InputError
from bigembed.rows.formats.registry import ingest
from bigembed.store.metadata import KNOWN, NUMCODECS

ROWS = np.arange(24.0).reshape(8, 3)


class Opened:
    """What a pickle executes: it leaves a file."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.place,)


@pytest.fixture(autouse=True)
def unpickling(monkeypatch: pytest.MonkeyPatch) -> None:
    """As versions of numcodecs before 0.16.6 did, or one that was told to."""
    monkeypatch.setattr("numcodecs.pickles.ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)


def pickled_array(path: Path, proof: Path) -> Path:
    """A Zarr array of format 2 whose only chunk is a pickle that leaves a file."""
    path.mkdir(parents=True)
    about = {
        "zarr_format": 2, "shape": [2, 2], "chunks": [2, 2], "dtype": "<f8", "fill_value": 0.0, "order": "C",
        "compressor": None, "filters": [{"id": "pickle", "protocol": 5}],
    }  # fmt: skip
    (path / ".zarray").write_text(json.dumps(about))
    (path / "0.0").write_bytes(pickle.dumps(Opened(proof)))
    return path


def test_a_pickle_is_not_executed(tmp_path: Path) -> None:
    proof = tmp_path / "executed"
    path = pickled_array(tmp_path / "rows.zarr", proof)
    for read in (be.open_array, be.PCA(1).fit, lambda path: ingest(path, tmp_path / "copy.zarr")):
        with pytest.raises(InputError, match=r"the Zarr codec pickle is not read.*Known: .*zstd"):
            read(str(path))
    assert not proof.exists()


def test_a_pickle_in_a_group_is_not_executed(tmp_path: Path) -> None:
    proof = tmp_path / "executed"
    group = tmp_path / "cells.zarr"
    zarr.open_group(group, mode="w", zarr_format=2, attributes={"encoding-type": "anndata"})
    pickled_array(group / "X", proof)
    with pytest.raises(InputError, match="the Zarr codec pickle is not read"):
        ingest(group, tmp_path / "copy.zarr")
    rows = tmp_path / "sparse.zarr"
    zarr.open_group(rows, mode="w", zarr_format=2, attributes={"encoding-type": "csr_matrix", "shape": [2, 2]})
    for name in ("indptr", "indices", "data"):
        pickled_array(rows / name, proof)
    with pytest.raises(InputError, match="the Zarr codec pickle is not read"):
        ingest(rows, tmp_path / "copy.zarr")
    assert not proof.exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda about: about["codecs"].append({"name": "numcodecs.pickle", "configuration": {}}),
        lambda about: about["codecs"][0]["configuration"]["codecs"].append({"name": "somebody.codec"}),
        lambda about: about["codecs"][0]["configuration"].update(index_codecs=[{"name": "somebody.codec"}]),
        lambda about: about.update(storage_transformers=[{"name": "somebody.transformer"}]),
        lambda about: about["codecs"].append(7),
        lambda about: about["codecs"].append({"name": ["bytes"]}),
    ],
)
def test_codecs_of_format_3_are_looked_at_wherever_they_stand(tmp_path: Path, change: Any) -> None:
    path = tmp_path / "rows.zarr"
    zarr.create_array(path, data=ROWS, chunks=(2, 3), shards=(4, 3))
    file = path / "zarr.json"
    about = json.loads(file.read_text())
    change(about)
    file.write_text(json.dumps(about))
    with pytest.raises(InputError, match=r"the Zarr codec .* is not read"):
        be.open_array(path)


def test_the_summary_of_a_group_is_looked_at(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "g.zarr", mode="w", zarr_format=2)
    group.create_array("x", data=ROWS).attrs["codecs"] = ["words of the user"]
    zarr.consolidate_metadata(group.store, zarr_format=2)
    from bigembed.store.metadata import refuse_codecs

    refuse_codecs(tmp_path / "g.zarr")
    file = tmp_path / "g.zarr" / ".zmetadata"
    file.write_text(file.read_text().replace('"zarr_format": 2', '"filters": [{"id": "pickle"}], "zarr_format": 2'))
    with pytest.raises(InputError, match="pickle"):
        refuse_codecs(tmp_path / "g.zarr")


@pytest.mark.parametrize(
    "codec", [numcodecs.Zlib(), numcodecs.LZ4(), numcodecs.Blosc(), numcodecs.Zstd(), numcodecs.GZip(), None]
)
def test_what_zarr_2_wrote_is_read(tmp_path: Path, codec: Any) -> None:
    zarr.create_array(tmp_path / "a", data=ROWS, zarr_format=2, filters=[numcodecs.Shuffle(8)], compressors=codec)
    assert np.array_equal(be.open_array(tmp_path / "a").compute(), ROWS)


def test_every_known_codec_has_a_name_that_zarr_knows() -> None:
    """And none of those that make Python objects of bytes is among them."""
    assert not {"pickle", "msgpack2", "json2"} & {*NUMCODECS, *(name.removeprefix("numcodecs.") for name in KNOWN)}
    there = {*numcodecs.registry.codec_registry, *numcodecs.registry.entries}
    assert {*NUMCODECS} - {"pcodec", "zfpy", "crc32c"} <= there
