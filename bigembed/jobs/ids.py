"""The ids of the rows as a stage of a run: copied into it, each found to name one row, before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bigembed.errors import ExistingOutputError
from bigembed.jobs.inputs import Input
from bigembed.runs import Run
from bigembed.stages import Context, Cost, Stage, locked, run_stages
from bigembed.store.arrays.attributes import ABOUT, source_of
from bigembed.store.formats.aligned import require_length, vector_source
from bigembed.store.formats.copying import copy_vector
from bigembed.store.formats.ids import check_ids
from bigembed.store.published import manifest as manifests
from bigembed.store.rows.source import RowSource
from bigembed.store.storage.paths import AnyPath, published

STAGE = "ids"
ID_BYTES = 24
"""Of an id and its hashes, in the process that looks for repeated ones; about what one takes on disk."""


def keep_ids(rows: Input, root: AnyPath) -> None:
    """Run the stage if the ids are there; forget it where the rows have none."""
    run = Run(root)
    if rows.ids is None:
        if STAGE in run.published():
            with locked(run):
                manifests.discard(root, STAGE)
    elif rows.there(STAGE):
        require_length(vector_source(rows.ids), rows.shape[0], rows.ids, "ids")
        run_stages([ids_stage(vector_source(rows.ids))], run)


def ids_stage(source: RowSource) -> Stage:
    """``ids`` (n,) in the order of the input, of text or of whole numbers."""

    def run(context: Context) -> dict[str, Any]:
        check_ids(source)
        copy_vector(source, context.path(STAGE), label=STAGE)
        return {"n": source.shape[0]}

    return Stage(STAGE, (), {"source": source.fingerprint()}, run, ids_cost(source.shape[0]))


def copy_ids(ids: AnyPath, place: AnyPath, about: Mapping[str, Any]) -> None:
    """A copy beside an output; one that was made for it before is left. Each id must name one row."""
    mine = {**about, "fingerprint": vector_source(ids).fingerprint()}
    if published(place):
        if source_of(place) != mine:
            raise ExistingOutputError(f"{place}: exists. Nothing was changed; choose another path or move it away")
        return
    check_ids(vector_source(ids))
    copy_vector(vector_source(ids), place, label=STAGE, attributes={ABOUT: mine})


def ids_cost(n: int) -> Cost:
    """Read twice, written once; hashes of all in one process."""
    size = ID_BYTES * n
    return Cost(read=2 * size, write=size, disk=size, coordinator=size)
