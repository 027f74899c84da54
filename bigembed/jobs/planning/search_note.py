"""What a plan says of what is known only when the rows are seen: how neighbors are searched, passes of a solve."""

from __future__ import annotations

from collections.abc import Sequence

from bigembed.jobs.units import size
from bigembed.neighbors.algorithms import AUTO, WITHOUT_DESCENT, WORTH, said
from bigembed.neighbors.graph_stages import CELL_ROWS
from bigembed.neighbors.nn_descent import room
from bigembed.neighbors.search.shortlist import SHORTLIST
from bigembed.runs import Run
from bigembed.stages import Stage


def search_notes(stages: Sequence[Stage], reused: Sequence[str], run: Run) -> list[str]:
    """At most one line; none where every cell is on a shortlist, so that cells are certain."""
    witness = next((stage for stage in stages if stage.name == "witness" and "target" in stage.parameters), None)
    if witness is None:
        return []
    if "witness" in reused and run.has("witness"):  # (not one that is superseded, and taken up again)
        return [said(run.results("witness"))]
    asked = witness.parameters.get("algorithm", AUTO)
    if asked == WITHOUT_DESCENT:
        return [
            f"neighbors by cells: NN-descent, which algorithm={AUTO!r} takes if sampled rows show that {WORTH} cells "
            f"for each row would miss recall {witness.parameters['target']:g}, does not fit here. If it would be taken "
            "where it fits, the certificate and a warning say so: the same job then finds other neighbors there"
        ]
    if asked != AUTO:
        return [f"neighbors by {asked}: asked for"]
    rows = next((stage.parameters["shape"][0] for stage in stages if stage.name == "survey"), 0)
    if rows <= SHORTLIST * CELL_ROWS:
        return []
    more = size(room(rows, witness.parameters["n_neighbors"]))
    return [
        f"neighbors by cells, or by NN-descent (then search takes twice as long, or more, and {more} more of the disk) "
        f"if sampled rows show that {WORTH} cells for each row would miss recall {witness.parameters['target']:g}; "
        "without that much of the disk by cells all the same"
    ]


def may_descend(stages: Sequence[Stage]) -> bool:
    """Whether it is left to sampled rows if neighbors are searched by NN-descent."""
    return any(
        stage.name == "witness" and "target" in stage.parameters and "algorithm" not in stage.parameters
        for stage in stages
    )


def pass_notes(stages: Sequence[Stage], reused: Sequence[str]) -> list[str]:
    """A line for each stage whose passes depend on the rows."""
    return [
        f"{stage.name}: {stage.cost.passes:g} passes are counted with, for variances that decay; the flatter the "
        f"spectrum the more, at most max_passes = {stage.cost.most_passes:g}"
        for stage in stages
        if stage.cost.most_passes > stage.cost.passes and stage.name not in reused
    ]
