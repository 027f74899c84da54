"""A graph of the user's own: the same edges however they are stored, and a clear outcome for what cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigembed as be
from bigembed.errors import BigembedError, DamagedError, InputError, InputTypeError, MissingPathError
from bigembed.estimator.graph_input import edge_weight_stages
from bigembed.neighbors.given import edges as given_edges
from bigembed.neighbors.order import Ordered
from bigembed.rows import edges as edge_readers
from bigembed.rows.graph_source import GraphSource
from bigembed.stages.runs import Run
from bigembed.stages.stage import run_stages
from tests.some import a_few
from tests.unit.rows.written import quiet

N, BLOCK = 90, 48


def weights() -> sparse.csr_array:
    """Symmetric weights of a random graph without isolated nodes, some of them loops."""
    rng = np.random.default_rng(0)
    half = sparse.random_array((N, N), density=0.08, rng=rng, format="csr")
    ring = sparse.csr_array((np.ones(N), (np.arange(N), (np.arange(N) + 1) % N)), shape=(N, N))
    return sparse.csr_array(half + half.T + ring + ring.T)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few nodes, and tasks, files and pieces of a few edges."""
    monkeypatch.setattr(GraphSource, "block", BLOCK)
    for name in ("PER_TASK", "PER_FILE"):
        monkeypatch.setattr(given_edges, name, 300)
    monkeypatch.setattr(edge_readers, "PIECE", 101)


def written(source: GraphSource, folder: Path) -> tuple[Any, Any]:
    """What the stage of weights leaves, as a SciPy matrix, and the bytes of its arrays."""
    run = Run(folder)
    run_stages(edge_weight_stages(source), run)
    if source.n <= BLOCK:
        matrix = run.matrix("weights", "given").block(0)
        return sparse.csr_array((matrix.data, matrix.indices, matrix.indptr), (source.n, source.n)), {}
    ordered = Ordered.open(run.path("order"))
    assert sorted(np.concatenate([ordered.ids(b) for b in range(len(ordered.blocks))])) == list(range(source.n))
    assert max(ordered.rows_of) <= BLOCK
    parts = []
    matrix = run.matrix("weights", "given")
    ids = np.concatenate([ordered.ids(b) for b in range(len(matrix.rows))])
    for b in range(len(matrix.rows)):
        block = matrix.block(b)
        column = ids[block.ids(b, ordered.starts)[block.indices]]
        row = np.repeat(ordered.ids(b), np.diff(block.indptr))
        parts.append((block.data, row, column))
    data, row, column = (np.concatenate(part) for part in zip(*parts, strict=True))
    files = run.manifest("weights").files
    return sparse.csr_array((data, (row, column)), shape=(source.n, source.n)), files


def frame(matrix: Any, seed: int = 1) -> Any:
    pd = pytest.importorskip("pandas")
    coo = sparse.coo_array(matrix)
    order = np.random.default_rng(seed).permutation(coo.nnz)
    return pd.DataFrame({"source": coo.row[order], "target": coo.col[order], "weight": coo.data[order]})


def stored_everywhere(matrix: Any, folder: Path) -> dict[str, Any]:
    """The same graph in every format."""
    zarr, pa = pytest.importorskip("zarr"), pytest.importorskip("pyarrow")
    table = frame(matrix)
    table.to_parquet(folder / "one.parquet", row_group_size=1_000)
    (folder / "several").mkdir()
    for number, part in enumerate(np.array_split(np.arange(len(table)), 3)):
        table.iloc[part].to_parquet(folder / "several" / f"{number}.parquet", row_group_size=7)
    table.to_csv(folder / "edges.csv", index=False)
    np.save(folder / "edges.npy", frame(matrix, 2).to_numpy())
    group = zarr.create_group(str(folder / "columns.zarr"))
    for name in table:
        group.create_array(name, data=table[name].to_numpy(), chunks=(50,))
    sparse.save_npz(folder / "csr.npz", matrix)
    sparse.save_npz(folder / "csc.npz", sparse.csc_array(matrix), compressed=False)
    sparse.save_npz(folder / "coo.npz", sparse.coo_array(matrix))
    assert pa is not None
    names = ["one.parquet", "several", "edges.csv", "edges.npy", "columns.zarr", "csr.npz", "csc.npz", "coo.npz"]
    return {name: folder / name for name in names} | {"matrix": matrix, "frame": table}


def test_the_same_bytes_however_the_edges_are_stored(tmp_path: Path) -> None:
    matrix, found = weights(), {}
    for name, source in stored_everywhere(matrix, tmp_path).items():
        graph = be.open_graph(source)
        assert graph.shape == (N, N), name
        given, found[name] = written(graph, tmp_path / f"run-{name}")
        assert abs(given * 2.0 ** np.ceil(np.log2(matrix.max() * (1 + 1e-15))) - matrix).max() == 0, name
    assert all(one == found["matrix"] for one in found.values())
    table = frame(matrix)
    table.loc[3, "weight"] *= 2  # (a control)
    _, other = written(be.open_graph(table, symmetrize="max"), tmp_path / "other")
    assert other != found["matrix"]


