"""Data sets."""

from __future__ import annotations

import gzip
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.integrate import quad

from bigembed import datasets
from bigembed.datasets import disks
from bigembed.datasets.synthetic import GRANULE, angle_at, arc_length
from bigembed.errors import DamagedError, InputError, MissingPathError
from bigembed.rows.formats.binary import read_idx
from bigembed.runtime.blocks import Array

SYNTHETIC = sorted(set(datasets.REGISTRY) - {"coil20", "digits", "mnist", "pacman", "rotated", "us_cities"})
N = 2 * GRANULE + 37


class TestDataset:
    """A row is a function of the seed and its number, whatever the blocks in which it is asked for."""

    @pytest.mark.parametrize("name", SYNTHETIC)
    def test_any_cut_gives_the_same_rows(self, name: str) -> None:
        whole = datasets.dataset(name, n=N)
        rows, truth = whole.draw()
        assert rows.shape == whole.shape
        assert rows.dtype == np.float32
        assert np.isfinite(rows).all()
        cuts = [0, 1, 1, GRANULE - 1, GRANULE, GRANULE + 5, 2 * GRANULE + 1, N]
        parts = [whole.draw(a, b) for a, b in pairwise(cuts)]
        np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), rows)
        for key, value in truth.items():
            assert len(value) == N
            np.testing.assert_array_equal(np.concatenate([part[1][key] for part in parts]), value)

    @pytest.mark.parametrize("name", SYNTHETIC)
    def test_blocks_cover_the_rows_and_survive_pickling(self, name: str) -> None:
        whole = datasets.dataset(name, n=5000, seed=3)
        copy = pickle.loads(pickle.dumps(whole))
        blocks = list(copy.blocks(1999))
        assert [(start, stop) for start, stop, _ in blocks] == [(0, 1999), (1999, 3998), (3998, 5000)]
        np.testing.assert_array_equal(np.concatenate([rows for *_, rows in blocks]), np.asarray(whole))

    @pytest.mark.parametrize("name", sorted(set(SYNTHETIC) - {"swiss_roll_mesh"}))
    def test_random_rows_do_not_depend_on_n_and_depend_on_the_seed(self, name: str) -> None:
        few, many = datasets.dataset(name, n=100), datasets.dataset(name, n=10**9)
        np.testing.assert_array_equal(few.rows(), many.rows(0, 100))
        assert not np.array_equal(few.rows(), datasets.dataset(name, n=100, seed=1).rows())
        assert not np.array_equal(few.rows(), many.rows(GRANULE, GRANULE + 100))

    def test_far_rows_of_a_set_larger_than_memory(self) -> None:
        large = datasets.mixture(16_000_000, d=128)
        assert large.rows(15_999_990, 16_000_000).shape == (10, 128)

    @pytest.mark.parametrize(("start", "stop"), [(-1, 3), (3, 2), (0, 101)])
    def test_rows_out_of_range(self, start: int, stop: int) -> None:
        with pytest.raises(InputError, match="it has rows 0 to 100"):
            datasets.circle(100).rows(start, stop)

    @pytest.mark.parametrize(
        ("name", "given", "said"),
        [
            ("swis_roll", {}, "did you mean 'swiss_roll'"), ("swiss_roll", {"nois": 1}, "did you mean 'noise'"),
            ("swiss_roll", {"noise": -1.0}, "not negative"), ("swiss_roll", {"noise": float("nan")}, "finite"),
            ("swiss_roll", {"n": 0}, "at least 1"), ("swiss_roll", {"seed": -1}, "seed -1"),
            ("swiss_roll", {"dtype": "int32"}, "floating-point"), ("hypersphere", {"d": 1}, "at least 2"),
            ("circle", {"radius": 0.0}, "positive"), ("mixture", {"d": 8}, "between 1 and d = 8"),
            ("mixture", {"n_clusters": 0}, "at least 1"), ("mixture", {"noise": -0.1}, "negative"),
            ("mnist", {}, "folder must be given"),
        ],
    )  # fmt: skip
    def test_errors_say_what_is_wrong(self, name: str, given: dict[str, Any], said: str) -> None:
        with pytest.raises(InputError, match=said):
            datasets.dataset(name, **given)


