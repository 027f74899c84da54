"""Variables of netCDF files (3 and 4) as rows, by netCDF4: scaled as their attributes say, refused where values miss.

Several variables of one shape: a row is a point of their grid, a column a variable. One variable of two dimensions:
its rows. One of more: ``rows`` names the leading dimensions that make the rows, and the others make the columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, ClassVar

import numpy as np

from bigembed.errors import DamagedError, InputError, needed
from bigembed.rows import as_worked
from bigembed.rows.formats.hdf5 import begins_as_hdf5, datasets_of, external_links, require_held
from bigembed.rows.formats.hdf5 import opened as open_hdf5_file
from bigembed.rows.opening import without_mask
from bigembed.rows.packing import nan_dtype
from bigembed.rows.reader import HDF5, TEXT, Choice, as_text, described, listed, native, read_ranges
from bigembed.runtime.blocks import Array
from bigembed.store import AnyPath, local

SUFFIXES = (".nc", ".nc3", ".nc4", ".cdf", ".netcdf")
_ONE_AT_A_TIME = Lock()
"""The library must not be entered by two threads."""


@dataclass(frozen=True)
class NetcdfReader:
    """Variables of one shape as columns, or one variable whose trailing dimensions are the columns; a vector."""

    path: str
    variables: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    grain: int = 1
    names: Mapping[str, str] = field(default_factory=dict, repr=False)
    row_ids: None = None
    missing: bool = False
    """Whether missing values come as NaN; they are refused otherwise."""
    loading: ClassVar[int] = HDF5

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns, where each is a variable."""
        return self.variables if len(self.variables) > 1 else ()

    def vector(self, name: str) -> NetcdfReader:
        """A variable with an entry for each row."""
        with opened(self.path) as file:
            stored = file.variables[name]
            size, dtype = int(np.prod(stored.shape)), _dtype(stored)
            if dtype == TEXT and stored.dtype != str:
                size = int(np.prod(stored.shape[:-1]))
        return replace(self, variables=(name,), shape=(size,), dtype=dtype, missing=False)

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        width = 1 if len(self.shape) == 1 else self.shape[1] // len(self.variables)
        for low, high in read_ranges(start, stop, self.grain, self.dtype.itemsize * width * len(self.variables)):
            parts = [self._part(name, low, high, width) for name in self.variables]
            yield parts[0] if len(parts) == 1 else np.stack(parts, axis=1)

    def _part(self, name: str, low: int, high: int, width: int) -> Array:
        with opened(self.path) as file:
            stored = file.variables[name]
            if self.dtype == TEXT:
                return as_text(np.ma.getdata(stored[low:high]).reshape(-1))
            found = list(_flat(stored, (), low * width, high * width, self.path))
            if self.missing:
                found = [without_mask(part) for part in found]
            if any(np.ma.is_masked(part) for part in found):
                raise InputError(
                    f"{self.path}: {_missing(stored, self.path)} of {stored.size} values of {name} are missing (fill "
                    f"value, missing_value or outside its valid range), the first in rows {low}:{high}. Every row "
                    "needs all its numbers: write a file without those rows (or drop them by the step 'missing')"
                )
            values: Array = as_worked(np.concatenate([np.ma.getdata(part) for part in found]), self.dtype, low, name)
        return values if len(self.shape) == 1 or len(self.variables) > 1 else values.reshape(high - low, width)


def open_netcdf(path: AnyPath, choice: Choice) -> NetcdfReader:
    """The chosen variables, or the only one that can be rows."""
    choice.only(path, "netCDF", "array", "rows")
    _refuse_elsewhere(path)
    with opened(str(path)) as file:
        there = {name: one for name, one in file.variables.items() if one.dtype != str and one.dtype.kind in "iuf"}
        names = {name: f"{_sizes(one)} {one.dtype}" for name, one in file.variables.items()}
        chosen = choice.array or tuple(name for name, one in there.items() if len(one.shape) == 2)
        unknown = [name for name in chosen if name not in there]
        if unknown:
            several = '. Several are a list: array = ["A", "B"]' if any("," in name for name in unknown) else ""
            raise InputError(
                f"{path}: no variables of numbers {', '.join(unknown)}; there are {described(names)}{several}"
            )
        if not choice.array and len(chosen) != 1:
            raise InputError(
                f"{path}: choose the variables (array); several of one shape become columns. There are "
                f"{described(names)}"
            )
        stored = [there[name] for name in chosen]
        dtype = np.result_type(*(_dtype(one) for one in stored))
        if len(stored) > 1:
            _require_one_shape(path, dict(zip(chosen, stored, strict=True)), choice)
            leading = len(stored[0].shape)
        else:
            leading = _leading(path, stored[0], choice.rows)
        sizes = stored[0].shape
        shape = int(np.prod(sizes[:leading])), int(np.prod(sizes[leading:])) * len(stored)
        if choice.missing:
            dtype = nan_dtype(dtype)
        grain = _grain(stored, leading)
        return NetcdfReader(str(path), tuple(chosen), shape, dtype, grain, names, missing=choice.missing)


