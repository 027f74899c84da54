"""bigembed.scanpy: keys and numbers of scanpy, X in memory, in a file or lazy; its plots and tools go on from there."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import spearmanr

import bigembed as be
from bigembed.errors import InputError, InputTypeError
from tests.some import a_few

anndata = pytest.importorskip("anndata")
pytestmark = [
    pytest.mark.recipes,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]
CELLS = "masscyt/sample_masscyt.fcs"


def drawn(n: int, genes: int = 60, groups: int = 4) -> np.ndarray:
    """Logarithms of counts of cells on the ways from one profile to others."""
    rng = np.random.default_rng(0)
    profiles = rng.gamma(1.0, 2.0, size=(groups, genes))
    toward, way = rng.integers(1, groups, n), rng.random(n)[:, None]
    return np.log1p(rng.poisson(4 * ((1 - way) * profiles[0] + way * profiles[toward]))).astype(np.float32)


def measured() -> np.ndarray:
    """3 000 of the cells of the notebook, where they are here."""
    file = Path(os.environ.get("BIGEMBED_DATA", "")) / CELLS
    if "BIGEMBED_DATA" not in os.environ or not file.exists():
        pytest.skip("set BIGEMBED_DATA to a folder with the data: bigembed downloads nothing")
    return np.frombuffer(file.read_bytes(), "<f8", 25_000 * 13, 1024).reshape(25_000, 13)[::8][:3_000].astype("f4")


@pytest.fixture(scope="module")
def scanpy() -> Any:
    found = pytest.importorskip("scanpy", reason="extra: recipes")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import umap  # noqa: F401
    return found


def both(rows: Any) -> tuple[Any, Any]:
    return anndata.AnnData(rows.copy()), anndata.AnnData(rows.copy())


def apart(one: Any, other: Any) -> float:
    """The largest difference, whatever the signs of the columns."""
    return float(np.abs(np.abs(np.asarray(one)) - np.abs(np.asarray(other))).max())


class TestEqualToScanpy:
    @pytest.fixture(scope="class", params=["drawn", "measured"])
    def pair(self, request: Any, scanpy: Any) -> tuple[Any, Any]:
        """3 000 cells with our graph, and with scanpy's."""
        mine, theirs = both(drawn(3_000) if request.param == "drawn" else measured())
        if mine.n_vars > 50:
            be.scanpy.pca(mine, 20)
            theirs.obsm["X_pca"] = mine.obsm["X_pca"]
        be.scanpy.neighbors(mine)
        scanpy.pp.neighbors(theirs)
        return mine, theirs

    @pytest.mark.parametrize(
        "given", [{}, {"n_comps": 7, "mask_var": None}, {"layer": "raw", "n_comps": 5, "key_added": "own"}]
    )
    def test_pca(self, scanpy: Any, given: dict[str, Any]) -> None:
        mine, theirs = both(sparse.csr_matrix(drawn(400)))
        for one in (mine, theirs):
            one.var["highly_variable"] = np.arange(60) % 4 > 0
            one.layers["raw"] = one.X.toarray() ** 2
        be.scanpy.pca(mine, **given)
        scanpy.pp.pca(theirs, **given)
        keys = ("own",) * 3 if "key_added" in given else ("X_pca", "PCs", "pca")
        assert mine.obsm[keys[0]].dtype == theirs.obsm[keys[0]].dtype
        np.testing.assert_allclose(mine.obsm[keys[0]], theirs.obsm[keys[0]], atol=2e-3)
        np.testing.assert_allclose(mine.varm[keys[1]], theirs.varm[keys[1]], atol=2e-3)
        for name in ("variance", "variance_ratio"):
            np.testing.assert_allclose(mine.uns[keys[2]][name], theirs.uns[keys[2]][name], rtol=1e-4)
        assert mine.uns[keys[2]]["params"] == theirs.uns[keys[2]]["params"]

    def test_graph(self, pair: tuple[Any, Any]) -> None:
        mine, theirs = pair
        recall = mine.uns["neighbors"]["recall"]
        assert recall >= 0.99
        assert {**mine.uns["neighbors"], "recall": None} == {**theirs.uns["neighbors"], "recall": None}
        for name, most in (("distances", 1e-4), ("connectivities", 1e-3)):
            found, wanted = mine.obsp[name], theirs.obsp[name]
            assert (type(found), found.nnz) == (type(wanted), wanted.nnz)
            other = abs(found - wanted).data > most * wanted.max()
            assert np.count_nonzero(other) <= 4  # (cells that are equally far, but for rounding)

    @pytest.mark.parametrize("metric", ["euclidean", "cosine", "correlation", "manhattan"])
    @pytest.mark.parametrize("method", ["umap", "gauss"])
    def test_graphs_of_other_kinds(self, scanpy: Any, metric: str, method: str) -> None:
        mine, theirs = both(drawn(500, 30))
        be.scanpy.neighbors(mine, 10, metric=metric, method=method, key_added="own")
        scanpy.pp.neighbors(theirs, 10, metric=metric, method=method, key_added="own")
        assert {**mine.uns["own"], "recall": 0} == {**theirs.uns["own"], "recall": 0}
        for name in ("own_distances", "own_connectivities"):
            wanted = theirs.obsp[name]
            assert abs(mine.obsp[name] - wanted).max() < 2e-3 * wanted.max()

    def test_diffusion_map_and_pseudotime(self, scanpy: Any, pair: tuple[Any, Any]) -> None:
        mine, theirs = pair
        be.scanpy.diffmap(mine)
        scanpy.tl.diffmap(theirs)
        np.testing.assert_allclose(mine.uns["diffmap_evals"], theirs.uns["diffmap_evals"], atol=1e-4)
        found, wanted = mine.obsm["X_diffmap"], theirs.obsm["X_diffmap"]
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        assert min(abs(spearmanr(found[:, j], wanted[:, j])[0]) for j in range(1, 15)) >= 0.999
        assert abs(spearmanr(found[:, 1], wanted[:, 2])[0]) < 0.9  # (a control)
        for one in pair:
            one.uns["iroot"] = 7
        be.scanpy.dpt(mine)
        scanpy.tl.dpt(theirs)
        assert spearmanr(mine.obs["dpt_pseudotime"], theirs.obs["dpt_pseudotime"])[0] >= 0.999
        np.testing.assert_allclose(mine.obs["dpt_pseudotime"], theirs.obs["dpt_pseudotime"], atol=2e-3)

    def test_graphs_in_parts(self, scanpy: Any) -> None:
        rows = drawn(400, 30)
        rows[300:] += 30
        pair = both(rows)
        for one in pair:
            scanpy.pp.neighbors(one)
            one.uns["iroot"] = 310
        mine, theirs = pair
        del mine.uns["iroot"]
        mine.var["xroot"] = mine.X[310] + 1e-3
        be.scanpy.dpt(mine)
        assert mine.uns["iroot"] == 310
        scanpy.tl.diffmap(theirs)
        scanpy.tl.dpt(theirs)
        np.testing.assert_allclose(mine.uns["diffmap_evals"], theirs.uns["diffmap_evals"], atol=1e-4)
        assert np.isinf(mine.obs["dpt_pseudotime"][:300]).all()
        np.testing.assert_allclose(mine.obs["dpt_pseudotime"], theirs.obs["dpt_pseudotime"], atol=5e-3)

    @pytest.mark.parametrize("method", ["umap", "tsne"])
    def test_maps_keep_as_many_neighbors(self, scanpy: Any, method: str) -> None:
        rows = drawn(400, 40)
        mine, theirs = both(rows)
        for one, (graph, maps) in ((mine, (be.scanpy, be.scanpy)), (theirs, (scanpy.pp, scanpy.tl))):
            graph.neighbors(one)
            getattr(maps, method)(one)
        found, wanted = (be.certify(rows, one.obsm[f"X_{method}"]).trustworthiness for one in (mine, theirs))
        assert found > wanted - 0.02
        assert found > be.certify(rows, rows[:, :2]).trustworthiness + 0.02


