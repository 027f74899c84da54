"""The neighbor graph as scikit-learn's pipelines, scanpy and others take it: sparse distances of rows to their nearest.

Importing this imports scikit-learn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from bigembed.neighbors.build import build_neighbor_graph
from bigembed.neighbors.graph import lists_of, query_of
from bigembed.runtime.blocks import Array


class NeighborTransformer(TransformerMixin, BaseEstimator):
    """Turn rows into sparse distances to their nearest rows, as scikit-learn's ``KNeighborsTransformer`` does.

    It goes before estimators with ``metric="precomputed"``, of scikit-learn or of bigembed, and into scanpy's
    ``pp.neighbors(transformer=…)``. New rows get their distances to the fitted ones.

    Parameters
    ----------
    n_neighbors : int ≥ 1
        The number k of neighbors. Each row also stores the distance to one more, which of fitted rows is the row
        itself, at 0.
    metric : str or function
        The distance of two rows, as for :func:`bigembed.build_neighbor_graph`. With "cosine" it is the chord
        √(2 (1 − cos)), where scikit-learn has 1 − cos: d²/2 of the chord d. The neighbors are the same.
    recall : float in (0, 1]
        The target share of true neighbors.
    algorithm : {"auto", "cells", "nn-descent", "pynndescent"}
        How neighbors are searched.
    algorithm_params : dict or None
        Parameters for pynndescent's ``NNDescent``, with algorithm="pynndescent".
    random_state : int ≥ 0 or None
        The seed; None is 0.
    workdir : path or None
        Where the graph is kept; None is a temporary folder.

    Attributes
    ----------
    graph_ : NeighborGraph
        The graph of the fitted rows.
    n_features_in_ : int
        The number of columns of the rows.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.arange(10.0)[:, None]
    >>> found = NeighborTransformer(n_neighbors=2).fit(rows)
    >>> found.transform(np.array([[0.4]])).toarray()[0, :3].round(1).tolist()
    [0.4, 0.6, 1.6]
    """

    def __init__(
        self,
        n_neighbors: int = 15,
        *,
        metric: Any = "euclidean",
        recall: float = 0.99,
        algorithm: str = "auto",
        algorithm_params: Mapping[str, Any] | None = None,
        random_state: int | None = 0,
        workdir: Any = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.recall = recall
        self.algorithm = algorithm
        self.algorithm_params = algorithm_params
        self.random_state = random_state
        self.workdir = workdir

    def fit(self, X: Any, y: Any = None) -> Self:
        """Build the neighbor graph of rows.

        Parameters
        ----------
        X : array of shape (n, d)
            The rows, in any form that :func:`bigembed.build_neighbor_graph` takes.
        y : None
            Not used; scikit-learn's protocol has it.

        Returns
        -------
        NeighborTransformer
            The transformer itself.
        """
        self.graph_ = build_neighbor_graph(
            X,
            self.n_neighbors,
            metric=self.metric,
            recall=self.recall,
            algorithm=self.algorithm,
            algorithm_params=self.algorithm_params,
            random_state=0 if self.random_state is None else int(self.random_state),
            workdir=self.workdir,
        )
        self.n_features_in_ = self.graph_.n_features
        return self

    def fit_transform(self, X: Any, y: Any = None, **parameters: Any) -> Any:
        """Build the graph of rows, and return their distances.

        Parameters
        ----------
        X : array of shape (n, d)
            The rows.
        y : None
            Not used; scikit-learn's protocol has it.
        **parameters : dict
            Not used; scikit-learn's protocol has them.

        Returns
        -------
        csr_matrix of shape (n, n)
            The distances of each row to itself and its k nearest rows, nearest first.
        """
        self.fit(X)
        indices, distances = lists_of(self.graph_)
        own = np.arange(self.graph_.n)[:, None]
        return _matrix(np.hstack([own, indices]), np.hstack([np.zeros(own.shape), distances]), self.graph_.n)

    def transform(self, X: Any) -> Any:
        """Return the distances of rows to the nearest fitted ones.

        Parameters
        ----------
        X : array of shape (m, d)
            The rows.

        Returns
        -------
        csr_matrix of shape (m, n)
            The distances of each row to its k + 1 nearest fitted rows, nearest first.
        """
        check_is_fitted(self)
        return _matrix(*query_of(self.graph_, X, self.n_neighbors + 1), self.graph_.n)


def _matrix(indices: Array, distances: Array, n: int) -> Any:
    m, k = indices.shape
    return csr_matrix((distances.ravel(), indices.ravel(), np.arange(0, m * k + 1, k)), shape=(m, n))
