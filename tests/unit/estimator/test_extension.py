"""Coordinates of many new rows: in any batches and order the same bytes; resumed, locked, refused."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import bigembed as be
from bigembed.errors import ComponentsWarning, ExistingOutputError, InputError, LockedError
from bigembed.estimator import extension, transform
from bigembed.estimator.extension import left_out_of
from bigembed.estimator.transform import groups
from bigembed.store.arrays import read_array
from bigembed.store.locks import hold
from tests.blocks import graph_blocks
from tests.executors import executor


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(extension, "MAX_BATCH", 96)
    monkeypatch.setattr(extension, "MIN_BATCH", 16)


@pytest.fixture(scope="module")
def once():
    """A map in blocks of at most 400 rows."""
    generator = np.random.default_rng(0)
    X = np.concatenate([generator.normal(size=(1100, 3)), generator.normal(size=(60, 3)) + 30])
    with warnings.catch_warnings(), graph_blocks():
        warnings.simplefilter("ignore", ComponentsWarning)
        dm = be.DiffusionMap(n_components=3, n_neighbors=8, components="largest").fit(X)
    assert len(dm.graph_.matrix.rows) > 2
    return dm


@pytest.fixture
def fitted(once, small_blocks):
    return once


@pytest.fixture
def new():
    generator = np.random.default_rng(1)
    return np.concatenate([generator.normal(size=(500, 3)), generator.normal(size=(40, 3)) + 30])


LOOKED_AT = "sample"
"""The tasks that look at some of the new rows, in every call anew: they are not counted."""


def stop_after(count, label):
    """An executor that fails in the middle of a map of this label, and counts the tasks that it ran."""
    ran = []

    def run(calls, name):
        results = []
        for number, call in enumerate(calls):
            if name == label and number == count:
                raise RuntimeError("stopped")
            ran.extend([name] * (name != LOOKED_AT))
            results.append(call())
        return results

    return run, ran


@pytest.mark.parametrize("label", ["sort_block", "extend_group", "restore_rows"])
def test_rows_go_in_waves_and_a_stopped_wave_goes_on(fitted, new, small_batches, tmp_path, monkeypatch, label):
    """Each wave has its own maps, and takes no more of the disk than its rows do."""
    whole, out = fitted.transform(new), tmp_path / "out.zarr"
    monkeypatch.setattr(transform, "WAVE_ROWS", 1)
    monkeypatch.setattr(transform, "block_rows", lambda width, itemsize: 200)
    np.save(tmp_path / "new.npy", new)
    _, every = once = stop_after(-1, "")
    with executor(once[0]):
        fitted.transform_to(tmp_path / "new.npy", tmp_path / "once.zarr")
    waves = [name for name, before in zip(every, ["", *every], strict=False) if name != before]
    assert waves.count("sort_block") > 1
    last = [number for number, name in enumerate(every) if name == label][-1]
    ran = []

    def stopped(calls, name):
        if name == LOOKED_AT:
            return [call() for call in calls]
        found = []
        for call in calls:
            if len(ran) == last:
                raise RuntimeError("stopped")
            ran.append(name)
            found.append(call())
        return found

    with executor(stopped), pytest.raises(RuntimeError, match="stopped"):
        fitted.transform_to(tmp_path / "new.npy", out)
    complete, again = stop_after(-1, "")
    with executor(complete):
        fitted.transform_to(tmp_path / "new.npy", out)
    assert [*ran, *again] == every
    np.testing.assert_array_equal(read_array(out), whole)
    np.testing.assert_array_equal(read_array(tmp_path / "once.zarr"), whole)


def test_other_rows_do_not_resume_what_is_there(fitted, new, small_batches, tmp_path):
    np.save(tmp_path / "new.npy", new)
    run, _ = stop_after(2, "extend_group")
    with executor(run), pytest.raises(RuntimeError, match="stopped"):
        fitted.transform_to(tmp_path / "new.npy", tmp_path / "out.zarr")
    fitted.transform_to(new[:200] + np.float32(0.5), tmp_path / "out.zarr")
    np.testing.assert_array_equal(read_array(tmp_path / "out.zarr"), fitted.transform(new[:200] + np.float32(0.5)))


def test_bad_rows_leave_nothing(fitted, new, small_batches, tmp_path):
    new[321, 1] = np.nan
    with pytest.raises(InputError, match=r"contains NaN.*\[321\]"):
        fitted.transform_to(new, tmp_path / "out.zarr")
    with pytest.raises(InputError, match=r"contains (NaN|infinity)"):
        fitted.transform(new)
    assert list(tmp_path.iterdir()) == []


def test_an_output_is_written_by_one_at_a_time_and_never_replaced(fitted, new, tmp_path):
    out = tmp_path / "out.zarr"
    run, _ = stop_after(0, "restore_rows")
    with executor(run), pytest.raises(RuntimeError, match="stopped"):
        fitted.transform_to(new, out)
    with hold(tmp_path / "out.zarr.partial"), pytest.raises(LockedError):
        fitted.transform_to(new, out)
    fitted.transform_to(new, out)
    with pytest.raises(ExistingOutputError):
        fitted.transform_to(new, out)


@given(
    arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(1, 9)), elements=st.integers(0, 40)), st.integers(1, 60)
)
def test_groups_take_everything_once(counts, batch):
    taken = np.zeros_like(counts)
    for first, last, start, stop in groups(counts, batch):
        assert counts[start:stop, first:last].sum() > 0
        taken[start:stop, first:last] += 1
        if last - first > 1:
            assert counts[start:stop, first:last].sum() < max(batch, 2)
    assert (taken[counts > 0] == 1).all()
    assert (taken <= 1).all()


def test_rows_that_a_step_left_out_are_counted(tmp_path: Path) -> None:
    found = np.ones((300, 2))
    found[[3, 250]] = np.nan
    found[7, 0] = np.nan  # (it has a coordinate)
    np.save(tmp_path / "found.npy", found)
    path = str(tmp_path / "found.npy")
    assert left_out_of(path, [be.Missing("drop")]) == 2
    assert left_out_of(path, [be.Missing("fill")]) == 0  # (nothing is read: no step leaves rows out)
