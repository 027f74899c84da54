"""scikit-learn's metadata routing: which aligned vectors a method of an estimator takes, and by which name.

The protocol of ``sklearn.utils.metadata_routing``, imported only where it is asked for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Self

ROUTED = ("fit", "partial_fit", "transform", "score")
"""Methods that may take more than rows and labels; scikit-learn composes ``fit_transform`` of them."""


class Routed:
    """What :class:`~bigembed.estimator.base.Estimator` answers to scikit-learn's routers (pipelines, searches)."""

    _metadata_request: Any

    def get_metadata_routing(self) -> Any:
        """What each method takes beside ``X`` and ``y``, and what of it was requested."""
        from copy import deepcopy

        from sklearn.utils.metadata_routing import MetadataRequest

        if hasattr(self, "_metadata_request"):
            return deepcopy(self._metadata_request)
        request = MetadataRequest(owner=self)
        for name in ROUTED:
            for parameter in routed(getattr(self, name, None)):
                getattr(request, name).add_request(param=parameter, alias=None)
        return request

    def _request(self, method: str, asked: dict[str, Any]) -> Self:
        known = routed(getattr(self, method, None))
        if unknown := sorted(set(asked) - set(known)):
            raise TypeError(f"Unexpected args: {set(unknown)} in {method}. Accepted arguments are: {set(known)}")
        request = self.get_metadata_routing()
        for parameter, alias in asked.items():
            getattr(request, method).add_request(param=parameter, alias=alias)
        self._metadata_request = request
        return self

    def set_fit_request(self, **asked: bool | str | None) -> Self:
        """Request metadata for ``fit``: True, False, None (an error where it is given) or the name it comes under."""
        return self._request("fit", asked)

    def set_partial_fit_request(self, **asked: bool | str | None) -> Self:
        """Request metadata for ``partial_fit``, as :meth:`set_fit_request`."""
        return self._request("partial_fit", asked)

    def set_transform_request(self, **asked: bool | str | None) -> Self:
        """Request metadata for ``transform``, as :meth:`set_fit_request`."""
        return self._request("transform", asked)

    def set_score_request(self, **asked: bool | str | None) -> Self:
        """Request metadata for ``score``, as :meth:`set_fit_request`."""
        return self._request("score", asked)


def routed(method: Callable[..., Any] | None) -> list[str]:
    """Parameters of a method other than rows and labels.

    >>> routed(lambda X, y=None, sample_weight=None: None)
    ['sample_weight']
    """
    if method is None:
        return []
    named = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    parameters = list(inspect.signature(method).parameters.values())
    return [one.name for one in parameters if one.kind in named and one.name not in ("X", "y")]
