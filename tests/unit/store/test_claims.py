"""Files that claim what is not there, and codecs that are not known."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
import zarr.codecs

import bigembed as be
from bigembed import PCA
from bigembed.errors import BigembedError, DamagedError, InputError, PlanError
from bigembed.rows.formats import ingest, open_reader
from bigembed.rows.formats.binary import read_idx
from bigembed.rows.opening import open_zarr
from bigembed.rows.reader import Choice
from bigembed.rows.sparse import group_source, read_csr, write_csr
from bigembed.store import files as claims
from bigembed.store.arrays import read_array

ROWS = np.arange(12.0).reshape(6, 2)


def claimed(path: Path, version: int = 3, **changes: object) -> Path:
    """A small Zarr array whose metadata say something else."""
    zarr.create_array(path, data=ROWS, chunks=(2, 2), zarr_format=version)
    file = path / ("zarr.json" if version == 3 else ".zarray")
    about = json.loads(file.read_text())
    if version == 3 and "chunks" in changes:
        about["chunk_grid"]["configuration"]["chunk_shape"] = changes.pop("chunks")
    file.write_text(json.dumps(about | changes))
    return path


def idx(shape: tuple[int, ...], body: bytes) -> bytes:
    return b"\0\0\x08" + bytes([len(shape)]) + np.array(shape, ">u4").tobytes() + body


def virtual(h5py, path: Path, source: str, rows: int = 6) -> Path:
    layout = h5py.VirtualLayout((rows, 2), "f8")
    layout[:6] = h5py.VirtualSource(source, "rows", (6, 2))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("all", layout)
    return path


class TestClaims:
    """Files that claim more than they hold, or hold their numbers elsewhere: refused before memory is taken, by
    name."""

    @pytest.fixture(autouse=True)
    def little_memory(self):
        """A GiB beside what the process has: what is proportional to a claim ends the test, not the machine."""
        before = resource.getrlimit(resource.RLIMIT_AS)
        size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 30), before[1]))
        yield
        resource.setrlimit(resource.RLIMIT_AS, before)

    @pytest.mark.parametrize("version", [2, 3])
    @pytest.mark.parametrize("shape", [[10**9, 1], [10**18, 1], [10**9, 10**9], [1, 10**15]])
    def test_a_billion_chunks_are_not_listed(self, version, shape, tmp_path):
        path = claimed(tmp_path / "a.zarr", version, shape=shape, chunks=[1, 1])
        for use in (open_zarr, open_reader, PCA(1).fit, lambda path: ingest(path, tmp_path / "out.zarr")):
            with pytest.raises(BigembedError, match=r"chunks are missing|claims"):
                use(str(path))
        with pytest.raises(InputError, match=r"claims|are absent"):
            open_reader(path, Choice(fill_absent=True))

    @pytest.mark.parametrize("version", [2, 3])
    def test_a_chunk_that_claims_gigabytes(self, version, tmp_path):
        path = claimed(tmp_path / "a.zarr", version, shape=[6, 2], chunks=[10**9, 2])
        for use in (open_zarr, open_reader):
            with pytest.raises(InputError, match="claims chunks"):
                use(path)

    def test_a_chunk_that_unpacks_to_less_leaves_no_memory_behind_in_the_rows(self, tmp_path):
        """What a decompressor leaves untouched is whatever lay there."""
        for codec in (zarr.codecs.ZstdCodec(), zarr.codecs.BloscCodec()):
            path = tmp_path / f"{type(codec).__name__}.zarr"
            zarr.create_array(path, data=ROWS, chunks=(2, 2), compressors=[codec])
            about = json.loads((path / "zarr.json").read_text())
            about["chunk_grid"]["configuration"]["chunk_shape"] = [4, 2]
            about["shape"] = [12, 2]
            (path / "zarr.json").write_text(json.dumps(about))
            with pytest.raises(DamagedError, match="fewer than 64 bytes"):
                read_array(path)

    def test_rows_that_no_machine_holds(self, tmp_path, monkeypatch):
        with pytest.raises(InputError, match=r"claims rows of shape \(1000000000, 1000\)"):
            claims.refuse_rows(__file__, (10**9, 1000), 8)
        claims.refuse_rows(__file__, (10**6, 1000), 8)
        with pytest.raises(PlanError, match="a task would hold"):
            claims.refuse_memory("x", 1 << 50)

    def test_no_pipe_is_waited_for(self, tmp_path):
        os.mkfifo(tmp_path / "rows.npy")
        path = claimed(tmp_path / "a.zarr")
        (path / "c/1/0").unlink()
        os.mkfifo(path / "c/1/0")
        group = tmp_path / "csr.zarr"
        write_csr(group, np.eye(4))
        (group / "data/zarr.json").unlink()
        os.mkfifo(group / "data/zarr.json")
        for place in (tmp_path / "rows.npy", path, group, Path("/dev/zero")):
            with pytest.raises(InputError, match="neither a file nor a folder"):
                open_reader(place)
        for use in (PCA(1).fit, open_zarr):
            with pytest.raises(DamagedError, match="missing"):
                use(str(path))
        with pytest.raises(InputError, match="neither a file"):
            PCA(1).fit(str(tmp_path / "rows.npy"))
        with pytest.raises(InputError, match="neither a file"):
            group_source(group)

    def test_pointers_of_sparse_rows_beyond_their_entries(self, tmp_path):
        write_csr(tmp_path / "a", np.eye(4))
        zarr.open_array(tmp_path / "a/indptr", mode="r+")[4] = 10**12
        with pytest.raises(DamagedError, match="pointers are not between 0 and 4"):
            read_csr(str(tmp_path / "a"), 0, 4, 4, "f8")
        zarr.open_group(tmp_path / "a", mode="r+").attrs["shape"] = [4, 10**18]
        with pytest.raises(InputError, match="attribute 'shape'"):
            group_source(tmp_path / "a")

    def test_headers_of_npy_that_claim(self, tmp_path):
        path = tmp_path / "a.npy"
        for shape in ((10**15, 4), (1, 10**18), (-1, 4), "(" * 4000):
            header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(8000).encode()
            path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(96))
            for use in (open_reader, PCA(1).fit):
                with pytest.raises(InputError, match=r"not readable as \.npy"):
                    use(str(path))

    def test_idx_files_that_claim_or_are_cut_off(self, tmp_path):
        whole = gzip.compress(idx((6, 4), bytes(range(24))))
        wrong = bytearray(whole)
        wrong[-6] ^= 1  # (of the CRC)
        bad = {
            "crc": bytes(wrong), "cut": whole[:-3], "cut2": whole[:-9], "longer": gzip.compress(idx((6, 4), bytes(25))),
            "shorter": gzip.compress(idx((6, 4), bytes(23))),
            "bomb": gzip.compress(idx((2**32 - 1, 2**16), bytes(10**6))),
        }  # fmt: skip
        for name, content in bad.items():
            path = tmp_path / f"{name}.gz"
            path.write_bytes(content)
            for use in (read_idx, lambda path: ingest(path, tmp_path / "out.zarr")):
                with pytest.raises((DamagedError, InputError)):
                    use(path)
            assert not (tmp_path / "out.zarr").exists()
        (tmp_path / "whole.gz").write_bytes(whole)
        assert ingest(tmp_path / "whole.gz", tmp_path / "out.zarr") == (6, 4)
        assert read_idx(tmp_path / "whole.gz").sum() == sum(range(24))

    # ---------------------------------------------------------------------------------------- HDF5

    @pytest.fixture
    def h5py(self):
        return pytest.importorskip("h5py")

    def test_hdf5_that_was_never_written_is_refused(self, h5py, tmp_path):
        for chunks in ((2, 2), None):
            with h5py.File(tmp_path / "a.h5", "w") as file:
                made = file.create_dataset("rows", (6, 2), "f8", chunks=chunks)
                if chunks:
                    made[:3] = 1.0
            with pytest.raises(DamagedError, match=r"1 of 3 chunks were never written|its numbers were never written"):
                open_reader(tmp_path / "a.h5")
            assert open_reader(tmp_path / "a.h5", Choice(fill_absent=True)).shape == (6, 2)
            with h5py.File(tmp_path / "a.h5") as file, pytest.raises(DamagedError, match="never written"):
                PCA(1).fit(file["rows"])

    def test_external_storage_of_hdf5_is_refused(self, h5py, tmp_path):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file.create_dataset("rows", (2, 2), "u1", external=[("/etc/passwd", 0, 4)])
        with pytest.raises(InputError, match="external storage"):
            ingest(tmp_path / "a.h5", tmp_path / "out.zarr")

    def test_virtual_datasets_of_hdf5(self, h5py, tmp_path):
        (tmp_path / "in").mkdir()
        for place in ("in/part.h5", "part.h5"):
            with h5py.File(tmp_path / place, "w") as file:
                file["rows"] = ROWS
        assert ingest(virtual(h5py, tmp_path / "a.h5", "in/part.h5"), tmp_path / "out.zarr") == (6, 2)
        np.testing.assert_array_equal(read_array(tmp_path / "out.zarr"), ROWS)
        cases = {"in/gone.h5": "is missing", "../part.h5": "outside of", str(tmp_path / "part.h5"): "outside of"}
        for source, message in cases.items():
            with pytest.raises(BigembedError, match=message):
                open_reader(virtual(h5py, tmp_path / "in/b.h5", source.removeprefix("in/")))
        with pytest.raises(DamagedError, match="maps 12 of its 20 numbers"):
            open_reader(virtual(h5py, tmp_path / "c.h5", "in/part.h5", rows=10))
        with h5py.File(tmp_path / "in/part.h5", "w") as file:
            file["rows"] = ROWS[:3]
        with pytest.raises(DamagedError, match="fewer rows"):
            open_reader(tmp_path / "a.h5")

    def test_links_into_other_files(self, h5py, tmp_path):
        with h5py.File(tmp_path / "other.h5", "w") as file:
            file["rows"] = ROWS
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file["rows"] = h5py.ExternalLink("other.h5", "/rows")
            file["soft"] = h5py.SoftLink("/rows")
        with pytest.raises(InputError, match="no datasets could be the rows"):
            open_reader(tmp_path / "a.h5")
        for name in ("rows", "soft"):
            with pytest.raises(InputError, match="no dataset"):
                open_reader(tmp_path / "a.h5", Choice(array=(name,)))
        with h5py.File(tmp_path / "b.h5ad", "w") as file:
            file["X"] = h5py.ExternalLink("other.h5", "/rows")
        with pytest.raises(InputError, match="links to other files"):
            open_reader(tmp_path / "b.h5ad")
        with h5py.File(tmp_path / "source.h5", "w") as file:
            file["rows"] = h5py.ExternalLink("other.h5", "/rows")
        with pytest.raises(DamagedError, match="holds no dataset rows"):
            open_reader(virtual(h5py, tmp_path / "c.h5", "source.h5"))

    def test_netcdf_that_lies_elsewhere(self, h5py, tmp_path):
        netcdf = pytest.importorskip("netCDF4")
        with netcdf.Dataset(tmp_path / "a.nc", "w") as file:
            file.createDimension("r", 2)
            file.createDimension("c", 2)
            file.createVariable("rows", "u1", ("r", "c"))[:] = 1
        assert open_reader(tmp_path / "a.nc").shape == (2, 2)
        with h5py.File(tmp_path / "a.nc", "r+") as file:
            del file["rows"]
            file.create_dataset("rows", (2, 2), "u1", external=[("/etc/passwd", 0, 4)])
        with pytest.raises(InputError, match="external storage"):
            open_reader(tmp_path / "a.nc")
        with h5py.File(tmp_path / "a.nc", "r+") as file:
            del file["rows"]
            file["rows"] = h5py.ExternalLink("b.nc", "/rows")
        with pytest.raises(InputError, match="links to other files"):
            open_reader(tmp_path / "a.nc")


CODECS_ROWS = np.arange(24.0).reshape(8, 3)


class Opened:
    """What a pickle executes: it leaves a file."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.place,)


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