class TestForms:
    @pytest.fixture(scope="class")
    def wanted(self) -> Any:
        return self.computed(anndata.AnnData(drawn(300)))

    @staticmethod
    def computed(adata: Any) -> Any:
        be.scanpy.pca(adata, 8)
        be.scanpy.neighbors(adata, 8)
        be.scanpy.diffmap(adata, 5)
        adata.var["xroot"] = drawn(adata.n_obs)[3]
        be.scanpy.dpt(adata, 5)
        assert adata.uns["iroot"] == 3
        be.scanpy.umap(adata, maxiter=20)
        be.scanpy.tsne(adata, perplexity=10)
        return adata

    @staticmethod
    def opened(form: str, folder: Path) -> Any:
        whole = anndata.AnnData(drawn(300))
        if form.startswith("sparse") or "lazy" in form:
            whole.X = sparse.csr_matrix(whole.X)
        if "backed" in form:
            whole.write_h5ad(folder / "cells.h5ad")
            return anndata.read_h5ad(folder / "cells.h5ad", backed="r")
        if "lazy" in form:
            pytest.importorskip("xarray", reason="extra: recipes")
            whole.write_zarr(folder / "cells.zarr")
            return anndata.experimental.read_lazy(folder / "cells.zarr")
        if "dask" in form:
            from dask.array import from_array

            lazy = from_array(np.asarray(drawn(300)), chunks=(70, 60))
            whole.X = lazy.map_blocks(sparse.csr_matrix) if form.startswith("sparse") else lazy
        return anndata.concat([whole, whole], merge="same")[:300] if "view" in form else whole

    @a_few(1, "form", ["sparse backed", "sparse", "backed", "lazy", "dask", "sparse dask", "view", "sparse view"])
    def test_all_give_the_same(self, form: str, wanted: Any, tmp_path: Path) -> None:
        found = self.computed(self.opened(form, tmp_path))
        for name in ("X_pca", "X_diffmap"):
            assert apart(found.obsm[name], wanted.obsm[name]) < 1e-3
        time = np.asarray(found.obs["dpt_pseudotime"])
        np.testing.assert_allclose(time, wanted.obs["dpt_pseudotime"], atol=1e-3)
        for name in ("X_umap", "X_tsne"):
            assert found.obsm[name].shape == (300, 2)
            assert found.obsm[name].flags.writeable
        kept = found.to_memory() if "lazy" in form else found
        kept.write_h5ad(tmp_path / "out.h5ad")
        again = anndata.read_h5ad(tmp_path / "out.h5ad")
        assert {"X_pca", "X_diffmap", "X_umap", "X_tsne"} <= set(again.obsm)
        assert again.uns["neighbors"]["params"]["n_neighbors"] == 8

    def test_a_copy_is_returned_and_the_cells_stay(self, tmp_path: Path) -> None:
        cells = anndata.AnnData(drawn(100, 20))
        found = be.scanpy.neighbors(cells, copy=True)
        assert "connectivities" in found.obsp
        assert "connectivities" not in cells.obsp
        assert be.scanpy.umap(found, maxiter=5) is None
        cells.write_h5ad(tmp_path / "cells.h5ad")
        with pytest.raises(InputError, match="copy=True: X of this AnnData stays in"):
            be.scanpy.pca(anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r"), copy=True)

        with pytest.raises(InputError, match="this is a part of an AnnData whose X stays in"):
            be.scanpy.neighbors(anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")[:50])


class TestWithScanpy:
    def test_its_plots_run(self, scanpy: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        import matplotlib

        matplotlib.use("agg")
        monkeypatch.chdir(tmp_path)
        cells = TestForms.computed(anndata.AnnData(drawn(200)))
        cells.obs["group"] = np.array(["a", "b"])[np.arange(200) % 2]
        for plot in (scanpy.pl.pca, scanpy.pl.umap, scanpy.pl.tsne):
            plot(cells, color=["group", "dpt_pseudotime"], show=False)
        scanpy.pl.diffmap(cells, components=["1,2"], show=False)
        scanpy.pl.pca_variance_ratio(cells, show=False)
        scanpy.pl.pca_loadings(cells, show=False)
        scanpy.pl.umap(cells, edges=True, show=False)
        matplotlib.pyplot.close("all")

    def test_its_tools_go_on_from_our_keys_and_ours_from_its(self, scanpy: Any) -> None:
        cells = anndata.AnnData(drawn(200))
        be.scanpy.pca(cells)
        be.scanpy.neighbors(cells, key_added="own")
        scanpy.tl.diffmap(cells, neighbors_key="own")
        cells.uns["iroot"] = 0
        scanpy.tl.dpt(cells, n_branchings=1, neighbors_key="own")
        scanpy.tl.umap(cells, neighbors_key="own", maxiter=10)
        assert "dpt_groups" in cells.obs
        be.scanpy.umap(cells, neighbors_key="own", init_pos="X_umap", maxiter=5, key_added="again")
        assert cells.obsm["again"].shape == (200, 2)

    def test_it_starts_from_the_places_of_groups(self) -> None:
        cells = anndata.AnnData(drawn(200, 20))
        cells.obs["group"] = np.array(["a", "b"])[np.arange(200) % 2]
        cells.obs["group"] = cells.obs["group"].astype("category")
        be.scanpy.neighbors(cells)
        with pytest.raises(InputError, match=r"call scanpy\.tl\.paga"):
            be.scanpy.umap(cells, init_pos="paga")
        joined = sparse.csr_matrix(np.array([[0.0, 1.0], [1.0, 0.0]]))
        cells.uns["paga"] = {"pos": np.array([[0.0, 0.0], [9.0, 0.0]]), "groups": "group", "connectivities": joined}
        be.scanpy.umap(cells, init_pos="paga", maxiter=1, alpha=1e-9)
        first = cells.obsm["X_umap"][:, 0]
        assert first[1::2].mean() - first[::2].mean() > 5


class TestRefusals:
    def test_what_is_not_there_is_named(self) -> None:
        cells = anndata.AnnData(drawn(60))
        with pytest.raises(InputError, match=r"call neighbors\(adata\) first"):
            be.scanpy.diffmap(cells)
        with pytest.raises(InputError, match="use_rep='X_scvi'; allowed: 'X' or a key of obsm: it is empty"):
            be.scanpy.neighbors(cells, use_rep="X_scvi")
        with pytest.raises(InputError, match="layer='counts'; there are none"):
            be.scanpy.pca(cells, layer="counts")
        with pytest.raises(InputError, match="mask_var='hvg'; allowed: a column of var"):
            be.scanpy.pca(cells, mask_var="hvg")
        with pytest.raises(InputError, match="chooses no column at all"):
            be.scanpy.pca(cells, mask_var=np.zeros(60, bool))
        with pytest.raises(InputError, match="knn=False joins all pairs"):
            be.scanpy.neighbors(cells, knn=False)
        with pytest.warns(UserWarning, match="principal components are computed first"):
            be.scanpy.neighbors(cells, n_pcs=5)
        assert cells.obsm["X_pca"].shape == (60, 5)
        with pytest.raises(InputError, match="n_pcs=9; X_pca has 5 columns"):
            be.scanpy.neighbors(cells, n_pcs=9)
        with pytest.raises(InputError, match=r"uns\['iroot'\] is None"):
            be.scanpy.dpt(cells)
        cells.uns["xroot"] = np.ones(3)
        with pytest.raises(InputError, match="xroot has 3 numbers"):
            be.scanpy.dpt(cells)
        cells.uns["iroot"] = 60
        with pytest.raises(InputError, match="0 to 59"):
            be.scanpy.dpt(cells)
        with pytest.raises(InputError, match="n_dcs=40; X_diffmap has 15"):
            be.scanpy.dpt(cells, 40)
        with pytest.raises(InputError, match=r"scanpy\.tl\.dpt looks for branches"):
            be.scanpy.dpt(cells, n_branchings=1)
        with pytest.raises(InputError, match="init_pos='X_scvi'"):
            be.scanpy.umap(cells, init_pos="X_scvi")
        with pytest.raises(InputTypeError, match="an AnnData"):
            be.scanpy.pca(cells.X)
        with pytest.raises(InputError, match="has no X"):
            be.scanpy.neighbors(anndata.AnnData(obs=cells.obs), use_rep="X")
