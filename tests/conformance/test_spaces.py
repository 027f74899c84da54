"""Every space of block vectors: what is written is read, halos are rows of other blocks, what is not there is named."""

from __future__ import annotations

import errno
import os
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psutil import Process
from scipy import sparse

from bigembed.errors import BigembedError, InputError
from bigembed.runtime.blocks import bounds
from bigembed.store.arrays import write_array
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import StoredMatrix
from bigembed.store.mixed_space import PAGE, MixedSpace, SpillFile
from bigembed.store.spaces import StoredSpace
from bigembed.store.vector_space import MemorySpace, Sweep
from tests.operator_views import memory_matrix

N, CUTS = 50, bounds(50, 20)
X = np.random.default_rng(0).normal(size=(N, 2))


def full() -> None:
    raise OSError(errno.ENOSPC, "no room")


def mixed(matrix: Any, sizes: tuple[int, ...], folder: Path, room: int) -> MixedSpace:
    """Vectors of which so many bytes are in memory; one block of 20 rows takes 320."""
    return MixedSpace(matrix, sizes, spill=SpillFile(str(folder)), room=room)


SPACES = {
    "memory": lambda matrix, sizes, folder: MemorySpace(matrix, sizes),
    "store": lambda matrix, sizes, folder: StoredSpace(matrix, Exchange(str(folder)), sizes),
    **{f"{room} bytes": partial(mixed, room=room) for room in (0, 400, 1000, 10_000)},
}


def fill(block: int) -> Any:
    start, stop = CUTS[block]
    return (X[start:stop],), stop - start


def double(block: int, own: Any, offset: float) -> Any:
    return (2 * own + offset,), float(own.sum())


def negate(block: int, own: Any) -> Any:
    return (-own,), None


def far(block: int, own: Any, halo: Any) -> Any:
    return (), (own, halo)


@pytest.fixture(params=SPACES)
def spaces(request: Any, tmp_path: Path) -> tuple[Any, Any]:
    """Over a matrix, and over blocks alone."""
    half = sparse.random_array((N, N), density=0.1, rng=np.random.default_rng(1)).tocsr()
    matrix = memory_matrix((half + half.T).tocsr(), CUTS)
    make = SPACES[request.param]
    return make(matrix, (), tmp_path / "a"), make(None, tuple(b - a for a, b in CUTS), tmp_path / "b")


def test_vectors_are_written_read_replaced_and_dropped(spaces: tuple[Any, Any]) -> None:
    for space in spaces:
        assert tuple(space.rows) == (20, 20, 10)
        assert space.sweep(fill, writes=["x"], posts=["x"]) == [20, 20, 10]
        sums = space.sweep(double, reads=["x"], writes=["y"], arguments=(1.0,))
        np.testing.assert_allclose(sum(sums), X.sum())
        assert space.sweep(double, reads=["x"], writes=["y"], arguments=(1.0,), descending=True) == sums
        for block, (start, stop) in enumerate(CUTS):
            np.testing.assert_array_equal(space.read("y", block), 2 * X[start:stop] + 1)
        space.write("y", 1, X[:20])
        np.testing.assert_array_equal(space.read("y", 1), X[:20])
        check_as_a_whole(space)
        space.drop("y", "never")
        with pytest.raises(BigembedError):
            space.read("y", 1)
        with pytest.raises(BigembedError):
            space.sweep(double, reads=["y"], writes=["z"], arguments=(1.0,))


