"""``be.certify``: how well coordinates from anywhere show the rows that they were made from."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bigembed.plotting.canvas import legend, new_axes
from bigembed.plotting.palette import ACCENT, PALE
from bigembed.quality import FIGURES, NEIGHBORS, SAMPLES, judged, preserved, with_error
from bigembed.rows.input import row_source
from bigembed.runtime.parameters import declared
from bigembed.store import PathLike, at, exchange, files, remove


@dataclass(frozen=True)
class MapQuality:
    """Say how well coordinates show rows: figures with standard errors, and what they mean."""

    figures: dict[str, Any]
    """All figures, plain numbers: see :func:`bigembed.certify`."""
    warnings: tuple[str, ...]
    """What is doubtful, and what to do; empty where nothing is."""
    notes: tuple[str, ...]
    """What is worth knowing and no fault of the coordinates."""

    @property
    def preservation(self) -> float:
        """Return the share of the k nearest rows that are among the k nearest on the map."""
        return float(self.figures["preservation"]["value"])

    @property
    def trustworthiness(self) -> float:
        """Return 1 where no row comes near on the map that is far in the data; about ½ for shuffled coordinates."""
        return float(self.figures["trustworthiness"]["value"])

    @property
    def continuity(self) -> float:
        """Return 1 where no row that is near in the data is far on the map; about ½ for shuffled coordinates."""
        return float(self.figures["continuity"]["value"])

    @property
    def triplets(self) -> float:
        """Return the share of random triplets whose two distances are in the same order; ½ for shuffled coordinates."""
        return float(self.figures["triplets"]["value"])

    def as_dict(self) -> dict[str, Any]:
        """Return figures, warnings and notes, as JSON can hold them.

        Returns
        -------
        dict
            All of them, by name.
        """
        return {**self.figures, "warnings": list(self.warnings), "notes": list(self.notes)}

    def lines(self) -> list[str]:
        """Write all of it for people.

        Returns
        -------
        list of str
            The lines.
        """
        f = self.figures
        head = (
            f"{f['n']:,} rows of {f['d']} columns ({f['metric']}), {f['n_coordinates']} coordinates; "
            f"{f['samples']:,} rows sampled, {f['n_neighbors']} neighbors"
        )
        figures = [
            f"  {text.lower():18} {with_error(f[name]):18} shuffled {f[name]['chance']:.3g}"
            for name, (text, _) in FIGURES.items()
        ]
        warnings = [f"  warning: {text}" for text in self.warnings]
        return [head, *figures, *warnings, *(f"  note: {text}" for text in self.notes)]

    def plot(self, ax: Any = None) -> Any:
        """Draw the figures with two standard errors, and the value of each for shuffled coordinates.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, or None
            Where to draw; None is a new figure of pyplot.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        axis = new_axes() if ax is None else ax
        found = [self.figures[name] for name in FIGURES]
        height = range(len(found))[::-1]
        values, errors, chance = ([figure[name] for figure in found] for name in ("value", "standard_error", "chance"))
        axis.errorbar(values, height, xerr=[2 * error for error in errors], fmt="o", color=ACCENT, capsize=3)
        axis.plot(chance, height, "|", color=PALE, markersize=14, label="shuffled")
        axis.set(xlim=(0, 1.02), yticks=height, yticklabels=[text for text, _ in FIGURES.values()])
        legend(axis)
        return axis

    def __repr__(self) -> str:
        return "\n".join(self.lines())


