"""What scikit-learn's own tools know by its class, ours and theirs at once.

Importing this module imports scikit-learn: only where one of them is given.
"""

from __future__ import annotations

from sklearn import exceptions

from bigembed.errors import BigembedWarning, NotFittedError


class UnfittedError(NotFittedError, exceptions.NotFittedError):
    """A result was asked of an estimator before ``fit``."""


class DataConversionWarning(BigembedWarning, exceptions.DataConversionWarning):
    """Something was given in a form that had to be converted."""
