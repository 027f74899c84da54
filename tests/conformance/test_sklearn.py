"""scikit-learn's own estimator checks, on every estimator."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from bigembed import KernelPCA, LandmarkDiffusionMap, LandmarkMDS, Missing, Pipeline
from bigembed.estimator.on_graph import OnGraph
from bigembed.maps import REGISTRY, STEPS, method_or_step

TINY: dict[str, dict[str, Any]] = {
    "diffusion_map": {"n_components": 2, "n_neighbors": 5, "components": "bridge"},
    "isomap": {"n_components": 1, "n_neighbors": 5, "components": "bridge"},
    "landmark_diffusion_map": {"n_landmarks": 10},
    "laplacian_eigenmaps": {"n_components": 2, "n_neighbors": 5, "components": "bridge"},
    "linearized_diffusion_nmf": {"max_iter": 20},
    "nmf": {"max_iter": 20},
    "spectral_clustering": {"n_clusters": 2, "n_neighbors": 5, "components": "bridge"},
    "hessian_lle": {"n_components": 1, "n_neighbors": 5},
    "local_tangent_space_alignment": {"n_components": 1, "n_neighbors": 5},
    "locally_linear_embedding": {"n_components": 1, "n_neighbors": 5},
    "tsne": {"perplexity": 3, "early_exaggeration_iter": 5, "n_iter": 8},
    "umap": {"n_neighbors": 5, "n_epochs": 9},
    "modified_lle": {"n_components": 1, "n_neighbors": 5},
}
"""Parameters for the few rows of the checks, of methods that need more than defaults."""
OTHERS = [
    ("landmark_mds", {"metric": "cityblock"}),
    ("isomap", {**TINY["isomap"], "solver": "landmarks", "n_landmarks": 12}),
    ("locally_linear_embedding", {"n_neighbors": 5, "solver": "landmarks", "n_landmarks": 20}),
    ("kernel_pca", {"solver": "nystrom", "n_landmarks": 10}),
]
"""Other solvers of classes that are checked by default."""
NAN = [
    ("mark_missing", {}),
    ("missing", {"action": "fill"}),
    ("one_hot", {"unknown": "zeros"}),
    ("mixed", {"missing": "mean"}),
    ("gower", {}),
]
"""Steps that take NaN, and say so."""
SOME_COLUMNS = [
    ("clip", {"high": 1.0, "columns": [0]}),
    ("mark_missing", {"columns": [0]}),
    ("robust_standardize", {"columns": [0]}),
    ("standardize", {"columns": [0]}),
]
"""Steps that leave the other columns as they are (log1p does, too; the checks have numbers below −1)."""
SAMPLE = ("diffusion_map", "pca")
"""Of which every check is made; of others those are slow that are a second form of one, rows or weights of another
kind, or what another suite proves of every method."""
SHARED = {
    "check_dict_unchanged", "check_dont_overwrite_parameters", "check_estimators_fit_returns_self",
    "check_estimators_overwrite_params", "check_fit2d_predict1d", "check_fit_score_takes_y", "check_n_features_in",
    "check_pipeline_consistency", "check_positive_only_tag_during_fit", "check_readonly_memmap_input",
    "check_sample_weights_not_overwritten",
}  # fmt: skip
"""Checks of what one function of the base does before or after the fit of any method."""
KINDS = {
    "check_dtype_object", "check_estimator_sparse_array", "check_estimator_sparse_matrix", "check_estimator_sparse_tag",
    "check_estimators_dtypes", "check_f_contiguous_array_estimator", "check_sample_weights_list",
    "check_sample_weights_not_an_array", "check_sample_weights_pandas_series", "check_transformer_data_not_an_array",
    "check_transformer_preserve_dtypes",
}  # fmt: skip
"""Checks of rows of many kinds, which are fitted like any others once one function for all methods has read them."""
ELSEWHERE = {
    "check_estimators_nan_inf",  # test_rows
    "check_estimators_pickle",  # test_stored
    "check_fit_idempotent",  # test_same_bytes
    "check_methods_sample_order_invariance", "check_methods_subset_invariance",  # test_rows: any batch, chunk, place
}  # fmt: skip
"""Checks of which suites of this folder prove more, of every method."""

OF_A_FAMILY = {
    "hessian_lle", "laplacian_eigenmaps", "local_tangent_space_alignment", "modified_lle", "spectral_clustering"
}  # fmt: skip
"""Methods that are fitted as another one of their family is, of which all but :data:`SHARED` and so on is checked."""
OF_A_CLASS = {
    "check_do_not_raise_errors_in_init_or_set_param", "check_estimator_cloneable", "check_estimator_repr",
    "check_get_params_invariance", "check_no_attributes_set_in_init", "check_parameters_default_constructible",
    "check_set_params", "check_valid_tag_types",
}  # fmt: skip
"""Checks of what each class says of itself, which fit nothing."""

COPIES = {"check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"}
"""Checks that rows of weight m give, to the last digits, what m copies do, and rows of weight 0 what none does. Methods
on a graph, and kernel PCA, refuse weights of 0, and lists of neighbors end among copies; other landmarks are drawn of
copies. What they keep is tested in ``tests/unit/maps``: ``test_row_weights.py``, ``test_weighted_maps.py``."""


def checks() -> list[Any]:
    """All checks of all estimators. They need not inherit from BaseEstimator, of which scikit-learn warns."""
    default = [(name, TINY.get(name, {})) for name in sorted(REGISTRY)]
    found = []
    for name, parameters in [*default, *OTHERS, *NAN, *SOME_COLUMNS]:
        estimator = method_or_step(name)(**parameters)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for one, check in estimator_checks_generator(estimator):
                sampled = isinstance(estimator, OnGraph | KernelPCA | LandmarkDiffusionMap | LandmarkMDS)
                if sampled and check.func.__name__ in COPIES:
                    continue
                repeated = check.keywords.get("readonly_memmap") or check.func.__name__ in SHARED | KINDS | ELSEWHERE
                repeated = repeated or (name in OF_A_FAMILY and check.func.__name__ not in OF_A_CLASS)
                slow = (name, parameters) in OTHERS or (repeated and name not in SAMPLE)
                marks = pytest.mark.slow if slow else ()
                found.append(pytest.param(one, check, id=f"{estimator}-{check.func.__name__}", marks=marks))
    return found


@pytest.mark.parametrize("name", [*REGISTRY, *STEPS])
def test_what_takes_nan_says_so(name: str) -> None:
    estimator = method_or_step(name)()
    assert estimator.__sklearn_tags__().input_tags.allow_nan == (name in dict(NAN))
    before = Pipeline([Missing(), estimator])
    assert before.__sklearn_tags__().input_tags.allow_nan
    assert Pipeline([estimator]).__sklearn_tags__().input_tags.allow_nan == (name in dict(NAN))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("estimator", "check"), checks())
def test_estimator(estimator: Any, check: Any) -> None:
    check(estimator)
