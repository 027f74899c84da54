"""Random projections: few random directions keep all distances up to a factor near 1 (Johnson & Lindenstrauss 1984)."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from bigembed.errors import InputError
from bigembed.estimator.extension import Extension
from bigembed.estimator.rowwise import Step
from bigembed.rows import RowSource
from bigembed.rows.passes import checked_shape
from bigembed.rows.row_maps import AffineMap, project
from bigembed.runtime.blocks import Array, is_sparse
from bigembed.runtime.parameters import Auto, Count, Fraction, Seed
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage
from bigembed.store.arrays import read_array, write_array

STREAM = 41
"""Of random numbers."""
COARSE = 0.5
"""Standard deviation of squared distances, over their mean √(2/m), from which a projection is warned of."""


def least_columns(n: int, eps: float) -> int:
    """Return ⌊4 log n/(ε²/2 − ε³/3)⌋, at least 1: columns that keep all squared distances of n rows within 1 ± ε.

    The bound of Dasgupta and Gupta (2003, Theorem 2.1), as scikit-learn rounds it; with probability at least 1 − 1/n.

    >>> least_columns(10_000, 0.1), least_columns(10_000, 0.5)
    (7894, 442)
    """
    return max(1, int(4 * math.log(n) / (eps**2 / 2 - eps**3 / 3)))


def column_generator(seed: int, column: int) -> np.random.Generator:
    """Return the random numbers of a column of the rows: they follow from the seed and its number alone."""
    return np.random.Generator(np.random.Philox(key=[seed % 2**64, STREAM], counter=[0, 0, 0, column]))


# ----------------------------------------------------------------------------------------------------------- block


@dataclass(frozen=True)
class SparseDirections:
    """Where a task finds a sparse matrix of directions (d, m): small and picklable."""

    folder: str
    width: int

    def read(self) -> Any:
        """Return the matrix, in CSR."""
        data, indices, indptr = (read_array(f"{self.folder}/{name}") for name in ("data", "indices", "indptr"))
        return sparse.csr_array((data, indices, indptr), shape=(len(indptr) - 1, self.width))


def project_sparsely(rows: Any, model: SparseDirections) -> Array:
    """Return x R of dense or CSR rows (n, d), in float64: each sum in the order of the columns."""
    directions = model.read()
    if is_sparse(rows):
        return np.asarray((rows.astype(np.float64) @ directions).toarray())
    return np.ascontiguousarray(rows.astype(np.float64) @ directions)


# ----------------------------------------------------------------------------------------------------------- steps


class RandomProjection(Step):
    """Base of the random projections: a matrix of random directions, a column of the rows after the other."""

    learned: ClassVar = "directions"
    saved_stages: ClassVar = {"directions": ("",), "coordinates": ("embedding",)}
    of_columns: ClassVar = False
    keeps_sparse: ClassVar = False

    n_components: int | str
    eps: float
    components_: Any

    @abstractmethod
    def _directions_stage(self, source: RowSource, width: int) -> Stage:
        """Return the stage that draws the matrix."""

    def width(self, source: RowSource) -> int:
        """Count the columns that come out; InputError where they are more than the rows have."""
        n, d = checked_shape(source)
        if not isinstance(self.n_components, str):
            if self.n_components > d:
                raise InputError(f"n_components={self.n_components} must be at most n_features, which is {d}")
            return int(self.n_components)
        found = least_columns(n, float(self.eps))
        if found > d:
            raise InputError(
                f"eps={self.eps:g} with n_components='auto' needs {found:,} columns for {n:,} rows, which have "
                f"{d:,}: it would make more of them. Take a larger eps, give n_components, or leave the step out"
            )
        return found

    def _learning(self, source: RowSource) -> list[Stage]:
        return [self._directions_stage(source, self.width(source))]

    def _certificate(self, run: Run) -> dict[str, Any]:
        error = math.sqrt(2 / run.results(self.learned)["width"])
        found = {"seed": run.parameters(self.learned)["seed"], "distance_error": error}
        return super()._certificate(run) | found | {"warnings": {"map": _coarse(self, run, error)}}

    def _extension(self, run: Run) -> Extension:
        return replace(super()._extension(run), keeps_sparse=False)

    def _names_out(self, names: list[str]) -> list[str]:
        return [f"{type(self).__name__.lower()}{number}" for number in range(self.n_components_)]

    def _planned_names(self, names: Sequence[str]) -> Sequence[str]:
        return ()

    def describe(self) -> str:
        """Say how many columns it made of how many."""
        return f"{self.n_components_:,} random directions in {self.n_features_in_:,} columns"


def _coarse(step: Any, run: Run, error: float) -> list[str]:
    if error <= COARSE:
        return []
    width, few = run.results(step.learned)["width"], math.ceil(2 / COARSE**2)
    return [
        f"{width} random {'direction changes' if width == 1 else 'directions change'} squared distances by "
        f"{100 * error:.0f} % (one standard deviation), so that rows have other neighbors than before. Ask for {few} "
        "or more, or take a step pca, whose directions follow the rows"
    ]


@dataclass(eq=False, repr=False)
class GaussianRandomProjection(RandomProjection, registered="gaussian_projection"):
    """Project rows onto few random directions with normal entries: distances stay as they are, up to a factor near 1.

    A row x becomes x R, R (d, m) with independent entries from N(0, 1/m), so that E‖xR − yR‖² = ‖x − y‖². With
    m ≥ 4 log n/(ε²/2 − ε³/3), all squared distances of n rows are kept within 1 ± ε with probability ≥ 1 − 1/n
    (Johnson & Lindenstrauss 1984; Dasgupta & Gupta 2003), whatever d is. Nothing is learned from the rows.

    Parameters
    ----------
    n_components : int ≥ 1 or "auto"
        The number m of columns that come out, at most d; "auto" is the number above.
    eps : float in (0, 1)
        The error ε of squared distances; only for n_components="auto".
    random_state : int, generator or None
        The seed. The entries of a row of R follow from it and from the number of the column alone.
    workdir : path or None
        Where the stages are kept, and from where a fit that was stopped goes on; None is a temporary folder.
    persist : "store" or None
        Whether rows of a lazy array are written once and read from there: "store" says so; None does so only for rows
        that are read more than twice.
    keep : "all", "map" or "coordinates"
        What stays in ``workdir`` of the stages: all of it; what the map, new rows and a saved model need; or the map
        alone, which then places no new rows. The rest is deleted as soon as no stage is left to read it.
    verbose : bool
        Whether ``fit`` shows its progress.
    callbacks : sequence of functions, or None
        Functions that ``fit`` calls with every event.

    Attributes
    ----------
    components_ : array of shape (m, d)
        The directions, Rᵀ.
    n_components_ : int
        The number m of columns that come out.
    n_samples_, n_features_in_ : int
        The numbers of rows and of their columns.
    certificate_ : dict
        How far the result can be trusted; "distance_error" is √(2/m), the standard deviation of squared distances over
        their mean.
    embedding_ : array of shape (n, m)
        The rows fitted, projected: NumPy for NumPy input, else a Dask array computed when asked.

    Raises
    ------
    InputError
        If more columns would come out than the rows have, rows hold NaN or infinity (they are named, when they are
        read), or parameters are out of range.

    Warns
    -----
    MapWarning
        If there are so few directions that squared distances are off by a half and more.

    Notes
    -----
    Cost: no pass for ``fit``; d·m numbers in each process, and a block of rows where they are read. Sparse rows are not
    made dense; what comes out of them is.

    References
    ----------
    W. Johnson, J. Lindenstrauss, Extensions of Lipschitz mappings into a Hilbert space, Contemporary Mathematics 26
    (1984). S. Dasgupta, A. Gupta, An elementary proof of a theorem of Johnson and Lindenstrauss, Random Structures &
    Algorithms 22 (2003).

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(50, 2000))
    >>> found = GaussianRandomProjection(eps=0.5).fit_transform(rows)
    >>> found.shape, bool(0.5 < ((found[0] - found[1]) ** 2).sum() / ((rows[0] - rows[1]) ** 2).sum() < 1.5)
    ((50, 187), True)
    """

    n_components: Count | Auto = "auto"
    _: KW_ONLY
    eps: Fraction = 0.1
    random_state: Seed = 0

    def _directions_stage(self, source: RowSource, width: int) -> Stage:
        matrix = ArraySpec("matrix", source.width, width)
        seed = self._seed()
        parameters = {"source": source.fingerprint(), "width": width, "seed": seed}
        run = partial(run_gaussian, source=source, width=width, seed=seed)
        cost = Cost.of(writes=[matrix], coordinator=[ArraySpec("matrix", source.width, width, times=2)])
        return Stage(self.learned, (), parameters, run, cost)

    def _set_fitted(self, run: Run) -> None:
        super()._set_fitted(run)
        self.components_ = read_array(run.path(self.learned, "matrix")).T

    def _block(self, run: Run) -> tuple[Any, Any]:
        return project, AffineMap(run.path(self.learned, "matrix"))


def run_gaussian(context: Context, source: RowSource, width: int, seed: int) -> dict[str, Any]:
    n, d = checked_shape(source)
    found = np.empty((d, width))
    for column in range(d):
        column_generator(seed, column).standard_normal(out=found[column])
    found /= math.sqrt(width)
    write_array(context.path("matrix"), found)
    return {"n": n, "d": d, "dtype": str(source.work), "width": width}


@dataclass(eq=False, repr=False)
class SparseRandomProjection(RandomProjection, registered="sparse_projection"):
    """Project rows onto few random directions of which most entries are 0: as near to the distances, in less time.

    A row x becomes x R, R (d, m) with independent entries ±√(1/(m s)), each with probability s/2, and 0 otherwise, so
    that E‖xR − yR‖² = ‖x − y‖² (Achlioptas 2003 with s = 1/3; Li, Hastie & Church 2006 with s = 1/√d). The number m for
    an error ε of squared distances is that of :class:`GaussianRandomProjection`. It costs a share s of its products,
    but rows whose distance lies in few columns are kept less well (the bound is proved for s ≥ 1/3).

    Parameters
    ----------
    n_components : int ≥ 1 or "auto"
        The number m of columns that come out, at most d; "auto" is ⌊4 log n/(ε²/2 − ε³/3)⌋.
    density : float in (0, 1) or "auto"
        The share s of entries that are not 0; "auto" is 1/√d. 1/3 is the one of Achlioptas.
    eps : float in (0, 1)
        The error ε of squared distances; only for n_components="auto".
    random_state : int, generator or None
        The seed. The entries of a row of R follow from it and from the number of the column alone.
    workdir : path or None
        Where the stages are kept, and from where a fit that was stopped goes on; None is a temporary folder.
    persist : "store" or None
        Whether rows of a lazy array are written once and read from there: "store" says so; None does so only for rows
        that are read more than twice.
    keep : "all", "map" or "coordinates"
        What stays in ``workdir`` of the stages: all of it; what the map, new rows and a saved model need; or the map
        alone, which then places no new rows. The rest is deleted as soon as no stage is left to read it.
    verbose : bool
        Whether ``fit`` shows its progress.
    callbacks : sequence of functions, or None
        Functions that ``fit`` calls with every event.

    Attributes
    ----------
    components_ : sparse array of shape (m, d)
        The directions, Rᵀ.
    density_ : float
        The share of entries that are not 0, as asked.
    n_components_ : int
        The number m of columns that come out.
    n_samples_, n_features_in_ : int
        The numbers of rows and of their columns.
    certificate_ : dict
        How far the result can be trusted; "distance_error" is √(2/m), the standard deviation of squared distances over
        their mean.
    embedding_ : array of shape (n, m)
        The rows fitted, projected: NumPy for NumPy input, else a Dask array computed when asked.

    Raises
    ------
    InputError
        If more columns would come out than the rows have, rows hold NaN or infinity (they are named, when they are
        read), or parameters are out of range.

    Warns
    -----
    MapWarning
        If there are so few directions that squared distances are off by a half and more.

    Notes
    -----
    Cost: no pass for ``fit``; s·d·m numbers in each process, and a block of rows where they are read. Sparse rows are
    not made dense; what comes out of them is.

    References
    ----------
    D. Achlioptas, Database-friendly random projections: Johnson-Lindenstrauss with binary coins, Journal of Computer
    and System Sciences 66 (2003). P. Li, T. Hastie, K. Church, Very sparse random projections, KDD (2006).

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(50, 2000))
    >>> found = SparseRandomProjection(eps=0.5).fit_transform(rows)
    >>> found.shape, bool(0.5 < ((found[0] - found[1]) ** 2).sum() / ((rows[0] - rows[1]) ** 2).sum() < 1.5)
    ((50, 187), True)
    """

    n_components: Count | Auto = "auto"
    _: KW_ONLY
    density: Fraction | Auto = "auto"
    eps: Fraction = 0.1
    random_state: Seed = 0

    def _directions_stage(self, source: RowSource, width: int) -> Stage:
        d, seed = source.width, self._seed()
        density = 1 / math.sqrt(d) if isinstance(self.density, str) else float(self.density)
        parameters = {"source": source.fingerprint(), "width": width, "density": density, "seed": seed}
        run = partial(run_sparse, source=source, width=width, density=density, seed=seed)
        count = math.ceil(d * width * density)
        entries = ArraySpec("data", count), ArraySpec("indices", count, dtype="i4")
        writes = [*entries, ArraySpec("indptr", d + 1, dtype="i8")]
        cost = Cost.of(writes=writes, coordinator=[ArraySpec("entries", count, 4), ArraySpec("a column", width, 4)])
        return Stage(self.learned, (), parameters, run, cost)

    def _set_fitted(self, run: Run) -> None:
        super()._set_fitted(run)
        self.density_ = float(run.parameters(self.learned)["density"])
        self.components_ = self._model(run).read().T.tocsr()

    def _model(self, run: Run) -> SparseDirections:
        return SparseDirections(run.path(self.learned), int(run.results(self.learned)["width"]))

    def _block(self, run: Run) -> tuple[Any, Any]:
        return project_sparsely, self._model(run)


def run_sparse(context: Context, source: RowSource, width: int, density: float, seed: int) -> dict[str, Any]:
    n, d = checked_shape(source)
    places, signs, counts = [], [], np.zeros(d + 1, np.int64)
    for column in range(d):
        random = column_generator(seed, column)
        count = int(random.binomial(width, density))
        places.append(np.sort(random.choice(width, count, replace=False, shuffle=False)).astype(np.int32))
        signs.append(random.integers(0, 2, count, dtype=np.int8))
        counts[column + 1] = count
    value = 1 / math.sqrt(width * density)
    write_array(context.path("data"), np.where(np.concatenate(signs) > 0, value, -value))
    write_array(context.path("indices"), np.concatenate(places))
    write_array(context.path("indptr"), np.cumsum(counts))
    return {"n": n, "d": d, "dtype": str(source.work), "width": width}
