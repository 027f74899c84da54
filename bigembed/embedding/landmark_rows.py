"""Landmarks among rows of any number, as a stage: all of them, or some chosen uniformly or far from each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.embedding.costs import pass_memory
from bigembed.errors import InputError
from bigembed.landmarks.select import LandmarkChoice
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import write_array
from bigembed.store.blockwise.exchange import Exchange
from bigembed.store.rows.offenders import LARGEST, checked_shape, offenders, refuse, refuse_size, usable
from bigembed.store.rows.passes import map_row_blocks, write_mapped
from bigembed.store.rows.row_blocks import RowBlock
from bigembed.store.rows.source import RowSource

ENOUGH = 0.98
"""Share of the landmarks asked for that may be found without a warning: some rows repeat others in most data."""


def all_rows_stage(source: RowSource) -> Stage:
    """``landmarks/rows`` (n, d): every row, checked. One pass."""
    n, d = checked_shape(source, at_least=2)

    def run(context: Context) -> dict[str, Any]:
        write_mapped(source, same_block, context.path("rows"), d, source.work, first=True)
        return {"n": n, "d": d, "dtype": str(source.work), "landmarks": n, "wanted": n}

    size = n * source.row_bytes
    cost = Cost(passes=1, read=size, write=size, disk=size, memory=pass_memory(source))
    return Stage("landmarks", (), {"source": source.fingerprint(), "selection": "all"}, run, cost)


def same_block(block: RowBlock) -> Array:
    """The rows themselves."""
    return np.asarray(block.rows)


def landmark_rows_stage(source: RowSource, wanted: int, selection: str, at_least: int, seed: int) -> Stage:
    """``landmarks/rows`` (L, d), all different, from a uniform sample; InputError for fewer than ``at_least``.

    "max-min" looks at 30 rows for each landmark (de Silva & Tenenbaum 2004). Reads the blocks that the sample is of.
    """
    n, d = checked_shape(source, at_least=2)
    choice = LandmarkChoice(wanted, selection, (seed, 5))
    size = choice.sample_size(n, source.row_bytes)

    def run(context: Context) -> dict[str, Any]:
        rows = chosen(picked_rows(source, choice.sample(n, source.row_bytes), context.exchange), choice, at_least)
        write_array(context.path("rows"), rows)
        return {"n": n, "d": d, "dtype": str(source.work), "landmarks": len(rows), "wanted": min(n, wanted)}

    parameters = {"source": source.fingerprint(), "n_landmarks": wanted, "selection": selection, "seed": seed}
    cost = Cost(
        passes=1,
        read=n * source.row_bytes,
        disk=wanted * source.row_bytes,
        scratch=size * source.row_bytes,
        memory=pass_memory(source),
        coordinator=4 * size * (source.row_bytes + 8 * d),
        serial_flops=2 * size * wanted * d if selection == "max-min" else 0,
    )
    return Stage("landmarks", (), parameters | {"at_least": at_least}, run, cost)


def picked_rows(source: RowSource, numbers: Array, exchange: Exchange) -> Array:
    """Rows of the given ascending numbers, to this process; the blocks they are in are checked as a whole."""
    block, first = np.unique(numbers // source.block, return_index=True)
    wanted = dict(zip(block.tolist(), np.split(numbers, first[1:]), strict=True))
    found = map_row_blocks(source, pick_block, given=wanted, label="pick", exchange=exchange)
    refuse([part for part in found if part], source)
    return np.concatenate([exchange.get_many("picked", number, ["rows"])[0] for number in wanted])


def pick_block(block: RowBlock, numbers: Array, *, exchange: Exchange) -> dict[str, Any]:
    """Leave some rows of one block in the exchange; return what is wrong with the block."""
    exchange.put("picked", block.number, {"rows": block.rows[numbers - block.start]})
    found = offenders(block)
    return {} if usable(found) else found


def chosen(sample: Array, choice: LandmarkChoice, at_least: int, place: str = "") -> Array:
    """The landmarks (L, d) of a sample of rows; InputError where too few of them (in ``place``) differ."""
    rows = sample[choice.among(sample)]
    if len(rows) < at_least and 0 < np.abs(sample).max() < 1 / LARGEST and sample.dtype == np.float64:
        refuse_size(float(np.abs(sample).max()), LARGEST, 1 / LARGEST)
    if len(rows) < at_least:
        raise InputError(
            f"n_landmarks={choice.count}: only {len(rows)} different rows are among the {len(sample)} looked at{place},"
            f" and {at_least} are needed for the components asked. Ask for fewer components, more landmarks, or drop "
            "duplicated rows"
        )
    return np.asarray(rows)


def every_row(context: Context) -> bool:
    """Whether the landmarks are all different rows there are, so that half of them say nothing of more."""
    chosen, asked = context.results("landmarks"), context.home.parameters("landmarks")
    few = chosen["landmarks"] < chosen["wanted"] and asked["selection"] == "max-min"
    return bool(few or chosen["landmarks"] == chosen["n"])


def duplicates_note(found: dict[str, Any]) -> list[str]:
    """The warning that far fewer landmarks were found than asked for, from the results of the stage."""
    if found["landmarks"] >= ENOUGH * found["wanted"]:
        return []
    return [
        f"n_landmarks={found['wanted']}: {found['landmarks']} different rows were found among those looked at "
        "(the others are duplicates); these are the landmarks"
    ]