class TestSynthetic:
    """The formulas of the source documents."""

    def test_arc_length_is_the_integral_of_the_speed(self) -> None:
        for angle in (0.5, 6.0, 18.0):
            np.testing.assert_allclose(arc_length(angle), quad(lambda x: np.sqrt(1 + x * x), 0, angle)[0])
        lengths = np.linspace(0.0, 400.0, 1001)
        np.testing.assert_allclose(arc_length(angle_at(lengths)), lengths, rtol=1e-12, atol=1e-12)

    def test_swiss_roll_is_the_map_of_seed_000(self) -> None:
        rows, truth = datasets.swiss_roll(2000, dtype="float64").draw()
        x, y = truth["angle"], truth["height"]
        np.testing.assert_array_equal(rows, np.stack([x * np.cos(x), y, x * np.sin(x)], axis=1))
        assert 6 <= x.min() < 6.1
        assert 17.9 < x.max() <= 18
        assert 6 <= y.min() < y.max() <= 12
        order = np.argsort(x)
        assert (np.diff(truth["arc_length"][order]) > 0).all()
        np.testing.assert_allclose(truth["arc_length"].max(), arc_length(18.0) - arc_length(6.0), rtol=0.01)

    def test_manifolds_with_known_spectra(self) -> None:
        circle = datasets.circle(360, radius=2.0, regular=True, dtype="float64")
        angle = 2 * np.pi * np.arange(360) / 360
        np.testing.assert_allclose(circle.rows(), 2 * np.stack([np.cos(angle), np.sin(angle)], axis=1), atol=1e-12)
        np.testing.assert_array_equal(circle.truth(90, 91)["angle"], angle[90:91])
        torus = datasets.torus(100, radius=2.0, radius2=0.5, dtype="float64").rows()
        np.testing.assert_allclose(np.linalg.norm(torus[:, :2], axis=1), 2.0)
        np.testing.assert_allclose(np.linalg.norm(torus[:, 2:], axis=1), 0.5)
        sphere = datasets.hypersphere(5000, d=5, dtype="float64").rows()
        np.testing.assert_allclose(np.linalg.norm(sphere, axis=1), 1.0)
        np.testing.assert_allclose(sphere.T @ sphere / 5000, np.eye(5) / 5, atol=0.01)
        interval, truth = datasets.interval(100, length=3.0, dtype="float64").draw()
        np.testing.assert_array_equal(interval[:, 0], truth["position"])

    def test_mixture_has_the_intrinsic_dimension(self) -> None:
        rows, truth = datasets.mixture(20_000, d=64, n_clusters=20, intrinsic=12, dtype="float64").draw()
        assert len(np.unique(truth["label"])) == 20
        within = np.concatenate([rows[truth["label"] == c] - rows[truth["label"] == c].mean(0) for c in range(20)])
        deviations = np.linalg.svd(within, compute_uv=False) / np.sqrt(len(rows))
        np.testing.assert_allclose(deviations[:12], 1.0, rtol=0.05)
        np.testing.assert_allclose(deviations[12:], 0.05, rtol=0.1)


class TestGraphs:
    """Graphs of seed 001 (their closed forms: test_diffusion_map.py), and two disks with a corridor."""

    def test_disks_have_their_area_and_a_corridor(self):
        rows, truth = disks(20_000, gap=1.0, width=0.5, dtype="float64").draw()
        label = truth["label"]
        np.testing.assert_allclose(np.mean(label == 2), 0.5 / (2 * np.pi + 0.5), rtol=0.1)
        for side, center in ((0, -1.5), (1, 1.5)):
            radius = np.linalg.norm(rows[label == side] - [center, 0], axis=1)
            assert radius.max() <= 1
            np.testing.assert_allclose(np.mean(radius**2), 0.5, rtol=0.03)
        assert (np.abs(rows[label == 2]) <= [0.5, 0.25]).all()


class TestRotated:
    """Turned pictures: the angles are right, and the rows lie on a closed curve."""

    def test_pacman_is_the_set_of_seed_000(self) -> None:
        rows, truth = datasets.pacman().draw()
        assert rows.shape == (200, 4225)
        assert np.unique(rows).tolist() == [0.0, 255.0]
        np.testing.assert_allclose(truth["angle"], 2 * np.pi * np.arange(200) / 200)
        np.testing.assert_array_equal(datasets.pacman().rows(150, 160), rows[150:160])

    def test_a_quarter_turn_turns_the_pixels(self) -> None:
        rows = datasets.pacman(4).rows().reshape(4, 65, 65)
        assert rows[0, 32, 60] == 0  # at the angle 0 the mouth opens to the right,
        assert rows[1, 4, 32] == 0  # after a quarter of a turn to the top
        for quarter in range(3):
            np.testing.assert_array_equal(np.rot90(rows[quarter]), rows[quarter + 1])
            assert (rows[quarter] != rows[quarter + 1]).any()

    def test_what_is_no_picture(self, tmp_path: Path) -> None:
        with pytest.raises(MissingPathError, match="no such picture"):
            datasets.rotated(tmp_path / "cat.png")
        (tmp_path / "cat.png").write_text("a cat")
        with pytest.raises(InputError, match="not a picture"):
            datasets.rotated(tmp_path / "cat.png")
        with pytest.raises(InputError, match="size = 2"):
            datasets.pacman(size=2)


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


class TestImages:
    """Loaders: what is read equals what was written, and what is missing is named."""

    def test_digits(self) -> None:
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
    def test_mnist(self, part: str, tmp_path: Path) -> None:
        made = write_mnist(tmp_path)
        parts = ["train", "test"] if part == "all" else [part]
        rows, truth = datasets.mnist(tmp_path, part=part).draw()
        np.testing.assert_array_equal(rows, np.concatenate([made[name][0] for name in parts]))
        np.testing.assert_array_equal(truth["label"], np.concatenate([made[name][1] for name in parts]))

    def test_mnist_names_every_missing_file(self, tmp_path: Path) -> None:
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
    def test_idx_that_is_none(self, content: bytes, said: str, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(content)
        with pytest.raises((InputError, DamagedError), match=said):
            read_idx(tmp_path / "a")

    def test_coil20(self, tmp_path: Path) -> None:
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
