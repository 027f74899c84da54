"""A graph of the user's own in random order beside the same graph in the order of our rows: what ordering it costs.

    python benchmarks/given_order.py --n 1000000 --folder /tmp/bench

``rows`` is the Laplacian eigenmap of a neighbor graph of ours (k = 15), whose rows were ordered by nearness as it was
built. ``given`` is that of its lists of neighbors, the nodes in random order (``be.open_graph``). Both walks are the
same, and so are the eigenvalues, but for what ``tol`` leaves. ``inside`` is the share of the edges that do not
leave a block (``shuffled``: where blocks are the nodes as they were given), ``a_pass`` the seconds of the solve for
each of its ``passes``, ``ordering`` those of the stage that finds the order and of the one that brings the edges into
it, of which the latter also takes the place of writing the graph.
"""

from __future__ import annotations

import argparse
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from common import data_set, table

M, K = 2, 15


def shuffled_lists(graph: Any) -> tuple[np.ndarray, np.ndarray]:
    """The lists of neighbors with other numbers for the nodes, and the distances."""
    from bigembed.store.arrays import read_array

    ids = graph.original_ids()
    numbers = np.random.default_rng(0).permutation(graph.n)[ids]  # of each row of the graph
    near, apart = np.empty((graph.n, K), np.int64), np.empty((graph.n, K))
    names, starts = read_array(graph.run.path("order", "blocks")), read_array(graph.run.path("order", "starts"))
    for b in range(len(names)):
        rows = numbers[starts[b] : starts[b + 1]]
        near[rows] = numbers[read_array(graph.run.path("search", f"neighbors/{b}"))]
        apart[rows] = np.sqrt(read_array(graph.run.path("search", f"squared/{b}")))
    return near, apart


def inside_share(run: Any, stage: str) -> float:
    """Share of the edges of a stored graph that do not leave a block."""
    matrix, inside, joined = run.matrix(stage), 0, 0
    for b, rows in enumerate(matrix.rows):
        block = matrix.block(b)
        inside += int(np.count_nonzero(block.indices < rows)) - rows
        joined += len(block.indices) - rows
    return inside / joined


def solved(given: Any, tol: float) -> tuple[Any, dict[str, Any]]:
    """The map, and the seconds of its stages."""
    import bigembed as be
    from bigembed.runtime import using

    seconds: dict[str, float] = {}
    with using(observer=lambda event: seconds.update({event.stage: event.seconds}) if event.kind == "done" else None):
        found = be.LaplacianEigenmaps(M, tol=tol).fit(given)
    passes = found.certificate_["passes"]
    return found, {"solve": seconds["solve"], "passes": passes, "a_pass": seconds["solve"] / passes, "stages": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--tol", type=float, default=1e-4)
    parser.add_argument("--block", type=int, help="nodes of a block, for few nodes")
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    asked = parser.parse_args()
    import bigembed as be
    from bigembed.rows.graph_source import GraphSource

    warnings.simplefilter("ignore")
    rows = data_set("swiss_roll", asked.folder, n=asked.n, noise=0.05)
    shutil.rmtree(asked.folder / "order-graph", ignore_errors=True)
    graph = be.build_neighbor_graph(rows, K, workdir=asked.folder / "order-graph")
    if asked.block:
        GraphSource.block = asked.block  # type: ignore[assignment,method-assign]
    own, found = solved(graph, asked.tol)
    sides = {"rows": {**found, "inside": inside_share(graph.run, "graph")}}
    near, apart = shuffled_lists(graph)
    given, found = solved(be.open_graph(near, distances=apart), asked.tol)
    stages = found["stages"]
    sides["given"] = {**found, "inside": inside_share(given._run, "graph")}
    if "edges" in stages:
        ordering = stages["order"] + stages["graph"]
        shares = {"shuffled": inside_share(given._run, "edges"), "ordering": ordering}
        sides["given"] |= shares | {"ordering_of_solve": ordering / found["solve"]}
    for side in sides.values():
        side.pop("stages")
    differ = float(np.abs(given.eigenvalues_ - own.eigenvalues_).max())
    about = {"n": asked.n, "entries": graph.edges, "eigenvalues_apart": differ}
    table("given_order", about, sides)


if __name__ == "__main__":
    main()
