"""Affine maps of rows, or of features of rows, by the paths of their arrays: y = (φ − mean) A + b."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bigembed.blocks.affine import Affine
from bigembed.blocks.rows import Array
from bigembed.store.arrays.io import read_array, write_array


@dataclass(frozen=True)
class AffineMap:
    """Where a task finds an affine map. Small and picklable."""

    matrix: str
    """A (d, m); (m, d) where it is ``transposed``."""
    mean: str = ""
    """(d,); none for zero."""
    offset: str = ""
    """b (m,); none for zero."""
    transposed: bool = False
    scale: Array | None = None
    """(m,): what the columns of A are multiplied by."""

    @classmethod
    def within(cls, folder: str, component: int | None = None) -> AffineMap:
        """The map with the arrays ``matrix``, ``mean`` and ``offset`` of a folder, or of one component in it."""
        part = "" if component is None else f"/{component}"
        folder = folder.rstrip("/")
        return cls(f"{folder}/matrix{part}", f"{folder}/mean{part}", f"{folder}/offset{part}")

    def write(self, found: Affine) -> None:
        """Keep a map here."""
        for path, array in ((self.mean, found.mean), (self.matrix, found.matrix), (self.offset, found.offset)):
            assert array is not None
            write_array(path, array)

    def read(self, start: int = 0, stop: int | None = None) -> Affine:
        """The map; of the features ``start:stop`` only, of which the results add up (without ``transposed``)."""
        matrix = read_array(self.matrix, start, stop)
        matrix = matrix.T if self.transposed else matrix
        matrix = matrix if self.scale is None else matrix * self.scale
        mean = read_array(self.mean, start, stop) if self.mean else None
        return Affine(mean, matrix, read_array(self.offset) if self.offset else None)


def project(rows: Any, model: AffineMap) -> Array:
    """Coordinates (n, m) of rows (n, d), dense or CSR."""
    return model.read()(rows)