def _refuse_elsewhere(path: AnyPath) -> None:
    """InputError where a netCDF 4 file, which is one of HDF5, has numbers in other files."""
    if not begins_as_hdf5(path):
        return
    with open_hdf5_file(str(path), "netcdf") as file:
        if links := external_links(file):
            raise InputError(f"{path}: holds links to other files ({listed(links)}), which are not followed")
        for name, one in datasets_of(file).items():
            require_held(str(path), name, one, fill_absent=True)  # (the library writes fill values, and says so)


def _leading(path: AnyPath, stored: Any, rows: Sequence[str]) -> int:
    """How many of its dimensions make the rows."""
    dimensions = stored.dimensions
    if not rows and len(dimensions) == 2:
        return 1
    if rows and len(rows) < len(dimensions) and tuple(rows) == dimensions[: len(rows)]:
        return len(rows)
    raise InputError(
        f"{path}: {stored.name} has the dimensions {_sizes(stored)}. Say which of them, from the first on, make the "
        f"rows (rows = {dimensions[0]!r}, say: the others make the columns), or choose several variables of one shape"
        + (f"; rows {', '.join(rows)} are not such" if rows else "")
    )


def _require_one_shape(path: AnyPath, stored: Mapping[str, Any], choice: Choice) -> None:
    if len({one.shape for one in stored.values()}) > 1 or choice.rows:
        raise InputError(
            f"{path}: several variables become columns if they have one shape, and then every point is a row (no "
            f"rows to name). These are {described({name: _sizes(one) for name, one in stored.items()})}"
        )


def _grain(stored: Sequence[Any], leading: int) -> int:
    """Rows that a stored chunk reaches over."""
    found = 1
    for one in stored:
        chunks = one.chunking()
        if isinstance(chunks, list):
            found = max(found, int(chunks[0] * np.prod(one.shape[1:leading])))
    return found


def _flat(stored: Any, prefix: tuple[int, ...], start: int, stop: int, path: str) -> Iterator[Any]:
    """Entries start to stop of an array as it lies in memory, row by row, in a few rectangular pieces."""
    shape = stored.shape[len(prefix) :]
    inner = int(np.prod(shape[1:]))
    first, last = start // inner, -(-stop // inner)
    if len(shape) > 1 and last - first == 1 and stop - start < inner:
        yield from _flat(stored, (*prefix, first), start - first * inner, stop - first * inner, path)
        return
    if len(shape) > 1 and start % inner:
        cut = (first + 1) * inner
        yield from _flat(stored, prefix, start, cut, path)
        start, first = cut, first + 1
    rest = stop % inner if len(shape) > 1 else 0
    whole = stop // inner if rest else last
    if whole > first:
        try:
            yield np.ma.asarray(stored[(*prefix, slice(first, whole))]).reshape(-1)
        except (OSError, RuntimeError, IndexError) as error:
            raise DamagedError(f"{path}: {stored.name} cannot be read: {error}") from error
    if rest:
        yield from _flat(stored, prefix, whole * inner, stop, path)


def _missing(stored: Any, path: str) -> int:
    """Missing values in all."""
    size = int(np.prod(stored.shape))
    spans = read_ranges(0, size, 1, 8)
    parts = (part for low, high in spans for part in _flat(stored, (), low, high, path))
    return sum(int(np.ma.getmaskarray(part).sum()) for part in parts)


def _dtype(stored: Any) -> np.dtype[Any]:
    """What its values are read as, scaled."""
    if stored.dtype == str or stored.dtype.kind in "SO":
        return TEXT
    one = stored[(slice(0, 1),) * len(stored.shape)]  # (as scale_factor, add_offset and _Unsigned make it)
    return native(np.dtype(one.dtype))


def _sizes(stored: Any) -> str:
    return "(" + ", ".join(f"{name} {size}" for name, size in zip(stored.dimensions, stored.shape, strict=True)) + ")"


@contextmanager
def opened(path: str) -> Iterator[Any]:
    """The file, opened; by one thread at a time."""
    netcdf = needed("netCDF4", "netcdf", f"{path}: netCDF")
    place = local(path, "a netCDF file")
    with _ONE_AT_A_TIME:
        try:
            file = netcdf.Dataset(place)
        except OSError as error:
            raise InputError(f"{path}: not readable as netCDF ({error})") from error
        with file:
            yield file
