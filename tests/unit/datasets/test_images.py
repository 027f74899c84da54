"""Loaders: what is read equals what was written, and what is missing is named."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bigembed import datasets
from bigembed.errors import DamagedError, InputError, MissingPathError
from bigembed.rows.formats.binary import read_idx
from bigembed.runtime.blocks import Array


def idx(array: Array) -> bytes:
    shape = b"".join(np.array(size, dtype=">u4").tobytes() for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + shape + array.astype(np.uint8).tobytes()


def write_mnist(folder: Path) -> dict[str, tuple[Array, Array]]:
    rng = np.random.default_rng(0)
    made = {}
    for part, stem, count in (("train", "train", 30), ("test", "t10k", 7)):
        images, labels = rng.integers(0, 256, (count, 28, 28)), rng.integers(0, 10, count)
        (folder / f"{stem}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (folder / f"{stem}-labels-idx1-ubyte").write_bytes(idx(labels))
        made[part] = (images.reshape(count, 784), labels)
    return made


def test_digits() -> None:
    digits = datasets.digits()
    assert digits.shape == (1797, 64)
    rows, truth = digits.draw(10, 20)
    assert rows.dtype == np.float32
    assert (rows.min(), rows.max()) == (0.0, 16.0)
    np.testing.assert_array_equal(truth["label"], np.arange(10))
    assert datasets.dataset("digits", n=100).rows().shape == (100, 64)
    with pytest.raises(InputError, match="it has 1797 rows"):
        datasets.digits(2000)


@pytest.mark.parametrize("part", ["train", "test", "all"])
def test_mnist(part: str, tmp_path: Path) -> None:
    made = write_mnist(tmp_path)
    parts = ["train", "test"] if part == "all" else [part]
    rows, truth = datasets.mnist(tmp_path, part=part).draw()
    np.testing.assert_array_equal(rows, np.concatenate([made[name][0] for name in parts]))
    np.testing.assert_array_equal(truth["label"], np.concatenate([made[name][1] for name in parts]))


def test_mnist_names_every_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MissingPathError, match=r"2 of 2 .*t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte"):
        datasets.mnist(tmp_path, part="test")
    with pytest.raises(InputError, match="'train', 'test' or 'all'"):
        datasets.mnist(tmp_path, part="both")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x89PNG....", "not an idx file"),
        (b"", "not an idx file"),
        (idx(np.zeros((3, 4)))[:-1], "its header promises 12"),
        (idx(np.zeros((3, 4)))[:6], "ends within its header"),
    ],
)
def test_idx_that_is_none(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises((InputError, DamagedError), match=said):
        read_idx(tmp_path / "a")


def test_coil20(tmp_path: Path) -> None:
    folder = tmp_path / "coil-20-proc"
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (128, 128)).astype(np.uint8)
    for item in range(1, 21):
        for view in range(72):
            shown = (pixels + item + view).astype(np.uint8) if item < 3 and view < 2 else pixels[:1, :1]
            Image.fromarray(shown).save(folder / f"obj{item}__{view}.png")
    coil = datasets.coil20(tmp_path)
    assert coil.shape == (1440, 16384)
    rows, truth = coil.draw(72, 74)
    np.testing.assert_array_equal(rows[1].reshape(128, 128), (pixels + 3).astype(np.uint8))
    assert truth["label"].tolist() == [1, 1]
    assert truth["angle"].tolist() == [0, 5]
    with pytest.raises(InputError, match="128 × 128"):
        coil.rows(5, 6)
    (folder / "obj7__3.png").unlink()
    with pytest.raises(MissingPathError, match=r"1 of 1440 files are missing: obj7__3\.png"):
        datasets.coil20(folder)