@pytest.mark.filterwarnings("ignore:Writing zarr v2:UserWarning")
@a_few(1, "suffix", ["h5ad", "zarr"])
def test_obsp_of_an_anndata(suffix: str, tmp_path: Path) -> None:
    anndata, matrix = pytest.importorskip("anndata"), weights()
    lengths = sparse.csr_array(matrix)
    lengths.setdiag(0)
    cells = anndata.AnnData(np.zeros((N, 2), "f4"), obsp={"connectivities": matrix, "distances": lengths})
    with quiet():
        getattr(cells, "write_h5ad" if suffix == "h5ad" else "write_zarr")(tmp_path / f"cells.{suffix}")
    path = tmp_path / f"cells.{suffix}"
    same, wanted = (written(be.open_graph(s), tmp_path / f"{k}")[1] for k, s in (("a", path), ("b", matrix)))
    assert same == wanted
    assert be.open_graph(path, array="obsp/distances").values == "distances"
    with pytest.raises(InputError, match=r"no graph obsp/other; there are obsp/connectivities, obsp/distances"):
        be.open_graph(path, array="obsp/other")


@pytest.mark.parametrize("way", ["mean", "max", "min", "union"])
def test_a_directed_graph_is_made_symmetric_as_asked(way: str, tmp_path: Path) -> None:
    directed = sparse.random_array((N, N), density=0.1, rng=np.random.default_rng(3), format="csr")
    directed = sparse.csr_array(directed + sparse.diags_array(np.full(N, 1.0)) * 0.5).minimum(1.0)
    a, b = directed.toarray(), directed.toarray().T
    wanted = {"mean": (a + b) / 2, "max": np.maximum(a, b), "min": np.minimum(a, b), "union": a + b - a * b}[way]
    np.fill_diagonal(wanted, np.diag(a))
    found, _ = written(be.open_graph(frame(directed), symmetrize=way), tmp_path / "run")
    found = found.toarray() * 2.0 ** np.frexp(a.max())[1]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=4e-16)
    assert (found == found.T).all()


def test_edges_listed_several_times(tmp_path: Path) -> None:
    pairs = np.array([[0, 1, 1.0], [1, 0, 0.25], [0, 1, 0.5], [1, 0, 0.25], [0, 1, 0.25], [1, 1, 3.0], [1, 1, 4.0]])
    for way, wanted in {"sum": [1.75, 7], "min": [0.25, 3], "max": [1, 4]}.items():
        found, _ = written(be.open_graph(pairs, duplicates=way, symmetrize="max"), tmp_path / way)
        found = found.toarray() / found.max() * wanted[1]
        np.testing.assert_array_equal(found, [[0, wanted[0]], [wanted[0], wanted[1]]])
    with pytest.raises(InputError, match=r"3 edges are listed more than once in one direction: 0 → 1, 1 → 0, 1 → 1"):
        written(be.open_graph(pairs), tmp_path / "refused")