@declared
def certify(
    X: Any,
    Y: Any,
    *,
    n_neighbors: int = NEIGHBORS,
    samples: int = SAMPLES,
    metric: Any = "euclidean",
    seed: int = 0,
    workdir: PathLike | None = None,
) -> MapQuality:
    """Measure how well coordinates made by anything (UMAP, t-SNE, PCA, bigembed) show their rows.

    Sampled rows are compared with *all* rows, in X and on the map. With N_X(i), N_Y(i) the k nearest rows of row i and
    r_X(i, j) the rank of row j by distance from i, means over the sampled i are taken of

    - preservation: |N_X(i) ∩ N_Y(i)| / k;
    - trustworthiness: 1 − 2/(k (2n − 3k − 1)) Σ_{j ∈ N_Y(i)} max(0, r_X(i, j) − k) (Venna & Kaski 2001), which is
      scikit-learn's where all rows are sampled; continuity: the same with X and Y exchanged;
    - triplets: whether two random rows j and l are in the same order by distance from i.

    Parameters
    ----------
    X : array of shape (n, d)
        The rows: a NumPy, Dask or zarr array, or the path of a Zarr array or .npy, larger than memory or not.
    Y : array of shape (n, m)
        The coordinates, in the same order as the rows, and of the same kinds.
    n_neighbors : int < n/2
        The number k of neighbors that are compared.
    samples : int
        The number of rows to compare with all rows; if there are no more rows than this, all are taken and the figures
        have no standard error (triplets are random even then).
    metric : str or function
        The distance between rows, as for a neighbor graph (:func:`bigembed.build_neighbor_graph`); between coordinates
        it is always Euclidean.
    seed : int
        The seed of the sample and the triplets.
    workdir : path or None
        The folder in which tasks leave files for each other, on a cluster one that all workers see; the files are
        removed at the end.

    Returns
    -------
    MapQuality
        The figures, which print as a table (:class:`~bigembed.quality.certify.MapQuality`). ``figures`` has, for each
        of the four, ``value``, ``standard_error``, ``chance`` (its value for shuffled coordinates) and ``above_chance``
        (how many standard errors it is above). ``warnings`` are sentences on: coordinates *unrelated* to the rows (no
        figure more than 4 standard errors above chance; where ties decide over a tenth of the neighborhoods, above
        chance with all neighbors of those kept), constant ones, many rows at one place, trustworthiness or continuity
        below .8, and columns in which one value, far beyond all others, may stand for missing ones. ``notes``
        name a column with more than 99 % of the variance, and duplicated rows.

    Raises
    ------
    InputError
        If the numbers of rows differ, entries are NaN or infinite, rows are zero (cosine), n ≤ 2 k, or parameters are
        out of range.

    Notes
    -----
    Cost: three passes over X and five over Y; about 4 s n (d + m) operations for s sampled rows. Memory of a task:
    some three canonical blocks (32 MiB each at most), the sampled rows and 10 MiB; nothing of size n. Ties are ordered
    by the row number. The same bytes for any chunking and number of workers.

    References
    ----------
    Venna & Kaski, Neighborhood preservation in nonlinear projection methods, ICANN (2001). Wang, Huang, Rudin &
    Shaposhnik, Understanding how dimension reduction tools work (random triplets), JMLR 22 (2021).

    Examples
    --------
    >>> import numpy as np
    >>> import bigembed as be
    >>> rows = np.random.default_rng(0).normal(size=(200, 3)) * [5, 3, 0.1]
    >>> found = be.certify(rows, rows[:, :2])
    >>> found.trustworthiness > 0.99, found.warnings
    (True, ())
    >>> be.certify(rows, np.roll(rows, 1, axis=0)).warnings[0][:46]
    'The coordinates look unrelated to the rows, as'
    """
    with _scratch(workdir) as folder:
        rows, _ = row_source(X, at(folder), "rows", sparse=True)
        coordinates, _ = row_source(Y, at(folder), "coordinates")
        figures = preserved(
            rows, coordinates, exchange.Exchange(f"{folder}/exchange"), n_neighbors=n_neighbors, samples=samples,
            seed=seed, metric=metric,
        )  # fmt: skip
    warnings, notes = judged(figures)
    return MapQuality(figures, tuple(warnings), tuple(notes))


@contextmanager
def _scratch(workdir: PathLike | None) -> Iterator[str]:
    """A new folder, in ``workdir`` or that for temporary files, removed at the end."""
    if workdir is None:
        with files.temporary("certify") as made:
            yield str(made)
        return
    folder = at(workdir).absolute() / f"certify-{uuid.uuid4().hex[:12]}"
    folder.mkdir(parents=True)
    try:
        yield str(folder)
    finally:
        remove(str(folder))
