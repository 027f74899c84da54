"""A data set that is generated, read as a format: its rows, and the vectors that are known of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.datasets import Dataset

LOADING = {"digits": 160 << 20, "mnist": 256 << 20, "coil20": 48 << 20}
"""Bytes that a process holds to read these data sets: scikit-learn, all the images, Pillow."""


@dataclass(frozen=True)
class DatasetReader:
    """A data set, read as a format; what is known of its rows are its vectors."""

    dataset: Dataset
    grain: int = 1
    row_ids: None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.dataset.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.dataset.dtype)

    @property
    def names(self) -> Mapping[str, str]:
        return {name: str(values.dtype) for name, values in self.dataset.truth(0, 1).items() if values.ndim == 1}

    def vector(self, name: str) -> TruthReader:
        """What is known of the rows under this name."""
        return TruthReader(self.dataset, name)

    @property
    def about(self) -> dict[str, Any]:
        """What rows of it are: what they are recognized by where they lie."""
        made = self.dataset
        about = {"dataset": made.name, "shape": made.shape, "dtype": made.dtype, "seed": made.seed}
        return about | {"parameters": dict(made.parameters)}

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        yield self.dataset.rows(start, stop)


@dataclass(frozen=True)
class TruthReader:
    """What is known of the rows of a data set."""

    dataset: Dataset
    name: str
    grain: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        return self.dataset.shape[:1]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.dataset.truth(0, 1)[self.name].dtype

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        yield self.dataset.truth(start, stop)[self.name]
