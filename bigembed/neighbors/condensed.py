"""Many rows condensed to a few that count: what a call asks for, checked, and run; and what it gives."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Annotated, Any

from bigembed.distance.metrics import checked_metric
from bigembed.errors import InputError, MissingPathError
from bigembed.neighbors.condense import STAGE, Condensing, condense_stages
from bigembed.rows import RowSource, rows_at
from bigembed.rows.input import column_source, row_source
from bigembed.runtime.parameters import Count, Kind, Positive, declared, is_integer
from bigembed.stages.runs import Run
from bigembed.stages.stage import require_worker_memory, run_stages
from bigembed.store import AnyPath, PathLike, at, manifests

SeedNumber = Annotated[int, Kind("an integer ≥ 0", lambda value: is_integer(value) and value >= 0)]


class Condensed:
    """Hold cells of near rows: means that stand for the rows, how many rows they are, how wide they are.

    Parameters
    ----------
    run : Run
        The run that holds the stages.
    in_memory : bool
        Whether the rows were given in memory, so that the arrays are NumPy's.

    Attributes
    ----------
    rows : array of shape (c, d)
        The means, in the dtype that the rows are worked on in: NumPy for rows in memory, else a lazy Dask array. For
        metric="cosine" they are means of rows scaled to length one.
    counts : array of shape (c,)
        How many rows each cell has, int64; where the rows had weights, the sums of these, float64.
    radius : array of shape (c,)
        The root of the mean squared distance of the rows of a cell to their mean.
    reach : array of shape (c,)
        A distance from the mean that no row of the cell exceeds.
    cell : array of shape (n,), or None
        The cell of each row, where it was asked for; −1 for rows of weight 0 that lie near no cell with rows.
    totals : dict
        ``n``; ``cells``; ``weight``, the sum of the counts; ``rms_radius``, over all rows; ``widest``, the largest
        reach; ``within_share``, the share of the variance of the rows that is within cells; ``single``, the cells of
        weight 1 at the most; ``beyond``, the rows that lie farther from a center than cells are meant to be wide.
    metric : str
        The distance between rows.
    path : path or None
        Where it is kept; None for a temporary folder.
    """

    def __init__(self, run: Run, in_memory: bool = False) -> None:
        self._run, self._in_memory = run, in_memory
        self.totals: dict[str, Any] = run.results(STAGE)
        self.metric: str = run.results("survey")["metric"]
        self.path = None if run.temporary else run.root

    @classmethod
    def open(cls, path: PathLike) -> Condensed:
        """Open what was condensed to a path.

        Parameters
        ----------
        path : path
            What ``workdir`` named, or OUT of ``bigembed condense``.

        Returns
        -------
        Condensed
            The cells; arrays are lazy.

        Raises
        ------
        MissingPathError
            If nothing was condensed there, or not to the end.
        """
        if not holds_cells(at(path)):
            raise MissingPathError(f"{path}: no rows were condensed here, or not to the end. Run bigembed condense")
        return cls(Run(at(path).absolute()))

    @property
    def places(self) -> tuple[RowSource, AnyPath]:
        """The means as rows that stages read, and where their counts lie."""
        return rows_at(at(self._run.path(STAGE, "rows"))), at(self._run.path(STAGE, "counts"))

    @property
    def rows(self) -> Any:
        """The means (c, d)."""
        return self._array("rows")

    @property
    def counts(self) -> Any:
        """How many rows each cell has (c,)."""
        return self._array("counts")

    @property
    def radius(self) -> Any:
        """The root of the mean squared distance to the mean (c,)."""
        return self._array("radius")

    @property
    def reach(self) -> Any:
        """A distance from the mean that no row exceeds (c,)."""
        return self._array("reach")

    @property
    def cell(self) -> Any:
        """The cell of each row (n,); None where it was not asked for."""
        asked = self._run.parameters(STAGE)["cell"]
        return self._array("cell") if asked else None

    def _array(self, name: str) -> Any:
        return self._run.array(STAGE, name, in_memory=self._in_memory)

    def lines(self) -> list[str]:
        """Write what the cells are in lines to print.

        Returns
        -------
        list of str
            The lines.
        """
        t = self.totals
        lines = [
            f"{t['n']:,} rows in {t['cells']:,} cells ({self.metric}), {t['weight'] / t['cells']:.3g} a cell, "
            f"{t['single']:,} of one row",
            f"radius {t['rms_radius']:.4g} (root mean square), no row farther than {t['widest']:.4g} from its mean; "
            f"{100 * t['within_share']:.3g} % of the variance is within cells",
        ]
        if t["beyond"]:
            lines.append(f"{t['beyond']:,} rows lie farther from their cell than cells are meant to be wide")
        return lines

    def __repr__(self) -> str:
        return "\n".join(self.lines())


def holds_cells(path: AnyPath) -> bool:
    """Whether condensed rows lie at a path, whole."""
    return (
        path.is_dir() and manifests.attributes_of(path).get("bigembed") == "run" and bool(manifests.find(path, STAGE))
    )


def checked_condensing(rows: Any, radius: Any, metric: Any, cell: bool, seed: int) -> Condensing:
    """What is asked for; InputError unless it is a number of cells or a radius, and not both."""
    if (rows is None) == (radius is None):
        got = "neither" if rows is None else f"rows={rows!r} and radius={radius!r}"
        raise InputError(
            "condense: rows, about how many cells (--cells on the command line), or radius, how wide, is needed, and "
            f"one alone; got {got}"
        )
    checked_metric(metric)
    return Condensing(
        None if rows is None else int(rows), None if radius is None else float(radius), bool(cell), int(seed)
    )


@declared
def condense(
    X: Any,
    rows: Count | None = None,
    *,
    radius: Positive | None = None,
    metric: str = "euclidean",
    weights: Any = None,
    cell: bool = False,
    random_state: SeedNumber = 0,
    workdir: str | os.PathLike[str] | None = None,
) -> Condensed:
    """Condense rows to cells of near rows, each with its mean and its count: 10⁹ rows become 10⁷ that count.

    A method on a graph that is fitted to the means, with the counts as weights, gives the map of the rows, as far as
    cells are small beside the scale of its kernel: the mean of the rows of a cell of root mean squared radius r stands
    for them up to O(r²/ε) of the kernel exp(−‖x − y‖²/ε), since the first-order terms cancel in the mean.

    Parameters
    ----------
    X : array of shape (n, d)
        The rows, dense, of any kind that :func:`bigembed.open_array` takes.
    rows : int ≥ 1 or None
        About how many cells there are, each with about the same number of rows. A row that lies three times as far from
        every center as is usual around it opens another cell, up to twice as many in all. Where there are no more
        distinct rows than this, each is a cell.
    radius : float > 0 or None
        How wide cells may be instead: no row is farther than this from the center of its cell, and so none farther than
        twice this from the mean. How many cells that makes, the rows decide.
    metric : {"euclidean", "cosine"}
        The distance between rows, which the map should have, too; with "cosine" rows are scaled to length one first.
    weights : array of shape (n,) or None
        Nonnegative weights of the rows, which are then summed up in place of counts.
    cell : bool
        Whether the cell of each row is kept.
    random_state : int ≥ 0
        The seed of the sampled rows and the centers.
    workdir : path or None
        Where the cells are kept, and from where a call that was stopped goes on; None is a temporary folder.

    Returns
    -------
    Condensed
        The cells, which print as a few lines (:class:`~bigembed.neighbors.condensed.Condensed`).

    Raises
    ------
    InputError
        If neither or both of ``rows`` and ``radius`` are given, rows hold NaN or infinity (they are named), weights are
        negative or all 0, or the metric is another one.

    Notes
    -----
    Cost: a pass that checks the rows and places the partitions, one that takes the sample from which cells are chosen
    (not with ``radius``), and one that condenses the rows; about n (√c + 500) d operations for c cells. Memory of a
    task: some six canonical blocks (32 MiB each at most) and the cells of a few partitions, about a thousand each;
    nothing of size c · d in one process. Disk: the rows of 256 blocks on their way, twice the sums of the cells, and
    what is kept. The same bytes for any chunking and number of workers: partitions are those of k-means on a sample,
    the cells of a partition those of k-means on sampled rows of it, taken from all over the input, or rows that no
    cell is near; sums are taken in a fixed order, of differences to centers that never move. Centers without rows are
    left out.

    References
    ----------
    S. Dasgupta, Y. Freund, Random projection trees and low dimensional manifolds, STOC (2008). T. Zhang,
    R. Ramakrishnan, M. Livny, BIRCH, SIGMOD (1996).

    Examples
    --------
    >>> import numpy as np
    >>> import bigembed as be
    >>> angle = np.linspace(0, 2 * np.pi, 2_000, endpoint=False)
    >>> found = be.condense(np.column_stack([np.cos(angle), np.sin(angle)]), rows=100, cell=True)
    >>> int(found.counts.sum()), bool(found.radius.max() < 0.05), found.cell.shape
    (2000, True, (2000,))
    """
    asked = checked_condensing(rows, radius, metric, cell, random_state)
    run = Run(workdir)
    scratch = run.root / "exchange"
    source, in_memory = row_source(X, scratch)
    if weights is not None:
        source = replace(source, aligned={"weights": column_source(weights, source.shape[0], scratch, "weights")})
    stages = condense_stages(source, metric, asked)
    require_worker_memory(stages, run, -(-source.shape[0] // source.block))
    run_stages(stages, run)
    return Condensed(run, in_memory)
