"""The number of coordinates by spectra that are known."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler

import bigembed as be
from bigembed.errors import InputError
from bigembed.quality.coordinates import chosen_by_spectrum

FLAT = np.linspace(0.2, 0.3, 20)


def chosen(rates: list[float] | np.ndarray, count: int = 15) -> tuple[int, bool]:
    found = chosen_by_spectrum(1 - np.sort(rates)[:count])
    return found.n_components, found.by_gap


@pytest.mark.parametrize("k", [2, 3, 5, 9])
@pytest.mark.parametrize("slow", [1e-3, 1e-6, 0.0])
def test_k_clusters_need_one_coordinate_less(k: int, slow: float) -> None:
    rates = slow * np.linspace(1, 2, k - 1)
    assert chosen(np.concatenate([rates, FLAT])) == (k - 1, True)


def test_manifolds() -> None:
    degrees = np.arange(1, 30)
    assert chosen(1e-4 * np.repeat(degrees[:12], 2) ** 2) == (2, False)  # circle
    assert chosen(1e-4 * degrees**2) == (1, False)  # interval
    assert chosen(1e-4 * np.repeat(degrees[:5] * (degrees[:5] + 1), 2 * degrees[:5] + 1)) == (3, True)  # sphere
    modes = [i**2 + j**2 for i in range(9) for j in range(9) if i + j]
    assert chosen(1e-4 * np.array(modes)) == (3, False)  # square
    strip = [i**2 + (j / 0.12) ** 2 for i in range(30) for j in range(9) if i + j]
    assert chosen(1e-4 * np.array(strip)) == (1, False)  # swiss roll


def test_levels_without_order_seldom_have_a_gap() -> None:
    """Rates evenly random in the logarithm: at most one in twenty."""
    rng = np.random.default_rng(0)
    found = [chosen(np.exp(np.sort(rng.uniform(-6, -1, 15))))[1] for _ in range(400)]
    assert np.mean(found) <= 0.07


def test_separate_parts_and_clusters_in_them() -> None:
    inside = np.concatenate([np.zeros(2), [1e-4, 1.2e-4, 1.5e-4], FLAT])
    assert chosen(inside) == (5, True)
    assert chosen(np.concatenate([np.zeros(2), 1e-3 * np.arange(1, 15) ** 2])) == (2, True)


def test_a_flat_spectrum_asks_for_more() -> None:
    found = chosen_by_spectrum(1 - FLAT[:8])
    assert (found.n_components, found.by_gap) == (7, False)
    assert "compute more" in found.reason


def test_limits() -> None:
    assert chosen([0.0, 0.0, 0.0], 3) == (2, True)
    assert chosen([0.5, 0.5], 2) == (1, False)
    assert chosen([0.5, 1.2], 2) == (1, False)  # a negative eigenvalue
    with pytest.raises(InputError, match="at least 2"):
        chosen_by_spectrum(np.array([0.5]))


def test_fitted_sets() -> None:
    """Separated blobs by their gap; digits, which have none, by the rule."""
    rng = np.random.default_rng(0)
    blobs = rng.normal(size=(240, 3)) + 9 * np.eye(4, 3)[np.arange(240) % 4]
    settings = {"n_components": 12, "bandwidth": "self-tuned"}
    digits = StandardScaler().fit_transform(load_digits().data[::3])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spectra = [be.DiffusionMap(**settings, components="joint").fit(rows).eigenvalues_ for rows in (blobs, digits)]
    assert chosen_by_spectrum(spectra[0]).n_components == 3
    found = chosen_by_spectrum(spectra[1])
    assert not found.by_gap
    assert 2 <= found.n_components <= 10
