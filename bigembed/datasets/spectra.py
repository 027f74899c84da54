"""Laplace–Beltrami spectra of the sets that have a closed form: what a diffusion map must find."""

from __future__ import annotations

from itertools import product
from math import comb

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import InputError


def interval_spectrum(count: int, length: float = 1.0) -> Array:
    """(πk / length)², k = 1, 2, …, with free ends: eigenfunctions cos(πkx / length).

    >>> interval_spectrum(2, length=float(np.pi))
    array([1., 4.])
    """
    return (np.pi * np.arange(1, _count(count) + 1) / length) ** 2


def circle_spectrum(count: int, radius: float = 1.0) -> Array:
    """(k / radius)², each twice.

    >>> circle_spectrum(5)
    array([1., 1., 4., 4., 9.])
    """
    return ((np.arange(_count(count)) // 2 + 1) / radius) ** 2


def torus_spectrum(count: int, radius: float = 1.0, radius2: float = 0.5) -> Array:
    """(j / radius)² + (k / radius2)² over all integer pairs but (0, 0), ascending.

    >>> torus_spectrum(6, 1.0, 0.5)
    array([1., 1., 4., 4., 4., 4.])
    """
    reach = _count(count)
    frequencies = range(-reach, reach + 1)
    values = np.sort([(j / radius) ** 2 + (k / radius2) ** 2 for j, k in product(frequencies, frequencies)])
    return np.asarray(values[1 : count + 1])


def hypersphere_spectrum(count: int, d: int = 3) -> Array:
    """l(l + d − 2) on the unit sphere in R^d, l = 1, 2, …, with the multiplicity of the harmonics.

    >>> hypersphere_spectrum(9)
    array([ 2.,  2.,  2.,  6.,  6.,  6.,  6.,  6., 12.])
    """
    values: list[float] = []
    degree = 0
    while len(values) < _count(count):
        degree += 1
        multiplicity = comb(degree + d - 1, d - 1) - comb(degree + d - 3, d - 1)
        values += [float(degree * (degree + d - 2))] * multiplicity
    return np.array(values[:count])


def _count(count: int) -> int:
    if count < 1:
        raise InputError(f"spectrum: {count} eigenvalues asked for; at least 1")
    return count
