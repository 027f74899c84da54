"""The protocol of a reader of a format, and the options that choose among what a file holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from bigembed.errors import InputError
from bigembed.runtime.blocks import BLOCK_BYTES, Array
from bigembed.store.files import reading_foreign
from bigembed.store.paths import everywhere

TEXT: np.dtype[Any] = np.dtypes.StringDType()
"""Of a vector of text (names of the rows, say), which is stored as UTF-8 of any length."""
LISTED = 12
"""Names that an error lists."""


class Reader(Protocol):
    """Rows of some format, or a vector aligned with them. Small and picklable: the task that reads opens its file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, d); of a vector (n,)."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """As stored; :data:`TEXT` for text."""
        ...

    @property
    def grain(self) -> int:
        """Rows that one task had better read in one go (row groups, a packed stream); 1 if any will do."""
        ...

    def stream(self, start: int, stop: int) -> Iterator[Any]:
        """Rows start to stop, in pieces."""
        ...


class Named(Reader, Protocol):
    """A reader whose source holds vectors for its rows, by name: see :func:`named`."""

    @property
    def names(self) -> Mapping[str, str]:
        """Each name, and what it holds (a type, a shape)."""
        ...

    @property
    def row_ids(self) -> str | None:
        """The name of the vector that names the rows, where the format says which."""
        ...

    def vector(self, name: str) -> Reader:
        """A reader of the vector."""
        ...


def named(reader: Reader) -> Named | None:
    """The reader, if its source holds vectors; what their names are is not looked at yet."""
    return cast(Named, reader) if hasattr(type(reader), "vector") else None


def features_of(reader: Reader) -> tuple[str, ...]:
    """The names of the columns of the rows; none where the format, or the file, has no such names."""
    with reading_foreign(getattr(reader, "path", "the source"), "the names of its columns"):
        return tuple(getattr(reader, "features", ()))


def entries_of(reader: Reader) -> int | None:
    """Stored entries of sparse rows; None for dense ones."""
    return getattr(reader, "entries", None)


RECORDED = {"aligned": "beside"}
"""Names that attributes of a copy give to fields of :class:`Choice`, where they differ."""


@dataclass(frozen=True)
class Choice:
    """What is wanted of a source that holds several things. Empty: what the format says, if that is one thing."""

    columns: tuple[str, ...] = ()
    """Columns of a table."""
    array: tuple[str, ...] = ()
    """The array, by its path or its name; several netCDF variables of one shape become columns."""
    rows: tuple[str, ...] = ()
    """The dimensions of a netCDF variable that make the rows."""
    fill_absent: bool = False
    """Whether absent chunks of a Zarr array hold its fill value."""
    dense: bool = False
    """Whether sparse rows are wanted dense."""
    aligned: tuple[str, ...] = ()
    """Columns of a table that are ids, labels or weights of the rows, so that they are not part of them."""
    expected: tuple[str, ...] = ()
    """Columns that a model was fitted with: those of a table where none are chosen."""
    missing: bool = False
    """Whether values that are missing come as NaN; they are refused otherwise."""
    categories: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Columns of a table whose entries are categories, each with the texts that are known; none: those it holds."""

    def asked(self) -> dict[str, Any]:
        """What was chosen, by the name under which the attributes of a copy record it."""
        chosen = {RECORDED.get(one.name, one.name): getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in chosen.items() if value}

    def of_table(self, path: Any, there: Mapping[str, str]) -> tuple[str, ...]:
        """The columns of a table that make the rows; InputError where it lacks them. ``there``: see ``described``."""
        wanted = self.columns or self.expected or tuple(name for name in there if name not in self.aligned)
        if unknown := [name for name in wanted if name not in there]:
            fitted = "" if self.columns else ". The model was fitted with them: new rows need the same columns"
            raise InputError(f"{path}: no columns {listed(unknown)}; there are {described(there)}{fitted}")
        return wanted

    def only(self, path: Any, what: str, *known: str) -> None:
        """InputError if something was chosen that the format does not know."""
        others = ("dense", "aligned", "expected", "missing", "categories")
        given = [one.name for one in fields(self) if one.name not in (*others, *known)]
        wrong = [name for name in given if getattr(self, name)]
        if wrong:
            can = f"in it can be chosen: {', '.join(known)}" if known else "nothing can be chosen in it"
            raise InputError(f"{path}: {', '.join(wrong)} cannot be chosen in {what}; {can}")


@everywhere(lambda place: place.open("rb"))
def handle(place: Path) -> Any:
    """What a library opens: a path of this file system, or an object as a file that is read by ranges."""
    return str(place)


def listed(names: Iterable[str]) -> str:
    """Names for an error, the first of many."""
    all_names = list(names)
    more = f", … ({len(all_names)} in all)" if len(all_names) > LISTED else ""
    return ", ".join(all_names[:LISTED]) + more


def described(names: Mapping[str, str]) -> str:
    """Names with what each holds, for an error."""
    return listed(f"{name} {what}".rstrip() for name, what in names.items()) or "nothing"


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """In the byte order of this machine; text as :data:`TEXT`."""
    return TEXT if is_text(dtype) else dtype.newbyteorder("=")


def is_text(dtype: np.dtype[Any]) -> bool:
    """Whether a vector is of text."""
    return dtype.kind in "USOT"


def two_dimensional(path: Any, shape: Sequence[int]) -> tuple[int, int]:
    """The shape of rows, or InputError."""
    if len(shape) != 2:
        raise InputError(
            f"{path}: shape {tuple(map(int, shape))}; rows must be a 2-dimensional array (n, d). "
            "Reshape it, one item a row"
        )
    return int(shape[0]), int(shape[1])


def read_ranges(start: int, stop: int, chunk: int, row_bytes: int) -> Iterator[tuple[int, int]]:
    """Ranges from start to stop that are cut where stored chunks of ``chunk`` rows end, each about a block.

    Chunks so tall that one does not fit are cut, and then decoded several times.

    >>> list(read_ranges(5, 200, 60, 1 << 20)), list(read_ranges(0, 3, 1, 1 << 30))
    ([(5, 60), (60, 120), (120, 180), (180, 200)], [(0, 1), (1, 2), (2, 3)])
    """
    step = fitting = max(1, BLOCK_BYTES // max(1, row_bytes))
    if chunk <= 8 * fitting:
        step = max(1, fitting // chunk) * chunk
    cuts = [*range(start - start % step + step, stop, step)]
    return zip([start, *cuts], [*cuts, stop], strict=True)


def as_text(values: Any) -> Array:
    """Text of any kind (objects, bytes, fixed or variable length) as :data:`TEXT`; what is not there as ""."""
    found = np.asarray(values)
    if found.dtype.kind == "S":
        found = np.char.decode(found, "utf-8")
    if found.dtype == object:
        plain = [one.decode() if isinstance(one, bytes) else "" if one is None else one for one in found.tolist()]
        found = np.array(plain, TEXT)
    return found.astype(TEXT)