class TestCodecs:
    """Codecs of Zarr arrays: those that are known are read, others are refused before they are built."""

    @pytest.fixture(autouse=True)
    def unpickling(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As versions of numcodecs before 0.16.6 did, or one that was told to."""
        monkeypatch.setattr("numcodecs.pickles.ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)

    def test_a_pickle_is_not_executed(self, tmp_path: Path) -> None:
        proof = tmp_path / "executed"
        path = pickled_array(tmp_path / "rows.zarr", proof)
        for read in (be.open_array, be.PCA(1).fit, lambda path: ingest(path, tmp_path / "copy.zarr")):
            with pytest.raises(InputError, match=r"the Zarr codec pickle is not read.*Known: .*zstd"):
                read(str(path))
        assert not proof.exists()

    def test_a_pickle_in_a_group_is_not_executed(self, tmp_path: Path) -> None:
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
    def test_codecs_of_format_3_are_looked_at_wherever_they_stand(self, tmp_path: Path, change: Any) -> None:
        path = tmp_path / "rows.zarr"
        zarr.create_array(path, data=CODECS_ROWS, chunks=(2, 3), shards=(4, 3))
        file = path / "zarr.json"
        about = json.loads(file.read_text())
        change(about)
        file.write_text(json.dumps(about))
        with pytest.raises(InputError, match=r"the Zarr codec .* is not read"):
            be.open_array(path)

    def test_the_summary_of_a_group_is_looked_at(self, tmp_path: Path) -> None:
        group = zarr.open_group(tmp_path / "g.zarr", mode="w", zarr_format=2)
        group.create_array("x", data=CODECS_ROWS).attrs["codecs"] = ["words of the user"]
        zarr.consolidate_metadata(group.store, zarr_format=2)
        from bigembed.store.metadata import refuse_codecs

        refuse_codecs(tmp_path / "g.zarr")
        file = tmp_path / "g.zarr" / ".zmetadata"
        file.write_text(file.read_text().replace('"zarr_format": 2', '"filters": [{"id": "pickle"}], "zarr_format": 2'))
        with pytest.raises(InputError, match="pickle"):
            refuse_codecs(tmp_path / "g.zarr")
