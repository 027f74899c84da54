"""What every estimator shares: parameters, input of any kind, runs, saving and loading.

Follows scikit-learn's conventions without importing it: parameters stay as given, results end in an underscore.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from bigembed import errors
from bigembed.errors import InputTypeError
from bigembed.estimator import MethodSpec, RunParameters
from bigembed.estimator.certificate import judged_certificate, versions
from bigembed.estimator.extension import Extension, consistent, float_dtype, leaves_out
from bigembed.estimator.frame import SHOWN, FrameReference, FrameRule, frame_figures, frame_in, place_of
from bigembed.estimator.reporting import Shown, warn_of
from bigembed.estimator.scikit_learn import DeclaredOrder, Framed, Parametrized, Routed, coordinate_names, html_of
from bigembed.neighbors.search import AUTO, WITHOUT_DESCENT
from bigembed.rows import RowSource, may_be_copied
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import Requirements, copy_parameters
from bigembed.stages import Run, Stage
from bigembed.stages.stage import keeping_copies

if TYPE_CHECKING:
    from bigembed.estimator.fitting import PreparedFit


MANY_ROWS = 2001
"""Rows from which methods on a graph call compiled functions: components of fewer are solved densely."""


class Estimator(Parametrized, RunParameters, Framed, Routed, Shown, ABC):
    """Base of all methods: scikit-learn's protocol, out of core.

    A method gives :meth:`stages` and the four hooks below; ``fit``, ``transform``, ``save``, jobs and
    the command line follow from them.
    """

    __signature__ = DeclaredOrder()
    registered: ClassVar[str]
    """The method's name in the registry: as job files and saved models have it."""
    saved_stages: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Stages of a saved model, and the arrays kept of each (all of them where the name is empty)."""
    kept_stages: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Arrays that stay with ``keep="map"`` besides those of a saved model: few bytes that a changed parameter reads."""
    shown_arrays: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Arrays of a saved model that fitted attributes are read from. They stay with ``keep="coordinates"``, even where
    rows are so few that an array of this length might be one with a number for each row."""
    aligned: ClassVar[tuple[str, ...]] = ()
    """Vectors that a job may align with the rows: ``"weights"``, ``"labels"``, ``"epsilons"``."""
    of_rows: ClassVar[tuple[str, ...]] = ()
    """Parameters that may be an array with a value for each fitted row; a saved model is without such an array."""
    follows_dtype: ClassVar[bool] = False
    """Whether stored and lazy coordinates of float32 rows are float32; those in memory are for every method, and sums
    are float64 all the same."""
    like_rows: ClassVar[tuple[str, ...]] = ()
    """Fitted arrays that are float32 where the rows are, as scikit-learn has them; what is stored of them is not."""
    of_columns: ClassVar[bool] = False
    """Whether each coordinate is made of one column, as steps have it."""
    takes_graphs: ClassVar[bool] = False
    """Whether ``fit`` and :meth:`stages` take a user's graph (:func:`bigembed.open_graph`) in place of rows."""
    of_lengths: ClassVar[bool] = False
    """Whether of a graph only lengths of edges count: weights are refused, and it may be without scales of its rows."""
    takes_sparse: ClassVar[bool] = False
    """Whether ``fit`` takes sparse rows in place of dense ones."""
    makes_maps: ClassVar[bool] = True
    """Whether what it makes is a map of the rows, which is judged; steps make rows."""
    unasked: ClassVar[tuple[str, ...]] = ()
    """Kinds of warnings that are not given, because nobody asks that of what the method makes; figures are kept."""
    takes_nan: ClassVar[bool] = False
    """Whether rows may hold NaN: a step that fills them, leaves them out or passes them on."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Which of the aligned vectors must be given."""
    _run: Run
    _in_memory: bool
    _dtype: str = "float64"
    """Of coordinates in memory: float32 where the rows that were fitted are."""
    _source: Any = None
    _on_demand: Sequence[Stage] = ()
    _steps: Sequence[Any] = ()
    """Steps that the rows go through before the method sees them; fitted, they are ``steps_``."""
    steps_: tuple[Any, ...]
    compiled_from: ClassVar[float] = 0
    """Rows from which its tasks call compiled functions, on dense rows and without a ``metric``, so that processes hold
    numba; infinite where they never do."""
    frame_rule: ClassVar[FrameRule] = FrameRule()
    """What the method leaves open of its coordinates, so that an earlier map may decide it."""
    _frame: FrameReference | None = None
    """The published map that the next fit is laid over."""
    _without_descent: bool = False
    """Whether NN-descent does not fit where this is fitted: a plan says so, and the automatic choice leaves it out."""
    _is_step: bool = False
    """Whether it is a step before another estimator: a model then does not keep its rows."""
    _parameters: dict[str, Any]
    n_features_in_: int
    certificate_: dict[str, Any]

    def __init_subclass__(cls, registered: str | None = None, **keywords: Any) -> None:
        """``registered``: the name of a method or a step in job files and saved models."""
        super().__init_subclass__(**keywords)
        if registered is not None:
            cls.registered = registered

    @abstractmethod
    def stages(self, source: RowSource) -> list[Stage]:
        """List all stages from rows to coordinates; those ``on_demand`` are left out by ``fit``."""

    @abstractmethod
    def _set_fitted(self, run: Run) -> None:
        """Set the fitted attributes from the published stages (of a run, or of a saved model)."""

    def _certificate(self, run: Run) -> dict[str, Any]:
        """How far the result can be trusted; under ``"warnings"`` the messages to give, by category. The versions of
        the packages that decide the result are added to it."""
        return {}

    def read_run(
        self,
        run: Run,
        *,
        source: RowSource | None = None,
        in_memory: bool = False,
        on_demand: Sequence[Stage] = (),
        certificate: dict[str, Any] | None = None,
        dtype: Any = None,
    ) -> Self:
        """Read the fitted attributes from the published stages of a run, or of a saved model.

        ``source``, ``in_memory``: the rows that were fitted, and whether they came as an array of this process.
        ``on_demand``: stages that were left out. ``certificate``: the one that was stored; by default it is made from
        the stages, and its warnings are given. ``dtype``: of the rows, by default that of ``source``.
        """
        self.__dict__.pop("_embedding", None)
        self._run, self._source, self._in_memory, self._on_demand = run, source, in_memory, tuple(on_demand)
        given = source.dtype if dtype is None and source is not None else dtype
        self._dtype = str(float_dtype(np.dtype(given)))
        self._parameters = copy_parameters(self._own_params())
        self._stored_arrays: dict[str, tuple[str, str]] = {}
        self._set_fitted(run)
        self.certificate_ = self._certificate(run) if certificate is None else certificate
        for name in ("embedding_", *self.like_rows):
            if name in self.__dict__:
                self.__dict__[name] = self._followed(self.__dict__[name])
        if certificate is None and self.certificate_:
            self.certificate_ = judged_certificate(self.certificate_, run, type(self).unasked)
            self.certificate_["versions"] = versions()
            # Before others in a pipeline its warnings are not about the map: they name it.
            warn_of(self.certificate_, type(self).__name__ if getattr(self, "goes_before", False) else "")
        self.certificate_ |= frame_figures(run)
        return self

    def _search(self) -> str:
        """How neighbors are searched: as ``algorithm`` asks, the automatic choice among what fits."""
        asked: str = self.get_params()["algorithm"]
        return WITHOUT_DESCENT if self._without_descent and asked == AUTO else asked

    def _set_array(self, name: str, stage: str, array: str) -> None:
        """Set an attribute that is a ``StoredArray`` to an array of a stage: in memory at once, or as a lazy array when
        it is first asked for. That its files are as they were published is checked now."""
        self.__dict__.pop(name, None)
        stage, array = place_of(self._run) if (stage, array) == SHOWN else (stage, array)
        if self._in_memory:
            self.__dict__[name] = self._run.array(stage, array, in_memory=True)
        else:
            self._run.path(stage, array)
            self._stored_arrays[name] = stage, array

    def _followed(self, found: Any) -> Any:
        """The same numbers in the dtype of the rows that were fitted, if they are an array in memory."""
        single = self._dtype == "float32" and isinstance(found, np.ndarray) and found.dtype == np.float64
        return found.astype(np.float32) if single else found

    def _extension(self, run: Run) -> Extension:
        """What turns new rows into coordinates, from the published stages."""
        raise InputTypeError(f"{type(self).__name__} has no place for new rows")

    def _map(self) -> Extension:
        """The extension of this fit: by the parameters of the fit, whatever ``set_params`` changed since."""
        from bigembed.estimator.model_files import check_extension, saved_at

        self._check_fitted()
        self._run.check()
        self._run.check_kept(self.saved_stages)
        saved = saved_at(self._run, getattr(self, "_parameters", {}))
        with consistent(saved):
            found = self.as_fitted()._extension(self._run)
        if leaves_out(getattr(self, "steps_", ())):
            found = replace(found, missing="passed")
        if (frame := frame_in(self._run)) is not None:
            found = replace(found, frame=frame)
        if not saved:
            return found
        check_extension(self._run, found.width, found.dtype, found.n_features if self.of_columns else None)
        return replace(found, saved=saved)

    @property
    def _columns(self) -> int:
        """Columns of the rows that the method itself was fitted to: what the steps before it made."""
        steps = getattr(self, "steps_", ())
        return int(steps[-1].n_components_) if steps else self.n_features_in_

    def as_fitted(self) -> Self:
        """Return this estimator with the parameters that it was fitted with."""
        frozen = object.__new__(type(self))
        frozen.__dict__ = self.__dict__ | getattr(self, "_parameters", {})
        return frozen

    def _check(self) -> None:
        """InputError that lists every parameter out of its range."""
        need = Requirements(self)
        self._require(need)
        need.refuse()

    def _require(self, need: Requirements) -> None:
        """What no annotation says: which parameters go together."""

    def _repr_html_(self) -> str:
        from bigembed.estimator.model_files import saved_at

        with consistent(saved_at(self._run, {}) if hasattr(self, "_run") else ""):
            return html_of(self)

    def __sklearn_tags__(self) -> Any:
        """scikit-learn's description of what this estimator takes."""
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type="transformer",
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(preserves_dtype=["float64", "float32"]),
            input_tags=InputTags(sparse=self._sparse(), pairwise=self._pairwise(), allow_nan=self.takes_nan),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_run") or hasattr(self, "eigenvalues_")

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the map to rows.

        Parameters
        ----------
        X : array of shape (n, d)
            The rows, of any kind that :func:`bigembed.open_array` takes.
        y : None
            Not used; scikit-learn's protocol has it.

        Returns
        -------
        Estimator
            The estimator itself.
        """
        return self._fit_rows(X)

    def _pairwise(self) -> bool:
        """Whether ``fit`` takes an array (n, n) of what lies between rows."""
        return False

    def _sparse(self) -> bool:
        """Whether ``fit`` takes sparse rows, by the parameters as they are."""
        return self.takes_sparse and not self._pairwise()

    def _spec(self) -> MethodSpec:
        return MethodSpec(self, self.stages, tuple(self._steps), self._sparse(), self._pairwise())

    def _fit_rows(self, X: Any, **aligned: Any) -> Self:
        from bigembed.estimator.fitting import compute_fit, unchanged_if_stopped

        self._check()
        with unchanged_if_stopped(self), keeping_copies(self.workdir, may_be_copied(X)):
            return self._read_fit(compute_fit(self._spec(), self._prepare(X, aligned)))

    def _read_fit(self, fit: PreparedFit) -> Self:
        """Set the fitted attributes from the results of a fit that is computed."""
        from bigembed.estimator.preprocessing import described_steps

        if fit.steps:
            self.steps_ = fit.steps
        self._retention = fit.retention
        later = [stage for stage in fit.stages if stage.on_demand]
        self.read_run(fit.run, source=fit.source, in_memory=fit.in_memory, on_demand=later, dtype=fit.dtype)
        if fit.steps:
            self.certificate_["steps"] = described_steps(fit.steps)
        return self

    def _prepare(self, X: Any, aligned: Mapping[str, Any]) -> PreparedFit:
        from bigembed.estimator.fitting import prepare_fit

        return prepare_fit(self._spec(), X, aligned)

    def fit_transform(self, X: Any, y: Any = None, **aligned: Any) -> Any:
        """Fit the map to rows, and return their coordinates.

        Parameters
        ----------
        X : array of shape (n, d)
            The rows, of any kind that :func:`bigembed.open_array` takes.
        y : None
            Not used; scikit-learn's protocol has it.
        **aligned : array of shape (n,)
            Vectors aligned with the rows, which ``fit`` takes by name.

        Returns
        -------
        array of shape (n, m)
            The coordinates, as ``embedding_`` has them.
        """
        return self.fit(X, y, **aligned).embedding_  # type: ignore[attr-defined]

    def transform(self, X: Any) -> Any:
        """Place new rows on the map, each by itself: a row gets the same coordinates whatever the batch.

        Parameters
        ----------
        X : array of shape (k, d)
            New rows, of any kind of rows that ``fit`` takes.

        Returns
        -------
        array of shape (k, m)
            The coordinates: NumPy for NumPy, else a lazy Dask array.
        """
        return self._followed(self._as_computed(X))

    def _as_computed(self, X: Any, **aligned: Any) -> Any:
        """Coordinates of new rows in the dtype that they are computed and stored in."""
        from bigembed.estimator.transform import transform

        self._check_fitted()
        return transform(self, X, **aligned)

    def transform_to(self, X: Any, out: str | os.PathLike[str]) -> None:
        """Place new rows on the map, block by block, and write their coordinates in one pass.

        Parameters
        ----------
        X : array of shape (k, d)
            New rows, of any kind of rows that ``fit`` takes.
        out : path
            The path of the new Zarr array (n, m).
        """
        from bigembed.estimator.transform import transform_to

        self._check_fitted()
        transform_to(self, X, out)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model: Zarr and JSON, versioned, checksummed, nothing that needs unpickling.

        Parameters
        ----------
        path : path
            The path of the model.
        """
        from bigembed.estimator.saving import save

        self._check_fitted()
        save(self, path)

    def __dask_tokenize__(self) -> Any:
        from bigembed.estimator.saving import token

        return token(self)

    def __getstate__(self) -> dict[str, Any]:
        from bigembed.estimator.saving import to_state

        return to_state(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        from bigembed.estimator.saving import from_state

        from_state(self, state)

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> Array:
        """Return names of the coordinates: the class name in lower case and a number from 0 on, as scikit-learn counts.

        Reports, pictures and warnings count coordinates from 1.

        Parameters
        ----------
        input_features : sequence of str, or None
            The names of the columns of the rows; if given, they must be those that were fitted.

        Returns
        -------
        ndarray of str
            The names.
        """
        self._check_fitted()
        return np.array(coordinate_names(type(self), self.n_components_), dtype=object)  # type: ignore[attr-defined]

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise errors.NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with appropriate "
                "arguments before using this estimator."
            )

    def _seed(self) -> int:
        state: Any = getattr(self, "random_state", 0)
        if state is None:
            return int(np.random.SeedSequence().generate_state(1)[0])
        if isinstance(state, (int, np.integer)):
            return int(state)
        return int(state.randint(2**31 - 1) if hasattr(state, "randint") else state.integers(2**31 - 1))
