"""Every reader of a format: the rows and the names that its own library wrote, in any range, piece and process.

A new format is a line of ``FORMATS`` in ``tests/unit/rows/written.py``: how its own library writes the rows. What it
alone can choose or get wrong is in ``tests/unit/rows/test_formats.py``.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest

from bigembed.errors import ExistingOutputError
from bigembed.rows import reader
from bigembed.rows.formats import copying, ingest, open_reader, tables
from bigembed.rows.formats.copying import aligned_of
from bigembed.rows.opening import open_zarr
from bigembed.rows.reader import TEXT, Choice, entries_of, named
from bigembed.rows.sparse import group_source
from bigembed.store.arrays import read_array
from bigembed.store.metadata import SEAL
from tests.unit.rows.written import BARE, COLUMNS, FORMATS, NAMED, TABLES, D, N, libraries, names_of, rows_of

RANGES = [(0, N), (0, 1), (99, 101), (N - 1, N), (133, 402)]
AT_ONCE = (*BARE, "rows.csv", "rows.csv.gz")
"""Whose pieces may be larger than a block: they are cheap to hold, or one stream."""


def dense(pieces: Any) -> np.ndarray:
    return np.concatenate([piece.toarray() if hasattr(piece, "toarray") else piece for piece in pieces])


@pytest.mark.parametrize("name", FORMATS)
class TestReader:
    """What all of them keep."""

    @pytest.fixture(autouse=True)
    def small_blocks(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Blocks of 100 rows, so that little data have many; one after the other."""
        for module in (copying, tables):
            monkeypatch.setattr(module, "block_rows", lambda d, itemsize: 100)
        monkeypatch.setattr(copying, "VECTOR_ROWS", 70)
        monkeypatch.setattr(reader, "BLOCK_BYTES", 60 * D * 8)
        with dask.config.set(scheduler="synchronous"):
            yield

    @pytest.fixture
    def choice(self, name: str) -> Choice:
        return Choice(columns=COLUMNS if name in TABLES else ())

    @pytest.fixture
    def path(self, name: str, tmp_path: Path) -> Path:
        libraries(name)
        FORMATS[name](tmp_path / name, rows_of(), names_of())
        return tmp_path / name

    def test_any_range_of_rows_is_that_range_here_and_in_another_process(
        self, name: str, path: Path, choice: Choice
    ) -> None:
        found = open_reader(path, choice)
        assert found.shape == (N, D)
        assert found.dtype == rows_of().astype("f4" if name in BARE else "f8").dtype
        assert 1 <= found.grain <= N
        assert entries_of(found) in (None, np.count_nonzero(rows_of()))
        there = pickle.loads(pickle.dumps(found))
        for start, stop in RANGES:
            pieces = list(found.stream(start, stop))
            np.testing.assert_array_equal(dense(pieces), rows_of()[start:stop])
            np.testing.assert_array_equal(dense(there.stream(start, stop)), rows_of()[start:stop])
            if name not in AT_ONCE and stop - start > 200:
                assert max(piece.shape[0] for piece in pieces) <= 100  # no piece is much of it

    def test_vectors_beside_the_rows_are_found_by_their_names(self, name: str, path: Path, choice: Choice) -> None:
        found = named(open_reader(path, choice))
        if name in BARE:
            assert found is None
            return
        assert found is not None
        ids = "cell" if name in NAMED else found.row_ids
        vector = found.vector(ids)
        assert vector.shape == (N,)
        assert np.concatenate(list(vector.stream(99, 202))).astype(TEXT).tolist() == names_of()[99:202]
        if name in NAMED:
            assert "cell" in found.names

    def test_a_copy_keeps_rows_and_names_and_is_not_made_twice(self, name: str, path: Path, choice: Choice) -> None:
        copy, given = path.parent / "out.zarr", {"ids": "cell"} if name in NAMED else {}
        assert ingest(path, copy, choice, given) == (N, D)
        rows = group_source(copy).read(0, N).toarray() if (copy / "indptr").exists() else read_array(copy)
        np.testing.assert_array_equal(rows, rows_of())
        found = aligned_of(copy)
        assert found == ({} if name in BARE else {"ids": path.parent / "out-ids.zarr"})
        for place in found.values():
            assert read_array(place).tolist() == names_of()
            assert {*open_zarr(place).attrs} == {SEAL}
        with pytest.raises(ExistingOutputError):
            ingest(path, copy, choice, given)
        assert not list(path.parent.glob("*.partial"))
