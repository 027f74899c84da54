"""Data sets: the synthetic ones of the source documents, block by block, and loaders for real ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from bigembed.datasets.closed_forms import complete_graph, disks, ring_graph, ring_graphs, us_cities
from bigembed.datasets.images import coil20, digits, mnist, pacman, rotated
from bigembed.datasets.synthetic import (
    Dataset,
    circle,
    clusters,
    hypersphere,
    interval,
    mixture,
    plane,
    s_curve,
    spiral,
    swiss_roll,
    swiss_roll_mesh,
    torus,
)
from bigembed.errors import InputError, InputTypeError

REGISTRY: dict[str, Callable[..., Dataset]] = {
    function.__name__: function
    for function in (
        circle,
        clusters,
        coil20,
        digits,
        disks,
        hypersphere,
        interval,
        mixture,
        mnist,
        pacman,
        plane,
        rotated,
        s_curve,
        spiral,
        swiss_roll,
        swiss_roll_mesh,
        torus,
        us_cities,
    )
}
"""Every data set by name."""

GRAPHS = {function.__name__: function for function in (complete_graph, ring_graph, ring_graphs)}
"""Graphs by name: weights, not rows, so they are not among the data sets of a job."""

__all__ = ["GRAPHS", "REGISTRY", "Dataset", "dataset", "parameters", *sorted(REGISTRY), *sorted(GRAPHS)]


def dataset(name: str, **given: Any) -> Dataset:
    """The data set of that name, with the parameters of its function.

    Parameters
    ----------
    name : one of ``REGISTRY``: the name of the function.
    n : int ≥ 1, the number of rows.
    seed : int ≥ 0, of the random rows.
    noise : float ≥ 0, the standard deviation of Gaussian noise on every column, in units of the data.
    dtype : a floating-point type by name.
    given : these, as far as the function takes them, and its own.

    Returns
    -------
    :class:`Dataset`: rows are made when they are asked for.

    Raises
    ------
    InputError : an unknown name or parameter (with the nearest known one), a value out of range.

    Examples
    --------
    >>> dataset("swiss_roll", n=10_000_000, noise=0.05).rows(5_000_000, 5_000_002).shape
    (2, 3)
    """
    known = parameters(name)
    unknown = [key for key in given if key not in known]
    if unknown:
        hints = [f"{key!r}{_nearest(key, list(known))}" for key in unknown]
        raise InputError(f"data set {name!r}: unknown parameter {', '.join(hints)}; it has {', '.join(known)}")
    missing = [key for key, value in known.items() if value.default is inspect.Parameter.empty and key not in given]
    if missing:
        raise InputError(f"data set {name!r}: parameter {', '.join(missing)} must be given")
    try:
        return REGISTRY[name](**given)
    except TypeError as error:
        raise InputTypeError(f"data set {name!r}: a parameter of the wrong type: {given} ({error})") from error


def parameters(name: str) -> dict[str, inspect.Parameter]:
    """The parameters of a data set, with their defaults."""
    if name not in REGISTRY:
        names = sorted(REGISTRY)
        raise InputError(f"no data set {name!r}{_nearest(name, names)}; there are {', '.join(names)}")
    return dict(inspect.signature(REGISTRY[name]).parameters)


def _nearest(name: str, names: list[str]) -> str:
    close = get_close_matches(name, names, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
