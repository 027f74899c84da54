"""What users hand over in memory, as an array; what is none is refused by its name before NumPy takes it apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import InputError, InputTypeError
from bigembed.store.rows.masked import unmasked

PROTOCOLS = ("__array__", "__array_interface__", "__array_struct__")
"""What an object has that NumPy can make an array of at once."""
HINTS = {
    "anndata": 'it holds several arrays: give the one that is meant, such as adata.X or adata.obsm["X_pca"]; of a file '
    "(.h5ad, .zarr) a job, or bigembed ingest, reads it block by block (array = 'obsm/X_pca')",
    "mudata": 'it holds several AnnData: give the array that is meant, such as mdata["rna"].obsm["X_pca"]',
    "xarray": 'it holds several variables: give the one that is meant, ds["NAME"], or to_array() of those of one shape',
    "h5py": 'give a dataset in it, file["NAME"]; of the file a job, or bigembed ingest, reads one (array = "NAME")',
    "zarr": 'give an array in it, group["NAME"], or its path',
}
"""What to do about objects of these packages that hold arrays and are none."""
KINDS = (
    "NumPy, SciPy sparse, zarr, h5py, Dask, xarray, anything with __array__), a data frame, a list of rows or the path "
    "of a Zarr array or .npy"
)


def as_array(values: Any, what: str = "rows") -> Array:
    """An array of what is one, or can be at once; InputTypeError, InputError for anything else, and masked entries.

    >>> as_array([[1, 2]]).tolist()
    [[1, 2]]
    >>> as_array({"a": [1]})
    Traceback (most recent call last):
        ...
    bigembed.errors.InputTypeError: rows: got dict, which is no array: give one of its values
    """
    return np.asarray(unmasked(maybe_masked(values, what), what=what))


def maybe_masked(values: Any, what: str = "rows") -> Array:
    """The same, with the mask if there is one."""
    refuse_other(values, what)
    try:
        return np.asanyarray(values)
    except (TypeError, ValueError) as error:
        kind = InputTypeError if isinstance(error, TypeError) else InputError
        raise kind(f"{what}: got {type(values).__name__}, of which NumPy makes no array ({error})") from error


def refuse_other(values: Any, what: str = "rows") -> None:
    """InputTypeError for an object that is no array: NumPy would ask it for its entries one by one, for minutes."""
    several = isinstance(values, Mapping) or hasattr(values, "data_vars")
    if not several and (isinstance(values, np.generic | int | float) or any(hasattr(values, one) for one in PROTOCOLS)):
        return
    if not several and isinstance(values, Sequence | memoryview) and not isinstance(values, str | bytes):
        if len(values) and hasattr(values[0], "__len__") and not isinstance(values[0], str | bytes):
            refuse_other(values[0], what)
        return
    hint = HINTS.get(type(values).__module__.partition(".")[0])
    hint = hint or ("give one of its values" if several else f"give an array ({KINDS}")
    raise InputTypeError(f"{what}: got {type(values).__name__}, which is no array: {hint}")