def check_as_a_whole(space: Any) -> None:
    """All blocks of a vector "x" are read and written together, replaced one by one, swept, and dropped."""
    np.testing.assert_array_equal(np.concatenate(space.read_all("x")), X)
    space.write_all("w", [X[start:stop] + 3 for start, stop in CUTS])
    np.testing.assert_array_equal(np.concatenate(space.read_all("w")), X + 3)
    np.testing.assert_array_equal(space.read("w", 2), X[40:] + 3)
    space.sweep(double, reads=["w"], writes=["v"], arguments=(1.0,))
    space.write_all("w", [X[start:stop] for start, stop in CUTS])
    space.sweep(double, reads=["w"], writes=["w"], arguments=(0.0,))
    np.testing.assert_array_equal(np.concatenate(space.read_all("w")), 2 * X)
    np.testing.assert_array_equal(np.concatenate(space.read_all("v")), 2 * (X + 3) + 1)
    space.write_all("w", [X[start:stop] for start, stop in CUTS])
    space.write("w", 0, X[:20] + 1)
    np.testing.assert_array_equal(np.concatenate(space.read_all("w"))[:21], np.concatenate([X[:20] + 1, X[20:21]]))
    space.write_all("u", space.read_all("w"))
    space.sweep(negate, reads=["u"], writes=["t"], spends=["u"])
    space.drop("w", "v", "t", "u")
    with pytest.raises(BigembedError):
        space.sweep(double, reads=["w"], writes=["z"], arguments=(1.0,))


def test_halos_are_the_rows_that_other_blocks_posted(spaces: tuple[Any, Any]) -> None:
    joined, apart = spaces
    joined.sweep(fill, writes=["x"], posts=["x"])
    joined.sweep(fill, writes=["quiet"])
    for block, (own, halo) in enumerate(joined.sweep(far, reads=["x"], halos=["x"])):
        np.testing.assert_array_equal(own, X[slice(*CUTS[block])])
        named = [X[CUTS[source][0] + np.asarray(rows)] for source, rows in joined.matrix.block(block).segments()]
        np.testing.assert_array_equal(halo, np.concatenate(named))
        np.testing.assert_array_equal(halo, joined.sweep(far, reads=["quiet"], halos=["quiet"])[block][1])
    apart.sweep(fill, writes=["x"])
    with pytest.raises(InputError, match="without a matrix"):
        apart.sweep(far, reads=["x"], halos=["x"])


def test_halos_are_those_of_what_was_written_last(spaces: tuple[Any, Any]) -> None:
    """Of a vector that was posted, and is written again by a sweep that does not post it, or block by block."""
    space, _ = spaces
    expected = {}
    for block in range(3):
        named = [X[CUTS[source][0] + np.asarray(rows)] for source, rows in space.matrix.block(block).segments()]
        expected[block] = np.concatenate(named)
    space.sweep(fill, writes=["x"], posts=["x"])
    space.sweep(negate, reads=["x"], writes=["x"])
    for block, (_, halo) in enumerate(space.sweep(far, reads=["x"], halos=["x"])):
        np.testing.assert_array_equal(halo, -expected[block])
    space.sweep(fill, writes=["x"], posts=["x"])
    for block, (start, stop) in enumerate(CUTS):
        space.write("x", block, 3 * X[start:stop])
    for block, (_, halo) in enumerate(space.sweep(far, reads=["x"], halos=["x"])):
        np.testing.assert_array_equal(halo, 3 * expected[block])


def test_a_mixed_space_refuses_a_sweep_that_writes_over_its_halos(tmp_path: Path) -> None:
    with (
        mixed(None, (20, 20, 10), tmp_path / "spill", 700) as space,
        pytest.raises(InputError, match=r"halos.*\['x'\]"),
    ):
        space.sweep(far, reads=["x"], halos=["x"], writes=["x"])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4 * PAGE)), max_size=40))
