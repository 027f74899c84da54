"""Linear discriminants: the directions that separate labelled classes, from one pass over the rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from math import inf
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from bigembed import errors
from bigembed.errors import InputError
from bigembed.estimator.extension import Extension
from bigembed.estimator.rowwise import RowwiseEstimator, add_rows, sums_of
from bigembed.estimator.transform import apply
from bigembed.maps import labels_stage
from bigembed.maps.linear import discriminants, wide_discriminants
from bigembed.rows import RowSource, passes, row_maps
from bigembed.rows.labels import Labels, classes_from_json, read_labels, with_classes
from bigembed.runtime.parameters import Auto, Count, Requirements, interval, is_number, one_of
from bigembed.stages import Run, Stage
from bigembed.store.arrays import read_array


@dataclass(eq=False, repr=False)
class LinearDiscriminantAnalysis(RowwiseEstimator, registered="linear_discriminant"):
    """Find the directions that tell classes apart best (Fisher's discriminants), and classify by them.

    These are Fisher's linear discriminant of two classes, multiple discriminants of more, and the linear classifier
    that goes with them. With the means m_c and the scatters S_c = Σ (x − m_c)(x − m_c)ᵀ of c classes, S_w = Σ_c π_c
    S_c/n_c and S_t the covariance of all rows, the directions w solve (S_t − S_w) w = λ S_w w, wᵀ S_w w = 1 (seed 000,
    eq. 2 and §5; S_t − S_w = Σ_c (n_c/n) (m_c − m)(m_c − m)ᵀ = S_b/n where priors are those of the sample). The
    coordinates of a row are wᵀx, at most c − 1 of them. They agree with those of scikit-learn's
    ``LinearDiscriminantAnalysis(solver="eigen")`` up to sign: here the largest |entry| of each direction is positive.
    Where S_w is singular they are those of its range, as with ``solver="svd"`` (there without priors).

    Parameters
    ----------
    n_components : int ≥ 1 or None
        The number m of coordinates; None takes all min(c − 1, d).
    shrinkage : float in [0, 1], "auto" or None
        The shrinkage γ: S_w and S_t become (1 − γ) S + γ tr(S)/d I. "auto" takes γ by the Ledoit–Wolf rule for every
        class and for all rows, on standardized columns, in one more pass. It is needed where S_w is singular: fewer
        rows than columns, constant or collinear columns.
    priors : array of shape (c,), or None
        The shares of the classes, nonnegative; None takes those of the rows.
    missing_labels : {"error", "ignore"}
        What to do with rows whose label is NaN, None, NaT or NA: "error" refuses them; with "ignore" they do not count
        in the fit, but have coordinates. −1 is a class like any other.
    tol : float in [0, 1)
        The share of the largest eigenvalue of the within-class correlation matrix below which one counts as zero.
        Directions without scatter inside the classes are then left out, with a DegenerateWarning.
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
    scalings_ : array of shape (d, m)
        The directions w, by descending λ.
    explained_variance_ratio_ : array of shape (m,)
        λ over the sum of all.
    direction_ : array of shape (d,), or None
        For two classes w = S_w⁻¹(m₁ − m₂), of length one (seed 000, §4); None for more. It is the first of
        ``scalings_`` up to length and sign, unless ``shrinkage`` shrinks S_t as well.
    classes_ : array of shape (c,)
        The classes, ascending.
    means_ : array of shape (c, d)
        The means of the classes.
    xbar_ : array of shape (d,)
        The mean of all rows.
    priors_ : array of shape (c,)
        The shares of the classes.
    covariance_ : array of shape (d, d), or None
        The covariance S_w within the classes; None where it was not formed, for rows fewer than their columns.
    coef_ : array of shape (c, d)
        The coefficients of the decision function; (1, d) for two classes.
    intercept_ : array of shape (c,)
        The constants of the decision function; (1,) for two classes.
    embedding_ : array of shape (n, m)
        The coordinates of the rows fitted: NumPy for NumPy input, else a Dask array computed when asked.
    n_components_, n_features_in_ : int
        The numbers of coordinates and of columns of the rows.
    certificate_ : dict
        How far the result can be trusted.

    Raises
    ------
    InputError
        If there is one class only, or as many classes as rows; if rows have no label (the first are named), or labels
        are floats that are not whole; if rows hold NaN or infinity (they are named), or parameters are out of range.

    Notes
    -----
    Cost: one pass for ``fit`` ("auto": two), one for coordinates, and one over the labels. Memory: a block of rows, c d
    and d² numbers a worker; c d² with shrinkage="auto" or given priors. A class of one row has a mean and no scatter.
    Scatters are accumulated about the means of classes within blocks, so nothing cancels, however far the classes lie.
    Without shrinkage up to 4096 rows that are fewer than their columns, of which there are more than 1024, are solved
    by the products of all pairs of rows, in n/512 passes and two more, with n² numbers and no d².
    ``fit`` reads rows of a few blocks once more (four blocks, or a twentieth of all) and compares 1 000 of them with
    each other, to judge the map.

    References
    ----------
    M. Cameron, lecture notes, §4 and §5 (seed 000). R. Duda, P. Hart, D. Stork, Pattern Classification (2001), §3.8.
    O. Ledoit, M. Wolf, A well-conditioned estimator for large-dimensional covariance matrices, JMVA 88 (2004).

    Examples
    --------
    >>> X = np.array([[-1.0, -1], [-2, -1], [-3, -2], [1, 1], [2, 1], [3, 2]])
    >>> lda = LinearDiscriminantAnalysis().fit(X, ["left", "left", "left", "right", "right", "right"])
    >>> lda.predict([[-0.8, -1]]).tolist(), (lda.direction_.round(3) + 0.0).tolist()
    (['left'], [0.0, -1.0])
    """

    follows_dtype = True
    unasked = ("localized", "map")
    like_rows = (
        *("scalings_", "means_", "xbar_", "priors_", "covariance_", "coef_", "intercept_", "direction_"),
        "explained_variance_ratio_",
    )
    aligned = needs = ("labels",)
    compiled_from: ClassVar = inf
    saved_stages: ClassVar = {"labels": ("",), "scatter": ("means",), "solve": ("",), "coordinates": ("embedding",)}
    kept_stages: ClassVar = {"scatter": ("counts",)}
    shown_arrays: ClassVar = {"scatter": ("means", "counts")}

    n_components: Count | None = None
    _: KW_ONLY
    shrinkage: Auto | Annotated[float, interval(0, 1, closed="both")] | None = None
    priors: Sequence[float] | None = None
    missing_labels: Annotated[str, one_of("error", "ignore")] = "error"
    tol: Annotated[float, interval(0, 1, closed="left")] = 1e-12

    def fit(self, X: Any, y: Any) -> Self:  # type: ignore[override]
        """Fit the discriminants to rows with a label for each.

        Parameters
        ----------
        X : array of shape (n, d)
            The rows, of any kind that :func:`bigembed.open_array` takes.
        y : array of shape (n,)
            The label of each row: a sequence, a NumPy, pandas, Dask or zarr array, or the path of a Zarr array or .npy;
            integers, whole floats, booleans, text or dates.

        Returns
        -------
        Estimator
            The estimator itself.
        """
        self._check()
        if getattr(y, "ndim", 1) == 2 and y.shape[1] == 1:
            warnings.warn(
                "A column-vector y was passed when a 1d array was expected. Please change the shape of y to "
                "(n_samples,), for example using ravel().",
                errors.DataConversionWarning,
                stacklevel=2,
            )
        return self._fit_rows(X, labels=read_labels(y))

    def stages(self, source: RowSource) -> list[Stage]:
        """List the stages: labels, scatters (with "auto" fourth moments), directions and, on demand, coordinates."""
        self._check()
        n, d = passes.checked_shape(source)
        labels = read_labels(source.aligned.get("labels"))
        bare = replace(source, aligned={})
        most = self._most(labels, n, d)
        width = most if self.n_components is None else int(self.n_components)
        priors = None if self.priors is None else self._priors(len(labels.classes))
        by_class, classes = self.shrinkage == "auto" or priors is not None, len(labels.classes)
        few, tol = wide_discriminants.are_few(bare, self.shrinkage), float(self.tol)
        stages = [labels_stage(labels), discriminants.scatter_stage(bare, labels, by_class, diagonal=few)]
        if self.shrinkage == "auto":
            stages.append(discriminants.fourth_stage(bare, labels))
        if few:
            stages.append(wide_discriminants.solve_stage(bare, width, priors, tol, classes))
        else:
            stages.append(discriminants.solve_stage(width, self._shrinkage(), priors, tol, d, classes))
        return [*stages, self._output_stage(bare, stages, width)]

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Add labelled rows to those fitted so far: exactly what ``fit`` finds for all of them, up to rounding.

        For at most 4096 columns, and not with shrinkage="auto". The first rows must be of at least two classes; later
        ones may be of new classes. ``fit`` starts anew.

        Parameters
        ----------
        X : array of shape (n, d)
            The rows, of any kind that :func:`bigembed.open_array` takes.
        y : array of shape (n,)
            The label of each row: a sequence, a NumPy, pandas, Dask or zarr array, or the path of a Zarr array or .npy;
            integers, whole floats, booleans, text or dates.
        classes : array of shape (c,), or None
            The labels that are allowed; None allows all.

        Returns
        -------
        Estimator
            The estimator itself.
        """
        if self.shrinkage == "auto":
            raise InputError(
                "shrinkage='auto' needs fourth moments about the means of all rows, which batches do not have: use "
                "fit, or give a number"
            )
        given = read_labels(y)
        unknown = set() if classes is None else set(given.classes.tolist()) - set(np.asarray(classes).tolist())
        if unknown:
            raise InputError(f"y holds labels that are not in classes: {sorted(unknown)[:10]}")
        earlier = sums_of(self, "scatter", discriminants.SUMS)
        if earlier is not None and earlier["scatter"].ndim == 2:
            raise InputError(
                "partial_fit adds to the scatters of all columns, which fit did not form for rows fewer than these. "
                "Begin with partial_fit"
            )
        labels = given if earlier is None else with_classes(given, self.classes_)
        add_rows(self, X, lambda source, earlier: self._batch_stages(source, labels, earlier), earlier)
        return self

    def _batch_stages(self, source: RowSource, labels: Labels, earlier: Any) -> list[Stage]:
        """Labels, scatters added to ``earlier`` ones, directions."""
        n, d = passes.checked_shape(source)
        by_class = self.priors is not None
        if earlier is not None:
            by_class = discriminants.kept_by_class(earlier, by_class)
            earlier = discriminants.among_classes(earlier, self.classes_, labels.classes)
        most = self._most(labels, n, d, known=0 if earlier is None else int(earlier["counts"].sum()))
        width = most if self.n_components is None else int(self.n_components)
        priors = None if self.priors is None else self._priors(len(labels.classes))
        return [
            labels_stage(labels),
            discriminants.scatter_stage(source, labels, by_class, earlier),
            discriminants.solve_stage(width, self._shrinkage(), priors, float(self.tol), d, len(labels.classes)),
        ]

    def decision_function(self, X: Any) -> Any:
        """Compute the decision function of every class: log π_c − ½ m_cᵀ S_w⁻¹ m_c + xᵀ S_w⁻¹ m_c.

        Parameters
        ----------
        X : array of shape (k, d)
            New rows, of any kind of rows that ``fit`` takes.

        Returns
        -------
        array of shape (k, c)
            The values; of two classes the second minus the first, (k,).
        """
        self._check_fitted()
        if len(self.classes_) == 2:
            return self._apply(X, discriminants.score_difference, 1)[:, 0]
        return self._apply(X, discriminants.linear_scores, len(self.classes_))

    def predict(self, X: Any) -> Any:
        """Predict the class of largest decision function.

        Parameters
        ----------
        X : array of shape (k, d)
            New rows, of any kind of rows that ``fit`` takes.

        Returns
        -------
        array of shape (k,)
            The classes, in the form of ``classes_``.
        """
        self._check_fitted()
        codes = self._apply(X, discriminants.codes_of_rows, 1, "int64")[:, 0]
        classes = self.classes_
        return classes[codes] if isinstance(codes, np.ndarray) else codes.map_blocks(classes.take, dtype=classes.dtype)

    def predict_proba(self, X: Any) -> Any:
        """Compute the probabilities of the classes for normal densities of covariance S_w.

        Parameters
        ----------
        X : array of shape (k, d)
            New rows, of any kind of rows that ``fit`` takes.

        Returns
        -------
        array of shape (k, c)
            The probabilities.
        """
        self._check_fitted()
        return self._apply(X, discriminants.probabilities_of_rows, len(self.classes_))

    def predict_log_proba(self, X: Any) -> Any:
        """Compute the logarithms of :meth:`predict_proba`.

        Parameters
        ----------
        X : array of shape (k, d)
            New rows, of any kind of rows that ``fit`` takes.

        Returns
        -------
        array of shape (k, c)
            The logarithms.
        """
        return np.log(self.predict_proba(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute the share of rows whose class is predicted; a label that was not fitted never is.

        Parameters
        ----------
        X : array of shape (k, d)
            New rows, of any kind of rows that ``fit`` takes.
        y : array of shape (n,)
            The label of each row: a sequence, a NumPy, pandas, Dask or zarr array, or the path of a Zarr array or .npy;
            integers, whole floats, booleans, text or dates.
        sample_weight : array of shape (n,), or None
            How often each row counts.

        Returns
        -------
        float
            The share.
        """
        self._check_fitted()
        codes = np.asarray(self._apply(X, discriminants.codes_of_rows, 1, "int64")[:, 0])
        given = read_labels(y)
        known = {label: code for code, label in enumerate(self.classes_.tolist())}
        own = np.array([*(known.get(label, -2) for label in given.classes.tolist()), -2])[given.codes]
        if len(own) != len(codes):
            raise InputError(f"Found input variables with inconsistent numbers of samples: {[len(codes), len(own)]}")
        return float(np.average(codes == own, weights=sample_weight))

    def _apply(self, X: Any, function: Any, width: int, dtype: str = "float64") -> Any:
        """A function of the rows of X and the classifier: NumPy for NumPy, else a lazy Dask array."""
        return apply(self, X, Extension(function, self._run.path("solve"), width, self._columns, dtype=dtype))

    def _most(self, labels: Labels, n: int, d: int, known: int = 0) -> int:
        """The largest number of components; InputError where the labels cannot be used. ``known``: rows before."""
        if len(labels.codes) != n:
            raise InputError(f"Found input variables with inconsistent numbers of samples: {[n, len(labels.codes)]}")
        missing, classes = labels.missing, len(labels.classes)
        if len(missing) and self.missing_labels == "error":
            raise InputError(
                f"Input y contains NaN: {len(missing)} of {n} rows have no label, the first are rows "
                f"{missing[:10].tolist()}. Give them one, or missing_labels='ignore' to fit the others"
            )
        if classes < 2:
            found = f"one class, {labels.classes.tolist()[0]!r}" if classes else "none"
            raise InputError(f"the number of classes has to be greater than one; the labels hold {found}")
        if classes >= known + n - len(missing):
            raise InputError(
                f"The number of samples must be more than the number of classes; got {n - len(missing)} labelled rows "
                f"in {classes} classes"
            )
        most = min(classes - 1, d)
        if self.n_components is not None and self.n_components > most:
            raise InputError(
                f"n_components cannot be larger than min(n_features, n_classes - 1) = {most}; got {self.n_components}"
            )
        return most

    def _priors(self, classes: int) -> list[float]:
        priors = np.asarray(self.priors, np.float64)
        if priors.shape != (classes,):
            raise InputError(f"priors have shape {priors.shape}; there are {classes} classes, so shape ({classes},)")
        return [float(prior) for prior in priors]

    def _shrinkage(self) -> float | str | None:
        return self.shrinkage if self.shrinkage is None or isinstance(self.shrinkage, str) else float(self.shrinkage)

    def _require(self, need: Requirements) -> None:
        priors = np.zeros(0) if self.priors is None else np.asarray(self.priors, dtype=object).ravel()
        positive = all(is_number(prior) and prior >= 0 for prior in priors) and (not len(priors) or sum(priors) > 0)
        need(positive, "priors", "None, or a nonnegative number for every class, not all zero")

    def _set_fitted(self, run: Run) -> None:
        solve, two = run.path("solve"), len(run.results("labels")["classes"]) == 2
        self.classes_ = classes_from_json(run.results("labels"))
        self.means_, self.xbar_ = read_array(run.path("scatter", "means")), read_array(f"{solve}/center")
        self.priors_ = read_array(f"{solve}/priors")
        few = run.parameters("solve").get("solver") == wide_discriminants.SOLVER
        self.covariance_ = None if few else read_array(f"{solve}/covariance")
        self.scalings_ = read_array(f"{solve}/scalings")
        self.explained_variance_ratio_ = read_array(f"{solve}/explained_variance_ratio")
        coefficients, intercepts = read_array(f"{solve}/coefficients"), read_array(f"{solve}/intercepts")
        self.coef_ = np.diff(coefficients, axis=0) if two else coefficients
        self.intercept_ = np.diff(intercepts) if two else intercepts
        self.direction_ = read_array(f"{solve}/direction") if two else None
        self.n_components_ = self.scalings_.shape[1]
        if self._source is not None:
            self._source = replace(self._source, aligned={})

    def _certificate(self, run: Run) -> dict[str, Any]:
        solve, scatter, labels = run.results("solve"), run.results("scatter"), run.results("labels")
        degenerate = []
        if solve["rank"] < scatter["d"]:
            degenerate.append(
                discriminants.singular_text(solve["rank"], scatter["d"], scatter["n"], len(labels["classes"]))
            )
        if solve["renormalized"]:
            degenerate.append("The priors do not sum to 1. Renormalizing")
        return {
            "passes": (2 if run.has("fourth") else 1) + solve.get("passes", 0),
            "input": {name: scatter[name] for name in ("n", "d", "dtype")},
            "classes": len(labels["classes"]),
            "class_sizes": read_array(run.path("scatter", "counts")).astype(int).tolist(),
            "missing_labels": labels["missing"],
            "rank": solve["rank"],
            "shrinkage": solve["shrinkage"],
            "warnings": {"degenerate": degenerate},
        }

    def _extension(self, run: Run) -> Extension:
        width, scatter = read_array(run.path("solve", "scalings")).shape[1], run.results("scatter")
        return Extension(
            row_maps.project,
            row_maps.AffineMap(run.path("solve", "scalings")),
            width,
            scatter["d"],
            dtype=scatter["dtype"],
        )

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags

        tags = super().__sklearn_tags__()
        tags.estimator_type = "classifier"
        tags.classifier_tags = ClassifierTags()
        tags.target_tags.required = True
        return tags
