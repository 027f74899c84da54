"""The stage of the labels that belong to the rows: class numbers in the order of the input."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bigembed.rows.labels import Labels, classes_as_json
from bigembed.runtime.blocks import bounds
from bigembed.stages import ArraySpec, Context, Cost, Stage
from bigembed.store.arrays import create_rows, write_rows

LABEL_ROWS = 1 << 18


def labels_stage(labels: Labels) -> Stage:
    """``labels/codes`` (n,): the number of each row's class, −1 for none. Results: the classes and their sizes."""

    n = len(labels.codes)
    return Stage(
        "labels",
        (),
        {"labels": labels.fingerprint()},
        partial(run_labels, labels=labels),
        Cost.of(writes=[ArraySpec("codes", n, dtype="i4")], coordinator=[ArraySpec("codes", n, dtype="i4", times=5)]),
    )


def run_labels(context: Context, labels: Labels) -> dict[str, Any]:
    n = len(labels.codes)
    create_rows(context.path("codes"), (n,), np.int32, LABEL_ROWS, overwrite=True)
    for start, stop in bounds(n, LABEL_ROWS):
        write_rows(context.path("codes"), start, labels.codes[start:stop])
    sizes = np.bincount(labels.codes[labels.codes >= 0], minlength=len(labels.classes))
    return {**classes_as_json(labels.classes), "sizes": sizes.tolist(), "missing": len(labels.missing)}
