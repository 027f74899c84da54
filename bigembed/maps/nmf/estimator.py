"""Nonnegative matrix factorization of rows of any number: one pass an iteration."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator import extension, frame, rowwise
from bigembed.estimator.extension import inverse
from bigembed.maps import nmf
from bigembed.rows import RowSource
from bigembed.rows.passes import checked_shape
from bigembed.runtime.parameters import Count, Nonnegative, Requirements, Seed
from bigembed.stages import Run, Stage
from bigembed.store.arrays import read_array

EMPTY = 1e-6
"""Relative error up to which an empty component is one that is not needed."""


@dataclass(eq=False, repr=False)
class NMF(rowwise.WeightedRowwiseEstimator, registered="nmf"):
    """Factorize nonnegative rows as X ≈ W H, W, H ≥ 0, by alternating descent on the Frobenius norm ‖X − W H‖.

    One pass an iteration: each block improves its rows of W for the H at hand, and adds up WᵀX and WᵀW, from which
    H is improved without the rows (hierarchical alternating least squares, Cichocki & Phan 2009). W lies in the store
    by row blocks. A component of which no row has any is replaced by what W H leaves of a row that it fits worst. No
    iteration raises the objective. A weight is a number of equal rows.

    Parameters
    ----------
    n_components : int ≥ 1
        The number m of components.
    init : {"nndsvd", "nndsvda", "nndsvdar", "random"}, array of shape (m, d), or None
        The start, or an array of starting components. None is "nndsvda" where m ≤ min(n, d) and d ≤ 4096, else
        "random". The names are scikit-learn's.
    tol : float ≥ 0
        When to stop: an iteration lowers the error ‖X − W H‖ by no more than this times the first error.
    max_iter : int ≥ 1
        The iterations, and so passes, before it gives up with a ConvergenceWarning.
    random_state : int, generator or None
        The seed of init="random" and "nndsvdar".
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
        Functions that ``fit`` calls with every event: a stage starts, goes on or ends.

    Attributes
    ----------
    components_ : array of shape (m, d)
        The components H.
    embedding_ : array of shape (n, m)
        The factor W: the exact nonnegative least squares weights for H, so what ``transform`` gives; NumPy for NumPy
        input, else a Dask array computed when asked.
    objectives_ : array of shape (n_iter_ + 1,)
        ‖X − W H‖² after each iteration, and last for ``embedding_``; never increasing.
    reconstruction_err_ : float
        The error ‖X − W H‖ for ``embedding_``.
    n_iter_, n_components_, n_features_in_ : int
        The numbers of iterations, of components, and of columns of the rows.
    certificate_ : dict
        How far the result can be trusted.

    Raises
    ------
    InputError
        If entries are negative, NaN or infinite, or parameters are out of range.

    Notes
    -----
    Passes: 1 (2 and a Gram matrix for NNDSVD), one an iteration, one for the final error; coordinates one more when
    asked. Sparse rows are never made dense. Disk: W twice, 16 n m bytes, while it runs.
    ``fit`` reads rows of a few blocks once more (four blocks, or a twentieth of all) and compares 1 000 of them with
    each other, to judge the map; of many sparse rows it compares 400 with all, in three passes.

    References
    ----------
    A. Cichocki, A.-H. Phan, Fast local algorithms for large scale NMF, IEICE E92-A (2009). N. Gillis, F. Glineur,
    Accelerated multiplicative updates and HALS, Neural Computation 24 (2012). C. Boutsidis, E. Gallopoulos, SVD based
    initialization, Pattern Recognition 41 (2008).

    Examples
    --------
    >>> W, H = np.array([[1.0, 0.0], [2.0, 1.0], [0.0, 3.0]]), np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 4.0]])
    >>> nmf = NMF(n_components=2, tol=1e-9, max_iter=500).fit(W @ H)
    >>> bool(nmf.reconstruction_err_ < 1e-3), bool((nmf.components_ >= 0).all())
    (True, True)
    """

    follows_dtype = takes_sparse = True
    like_rows = ("components_",)
    frame_rule: ClassVar = frame.FrameRule("none")
    saved_stages: ClassVar = {"survey": (), "factors": ("",), "coordinates": ("embedding",)}

    n_components: Count = 2
    _: KW_ONLY
    init: Any = None
    tol: Nonnegative = 1e-4
    max_iter: Count = 200
    random_state: Seed = 0

    def stages(self, source: RowSource) -> list[Stage]:
        """List the stages: sums, start, factors and, on demand, coordinates."""
        self._check()
        n, d = checked_shape(source)
        m, seed = int(self.n_components), self._seed()
        start = self.init
        if start is None:
            start = "nndsvda" if m <= min(n, d) and d <= nmf.GRAM_COLUMNS else "random"
        if not isinstance(start, str):
            start = nmf.given_start(start, m, d).tolist()
        elif start != "random" and (m > min(n, d) or d > nmf.GRAM_COLUMNS):
            raise InputError(
                f"init={start!r} takes singular vectors: it needs n_components ≤ min(n, d) = {min(n, d)} and at most "
                f"{nmf.GRAM_COLUMNS} columns; there are {d}. Use init='random'"
            )
        stages = [
            nmf.survey_stage(source, isinstance(start, str) and start != "random"),
            nmf.start_stage(source, m, start, seed),
            nmf.factors_stage(source, m, float(self.tol), int(self.max_iter)),
        ]
        return [*stages, self._output_stage(source, stages, m)]

    def inverse_transform(self, X: Any) -> Any:
        """Return the rows W H of weights W.

        Parameters
        ----------
        X : array of shape (k, m)
            The coordinates.

        Returns
        -------
        array of shape (k, d)
            The rows: NumPy for arrays in memory, else a lazy Dask array.
        """
        self._check_fitted()
        return inverse(self, X, read_array(self._run.path("factors", "components")))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags

    def _require(self, need: Requirements) -> None:
        text = self.init is None or isinstance(self.init, str)
        need(not text or self.init in (None, *nmf.RULES), "init", f"None, an array, or one of {', '.join(nmf.RULES)}")

    def _set_fitted(self, run: Run) -> None:
        self.components_ = read_array(run.path("factors", "components"))
        self.objectives_ = read_array(run.path("factors", "objectives"))
        self.reconstruction_err_ = float(np.sqrt(self.objectives_[-1]))
        self.n_iter_ = run.results("factors")["iterations"]
        self.n_components_ = len(self.components_)

    def _certificate(self, run: Run) -> dict[str, Any]:
        found, survey = run.results("factors"), run.results("survey")
        lost = (
            []
            if found["converged"]
            else [
                f"NMF stopped at max_iter={self.n_iter_} while an iteration still lowered the error by "
                f"{found['last_step']:.2g} of the first one. Raise max_iter, or tol if this is enough"
            ]
        )
        empty = int(np.sum(~self.components_.any(axis=1)))
        error = self.reconstruction_err_ / (np.sqrt(survey["squares"]) or 1.0)
        unused = [
            f"{empty} of {self.n_components_} components are empty while the relative error is {error:.2g}: the "
            "descent lost them. Take another random_state or init='nndsvda', or raise max_iter"
        ]
        return {
            "passes": survey["passes"] + found["passes"] + found["start_passes"],
            "iterations": self.n_iter_,
            "converged": found["converged"],
            "relative_error": error,
            "empty_components": empty,
            "seed": found["seed"],
            "warnings": {"convergence": lost, "degenerate": unused if empty and error > EMPTY else []},
        }

    def _extension(self, run: Run) -> extension.Extension:
        survey = run.results("survey")
        model = run.path("factors", "components")
        return extension.Extension(
            nmf.weight_rows,
            model,
            run.results("factors")["n_components"],
            survey["d"],
            dtype=survey["dtype"],
            sparse=True,
        )
