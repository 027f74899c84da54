"""The public names and where each is defined: one line a name, read by type checkers, editors and the package itself.

What methods and steps are called in job files and models: :mod:`bigembed.maps`, :mod:`bigembed.steps`.
"""

from bigembed import datasets as datasets
from bigembed import errors as errors
from bigembed import plotting as plotting
from bigembed import scanpy as scanpy
from bigembed.estimator.frame import align as align
from bigembed.estimator.frame import near_groups as near_groups
from bigembed.estimator.pipeline import Pipeline as Pipeline
from bigembed.jobs.growth import open_growth as open_growth
from bigembed.jobs.planning.fit import plan as plan
from bigembed.jobs.view import view as view
from bigembed.maps import load as load
from bigembed.maps.clustering.cluster import cluster as cluster
from bigembed.maps.isomap.estimator import Isomap as Isomap
from bigembed.maps.kernel_pca.estimator import KernelPCA as KernelPCA
from bigembed.maps.linear.linear_discriminant import LinearDiscriminantAnalysis as LinearDiscriminantAnalysis
from bigembed.maps.linear.pca import PCA as PCA
from bigembed.maps.linear.pca import TruncatedSVD as TruncatedSVD
from bigembed.maps.linearized.components import LinearizedDiffusionNMF as LinearizedDiffusionNMF
from bigembed.maps.linearized.components import LinearizedKernelPCA as LinearizedKernelPCA
from bigembed.maps.linearized.diffusion_map import LinearizedDiffusionMap as LinearizedDiffusionMap
from bigembed.maps.lle.locally_linear import LocallyLinearEmbedding as LocallyLinearEmbedding
from bigembed.maps.lle.locally_linear import ModifiedLLE as ModifiedLLE
from bigembed.maps.lle.tangents import HessianLLE as HessianLLE
from bigembed.maps.lle.tangents import LocalTangentSpaceAlignment as LocalTangentSpaceAlignment
from bigembed.maps.mds.classical_mds import ClassicalMDS as ClassicalMDS
from bigembed.maps.mds.landmark_mds import LandmarkMDS as LandmarkMDS
from bigembed.maps.nmf.estimator import NMF as NMF
from bigembed.maps.pacmap.estimator import PaCMAP as PaCMAP
from bigembed.maps.phate.estimator import PHATE as PHATE
from bigembed.maps.tsne.estimator import TSNE as TSNE
from bigembed.maps.umap.estimator import UMAP as UMAP
from bigembed.maps.walk.alternating_diffusion_map import AlternatingDiffusionMap as AlternatingDiffusionMap
from bigembed.maps.walk.diffusion_map import DiffusionMap as DiffusionMap
from bigembed.maps.walk.geometric_harmonics import geometric_harmonics as geometric_harmonics
from bigembed.maps.walk.landmark_diffusion_map import LandmarkDiffusionMap as LandmarkDiffusionMap
from bigembed.maps.walk.laplacian_eigenmaps import LaplacianEigenmaps as LaplacianEigenmaps
from bigembed.maps.walk.laplacian_eigenmaps import spectral_start as spectral_start
from bigembed.maps.walk.smoothing import diffusion_pseudotime as diffusion_pseudotime
from bigembed.maps.walk.smoothing import smooth as smooth
from bigembed.maps.walk.spectral_clustering import SpectralClustering as SpectralClustering
from bigembed.neighbors.build import build_neighbor_graph as build_neighbor_graph
from bigembed.neighbors.condensed import Condensed as Condensed
from bigembed.neighbors.condensed import condense as condense
from bigembed.neighbors.graph import NeighborGraph as NeighborGraph
from bigembed.neighbors.shortest_paths import geodesic_distances as geodesic_distances
from bigembed.neighbors.shortest_paths import shortest_path as shortest_path
from bigembed.neighbors.transformer import NeighborTransformer as NeighborTransformer
from bigembed.quality.certify import certify as certify
from bigembed.rows.appending import append_rows as append_rows
from bigembed.rows.deleting import delete_rows as delete_rows
from bigembed.rows.deleting import purge_rows as purge_rows
from bigembed.rows.graph_source import open_graph as open_graph
from bigembed.rows.opening import open_array as open_array
from bigembed.steps.columns import Columns as Columns
from bigembed.steps.each_column import Missing as Missing
from bigembed.steps.mixed import GowerEncoder as GowerEncoder
from bigembed.steps.mixed import MixedScaler as MixedScaler
from bigembed.steps.numbers import Clip as Clip
from bigembed.steps.numbers import Log1p as Log1p
from bigembed.steps.numbers import MarkMissing as MarkMissing
from bigembed.steps.numbers import Normalizer as Normalizer
from bigembed.steps.one_hot import OneHotEncoder as OneHotEncoder
from bigembed.steps.random_projection import GaussianRandomProjection as GaussianRandomProjection
from bigembed.steps.random_projection import SparseRandomProjection as SparseRandomProjection
from bigembed.steps.scaling import RobustScaler as RobustScaler
from bigembed.steps.scaling import StandardScaler as StandardScaler

__version__: str
__all__: list[str]

def _homes() -> dict[str, str]: ...
