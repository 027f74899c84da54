"""Arrays whose attributes say that stored numbers are packed or stand for missing values: decoded as they are copied.

The CF conventions (§8.1, §2.5.1), as netCDF has them and xarray writes them to Zarr: a value is
``stored · scale_factor + add_offset``, and missing where ``stored`` is ``_FillValue`` or ``missing_value``.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.rows.reader import Reader
from bigembed.runtime.blocks import Array

SCALE, OFFSET, FILLS = "scale_factor", "add_offset", ("_FillValue", "missing_value")


def nan_dtype(dtype: Any) -> np.dtype[Any]:
    """The dtype of the same numbers that has NaN besides.

    >>> nan_dtype("int16"), nan_dtype("int64"), nan_dtype("float32")
    (dtype('float32'), dtype('float64'), dtype('float32'))
    """
    dtype = np.dtype(dtype)
    small = np.can_cast(dtype, np.float32)
    return dtype if dtype.kind == "f" else np.dtype(np.float32 if small else np.float64)


@dataclass(frozen=True)
class Packing:
    """How stored numbers become values."""

    scale: float = 1.0
    offset: float = 0.0
    fills: tuple[int | float, ...] = ()
    """Stored numbers that stand for missing values, NaN not among them."""

    @property
    def scaled(self) -> bool:
        """Whether numbers change, those that are not missing."""
        return (self.scale, self.offset) != (1.0, 0.0)

    def dtype(self, stored: Any) -> np.dtype[Any]:
        """The dtype of the values."""
        return np.dtype(np.float64) if self.scaled else nan_dtype(stored)

    def missing(self, stored: Array) -> Array:
        """Which of the stored numbers stand for none."""
        found = np.zeros(stored.shape, bool)
        for fill in self.fills:
            found |= stored == _as_stored(fill, stored.dtype)
        return found

    def decoded(self, stored: Array) -> Array:
        """The values, NaN where they are missing.

        >>> Packing(0.5, 10.0, (-1.0,)).decoded(np.array([4, -1], "i2")).tolist()
        [12.0, nan]
        """
        absent, values = self.missing(stored), stored.astype(self.dtype(stored.dtype))
        if self.scaled:
            values = values * self.scale + self.offset
        values[absent] = np.nan
        return values


def _as_stored(fill: int | float, dtype: np.dtype[Any]) -> Any:
    """A fill value as an array of this dtype holds it; NaN, which equals nothing, if it cannot."""
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return dtype.type(fill)
    limits = np.iinfo(dtype)
    return dtype.type(fill) if fill == int(fill) and limits.min <= fill <= limits.max else np.nan


def packing_of(attributes: Mapping[str, Any], fill: Any = None) -> Packing | None:
    """What the attributes of an array say of its numbers; None where these are the values.

    ``fill``: the fill value in the metadata of Zarr 2, which xarray writes there instead of an attribute; it counts
    for arrays of xarray alone.

    >>> packing_of({"scale_factor": 0.1, "_FillValue": -99})
    Packing(scale=0.1, offset=0.0, fills=(-99,))
    >>> packing_of({"units": "m", "_FillValue": float("nan")}) is None
    True
    """
    by_xarray = "_ARRAY_DIMENSIONS" in attributes
    given = [attributes.get(name) for name in FILLS] + ([fill] if by_xarray and fill else [])
    fills = dict.fromkeys(one for value in given for one in _numbers(value) if one == one)
    scale, offset = _first(attributes.get(SCALE), 1.0), _first(attributes.get(OFFSET), 0.0)
    found = Packing(scale, offset, tuple(fills))
    return found if found.scaled or found.fills else None


def _first(value: Any, otherwise: float) -> float:
    return float(next(iter(_numbers(value)), otherwise))


def _numbers(value: Any) -> list[int | float]:
    """The numbers of an attribute; of text the one of eight bytes that xarray writes in base 64."""
    if isinstance(value, str):
        with suppress(ValueError, struct.error):
            return [*struct.unpack("<d", base64.standard_b64decode(value))]
        return []
    found = np.ravel(value)
    return found.tolist() if found.dtype.kind in "iuf" else []


def packing_at(array: Any) -> Packing | None:
    """The packing of a zarr array, or of a dataset of HDF5."""
    old = getattr(getattr(array, "metadata", None), "zarr_format", 3) == 2
    return packing_of(dict(array.attrs), array.fill_value if old else None) if array.dtype.kind in "iuf" else None


def refuse_packed(array: Any, where: Any) -> None:
    """InputError where stored numbers are not the values, for reading that takes them as they are."""
    if packing_at(array) is not None:
        names = [name for name in (SCALE, OFFSET, *FILLS) if name in array.attrs] or ["fill_value"]
        raise InputError(
            f"{where}: its numbers are packed, or stand for missing values, as its attributes say "
            f"({', '.join(names)}). Give the array of xarray.open_dataset, which decodes them; a job and bigembed "
            "ingest decode them, too"
        )


@dataclass(frozen=True)
class DecodedReader:
    """Rows of another reader, decoded; missing values are refused unless they may come as NaN."""

    base: Any
    packing: Packing
    may_miss: bool = False

    @property
    def path(self) -> str:
        """Of what is read."""
        return str(self.base.path)

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, d)."""
        found: tuple[int, ...] = self.base.shape
        return found

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values."""
        return self.packing.dtype(self.base.dtype)

    @property
    def grain(self) -> int:
        """Rows that one task had better read in one go."""
        return int(self.base.grain)

    @property
    def names(self) -> Mapping[str, str]:
        """Other arrays beside it."""
        found: Mapping[str, str] = getattr(self.base, "names", {})
        return found

    row_ids = None

    def vector(self, name: str) -> Reader:
        """Another array beside it."""
        found: Reader = self.base.vector(name)
        return found

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        first = start
        for part in self.base.stream(start, stop):
            if not self.may_miss and (absent := self.packing.missing(part)).any():
                row = first + int(np.flatnonzero(absent.reshape(len(part), -1).any(axis=1))[0])
                raise InputError(
                    f"{self.path}: values are missing ({', '.join(f'{one:g}' for one in self.packing.fills)} as its "
                    f"attributes say), the first in row {row}. Leave rows out or fill them: in a job by the step "
                    "'missing'"
                )
            first += len(part)
            yield self.packing.decoded(part)


def decoded(reader: Any, array: Any, may_miss: bool) -> Reader:
    """A reader of the values of an array; the reader itself where what is stored are the values."""
    packing = packing_at(array)
    found: Reader = reader if packing is None else DecodedReader(reader, packing, may_miss)
    return found