WRONG = {
    "an id beyond n": ([[0, 1, 1.0], [1, 7, 1.0]], {"nodes": 3}, r"1 edges have ids.*from 0 to 2.*1 → 7: 1"),
    "a negative id": ([[0, 1, 1.0], [1, -2, 1.0]], {}, r"1 edges have ids that are not integers.*1 → -2"),
    "half an id": ([[0, 1, 1.0], [1.5, 1, 1.0]], {}, r"1 edges have ids.*1\.5 → 1"),
    "an id that is not a number": ([[0, 1, 1.0], [np.nan, 1, 1.0]], {}, r"1 edges have ids.*nan → 1"),
    "a negative weight": ([[0, 1, -1.0], [1, 0, 1.0]], {}, r"1 edges have values.*0 → 1: -1"),
    "NaN and infinity": ([[0, 1, np.nan], [1, 0, np.inf]], {}, r"2 edges have values.*nan, 1 → 0: inf"),
    "one direction": ([[0, 1, 1.0], [1, 2, 1.0]], {}, r"not symmetric: 4 values.*0 → 1: 1 and back 0.*'max' is right"),
    "two values": ([[0, 1, 1.0], [1, 0, 1.5]], {}, r"not symmetric: 2 values.*0 → 1: 1 and back 1\.5"),
    "an isolated node": ([[0, 1, 1.0], [1, 0, 1.0], [3, 3, 1.0]], {}, r"1 nodes have no edge; the first are \[2\]"),
    "nothing but a weight of 0": ([[0, 1, 0.0], [1, 1, 1.0]], {}, r"1 nodes have no edge; the first are \[0\]"),
    "ids that are names": ([[0, 2**40, 1.0]], {}, r"1 edges join 2 nodes at the most, and there are 1,099,511,627,777"),
    "above one": ([[0, 1, 2.0]], {"symmetrize": "union"}, r"1 edges have weights above 1"),
    "a length too long": ([[0, 1, 1e200]], {"values": "distances"}, r"1 edges have lengths whose squares"),
    "mutual, and one alone": (
        [[0, 1, 1.0], [1, 0, 1.0], [2, 0, 1.0]],
        {"values": "distances", "symmetrize": "max"},
        r"1 nodes have no edge; the first are \[2\]",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_edges_that_cannot_be_used_are_named(case: str) -> None:
    rows, asked, said = WRONG[case]
    with pytest.raises(InputError, match=said):
        be.DiffusionMap(n_components=1).fit(be.open_graph(np.array(rows), **asked))


ODD: dict[str, tuple[Any, dict[str, Any], type[BigembedError], str]] = {
    "no path": ("nowhere.parquet", {}, MissingPathError, "no such path"),
    "no edges": (np.zeros((0, 3)), {}, InputError, "without edges"),
    "four columns": (np.zeros((5, 4)), {}, InputError, "two or three columns.*Lists of neighbors need distances"),
    "not square": (sparse.csr_array((3, 4)), {}, InputError, r"\(3, 4\).*square"),
    "values": (np.ones((2, 3)), {"values": "lengths"}, InputTypeError, "allowed: 'weights' or 'distances'"),
    "symmetrize": (np.ones((2, 3)), {"symmetrize": "sum"}, InputTypeError, "allowed: 'error', 'mean'"),
    "duplicates": (np.ones((2, 3)), {"duplicates": "first"}, InputTypeError, "allowed: 'error', 'sum'"),
    "a union of distances": (
        np.ones((2, 3)),
        {"values": "distances", "symmetrize": "union"},
        InputError,
        "allowed for distances: 'min', 'max', 'error'",
    ),
    "columns of a matrix": (sparse.csr_array(np.eye(3)), {"columns": ["a", "b"]}, InputError, "leave it out"),
    "squared weights": (np.ones((2, 3)), {"squared": True}, InputError, "it is of distances"),
    "nodes": (np.ones((2, 3)), {"nodes": 0}, InputTypeError, "an integer ≥ 1"),
    "other nodes": (sparse.csr_array(np.eye(3)), {"nodes": 4}, InputError, "nodes=4, and the graph has 3"),
    "one column": ("x.npy", {"columns": ["a"]}, InputError, "two or three names are needed"),
    "lists that do not fit": (np.zeros((4, 2), int), {"distances": np.ones((4, 3))}, InputError, r"\(4, 2\).*\(4, 3\)"),
    "weights of lists": (
        np.zeros((4, 2), int),
        {"distances": np.ones((4, 2)), "values": "weights"},
        InputError,
        "hold",
    ),
}


@pytest.mark.parametrize("case", ODD)
def test_what_is_no_graph_is_refused(case: str) -> None:
    source, asked, kind, said = ODD[case]
    with pytest.raises(kind, match=said):
        be.open_graph(source, **asked)


def test_damaged_files(tmp_path: Path) -> None:
    sparse.save_npz(tmp_path / "a.npz", weights())
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamagedError, match=r"not readable as \.npz"):
        be.open_graph(tmp_path / "cut.npz")
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    with pytest.raises(InputError, match=r"not a file of scipy\.sparse\.save_npz"):
        be.open_graph(tmp_path / "other.npz")
    matrix = weights()
    parts = {"format": b"csr", "data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    for shape in ([N + 0.5, N + 0.5], [float(N), float(N)], [-N, -N], ["a", "a"], [np.nan, np.nan], [N, N + 1], [N]):
        np.savez(tmp_path / "s.npz", shape=shape, **parts)
        with pytest.raises(InputError, match=r"s\.npz: shape .*graph is square, \(n, n\), n an integer"):
            be.open_graph(tmp_path / "s.npz")
    matrix.indptr[5] = 10_000
    np.savez(
        tmp_path / "p.npz", format=b"csr", shape=[N, N], data=matrix.data, indices=matrix.indices, indptr=matrix.indptr
    )
    with pytest.raises(DamagedError, match="pointers are not ascending"):
        written(be.open_graph(tmp_path / "p.npz"), tmp_path / "run")


def test_damage_that_reading_finds(tmp_path: Path) -> None:
    frame(weights()).to_parquet(tmp_path / "e.parquet", compression="gzip")
    content = bytearray((tmp_path / "e.parquet").read_bytes())
    content[200:400] = bytes(200)
    (tmp_path / "e.parquet").write_bytes(content)
    with pytest.raises(DamagedError, match=r"e\.parquet: edges 0:\d+ cannot be read"):
        written(be.open_graph(tmp_path / "e.parquet"), tmp_path / "run")


def test_rows_and_graphs_are_not_mistaken_for_each_other() -> None:
    graph = be.open_graph(weights())
    with pytest.raises(InputTypeError, match="PCA reads rows, and this is a graph"):
        be.PCA(n_components=1).fit(graph)
    with pytest.raises(InputError, match="this graph has weights, and lengths of edges are needed"):
        be.Isomap().fit(graph)
    with pytest.raises(InputTypeError, match=r"interpolates between rows, and a graph of weights has none"):
        be.DiffusionMap(solver="landmarks").fit(graph)