def test_arrays_in_a_file_stay_what_they_are_whatever_is_written_and_dropped(steps: list[tuple[int, int]]) -> None:
    """Of any sizes; 0 drops. No free place is left out, and none is given to two."""
    with TemporaryDirectory() as folder:
        spill, there = SpillFile(f"{folder}/spill"), dict[int, Any]()
        for number, (key, size) in enumerate(steps):
            if size:
                there[key] = np.full(size, number % 251, np.uint8)
                spill.put(key, there[key])
            else:
                there.pop(key, None)
                spill.drop(key)
            for known, array in there.items():
                np.testing.assert_array_equal(spill.get(known), array)
                np.testing.assert_array_equal(spill.get(known, 1, len(array)), array[1:])
                np.testing.assert_array_equal(spill.rows(known, np.array([0, len(array) - 1])), array[[0, -1]])
        held = sum(-(-len(array) // PAGE) * PAGE for array in there.values())
        assert held + sum(size for _, size in spill.free) == spill.end
        assert all(place + size < after for (place, size), (after, _) in pairwise(spill.free))
        spill.delete()


def test_what_a_mixed_space_spends_makes_room_for_what_takes_its_place(tmp_path: Path) -> None:
    """In memory and in the file; both hold no more than they did, and nothing is left at the end."""
    path = tmp_path / "spill"
    with mixed(None, (20, 20, 10), path, 700) as space:
        space.sweep(fill, writes=["x.0"])
        held = {key[1] for key in space.arrays}
        assert (len(held), space.taken, space.spill.end) == (2, sum(320 if b < 2 else 160 for b in held), 4096)
        for turn in range(5):
            space.sweep(negate, reads=[f"x.{turn}"], writes=[f"x.{turn + 1}"], spends=[f"x.{turn}"])
            assert ({key[1] for key in space.arrays}, space.names) == (held, [f"x.{turn + 1}"])
            assert (space.taken <= 700, space.spill.end) == (True, 4096)
        np.testing.assert_array_equal(np.concatenate(space.read_all("x.5")), -X)
        space.sweep(negate, reads=["x.5"], writes=["kept"])
        assert space.spill.end > 4096  # control: nothing was spent
        space.drop("kept", "x.5")
        assert (space.taken, space.names, space.spill.places) == (0, [], {})
    assert not path.exists()


def test_what_fails_at_a_file_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, and one that was cut off; also on a system that cannot read into an array."""
    spill = SpillFile(str(tmp_path / "spill"))
    spill.put("x", X)
    np.testing.assert_array_equal(spill.get("x"), X)
    monkeypatch.delattr(os, "preadv")
    np.testing.assert_array_equal(spill.get("x"), X)
    monkeypatch.setattr(os, "pwrite", lambda *given: full())
    with pytest.raises(OSError, match="no room") as raised:
        spill.put("y", X)
    assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(tmp_path / "spill"))
    os.truncate(tmp_path / "spill", 8)
    with pytest.raises(OSError, match="cut off"):
        spill.get("x")


def test_files_of_blocks_to_come_are_read_ahead_and_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a system that cannot be asked to."""
    files, asked = {f"x/{b}" for b in range(3)} | {"indices/1/c/0", "squared/1/c/0"}, []
    space = StoredSpace(None, Exchange(str(tmp_path)), (20, 20, 10))
    space.sweep(fill, writes=["x"])
    for array in ("indices", "squared"):
        write_array(tmp_path / array / "1", np.arange(6))
    numbers = {(tmp_path / name).stat().st_ino: name for name in files}
    asks = lambda file, *_: asked.append(numbers[os.fstat(file).st_ino])  # noqa: E731
    monkeypatch.setattr(os, "posix_fadvise", asks, raising=False)
    for descending in (False, True):
        space.sweep(double, reads=["x"], writes=["y"], arguments=(1.0,), descending=descending)
    matrix = StoredMatrix(str(tmp_path), str(tmp_path / "squared"), (20, 20, 10), "")
    for block in (1, 7):
        StoredSpace(matrix, space.exchange).expect(Sweep(far, reads=("x",), halos=("x",)), block)
    assert asked == ["x/2", "x/0", "x/1", "indices/1/c/0", "squared/1/c/0"]
    monkeypatch.delattr(os, "posix_fadvise")
    space.sweep(double, reads=["x"], writes=["y"], arguments=(1.0,))
    assert [file.path for file in Process().open_files() if file.path.startswith(str(tmp_path))] == []
