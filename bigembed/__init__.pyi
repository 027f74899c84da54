"""The public names and where each is defined: one line a name, read by type checkers, editors and the package itself.

What methods and steps are called in job files and models stands in :mod:`bigembed.methods` and :mod:`bigembed.steps`.
"""

from bigembed import datasets as datasets
from bigembed import errors as errors
from bigembed import plotting as plotting
from bigembed.embedding.walk.geometric_harmonics import geometric_harmonics as geometric_harmonics
from bigembed.embedding.walk.pseudotime import diffusion_pseudotime as diffusion_pseudotime
from bigembed.embedding.walk.smoothing import smooth as smooth
from bigembed.estimator.pipeline import Pipeline as Pipeline
from bigembed.initialization import spectral_start as spectral_start
from bigembed.jobs.growth.versions import open_growth as open_growth
from bigembed.methods import load as load
from bigembed.methods.classical_mds import ClassicalMDS as ClassicalMDS
from bigembed.methods.diffusion_map import DiffusionMap as DiffusionMap
from bigembed.methods.hessian_lle import HessianLLE as HessianLLE
from bigembed.methods.isomap import Isomap as Isomap
from bigembed.methods.kernel_pca import KernelPCA as KernelPCA
from bigembed.methods.landmark_diffusion_map import LandmarkDiffusionMap as LandmarkDiffusionMap
from bigembed.methods.landmark_mds import LandmarkMDS as LandmarkMDS
from bigembed.methods.laplacian_eigenmaps import LaplacianEigenmaps as LaplacianEigenmaps
from bigembed.methods.linear_discriminant import LinearDiscriminantAnalysis as LinearDiscriminantAnalysis
from bigembed.methods.linearized_diffusion_map import LinearizedDiffusionMap as LinearizedDiffusionMap
from bigembed.methods.linearized_diffusion_nmf import LinearizedDiffusionNMF as LinearizedDiffusionNMF
from bigembed.methods.linearized_kernel_pca import LinearizedKernelPCA as LinearizedKernelPCA
from bigembed.methods.local_tangent_space_alignment import LocalTangentSpaceAlignment as LocalTangentSpaceAlignment
from bigembed.methods.locally_linear_embedding import LocallyLinearEmbedding as LocallyLinearEmbedding
from bigembed.methods.modified_lle import ModifiedLLE as ModifiedLLE
from bigembed.methods.nmf import NMF as NMF
from bigembed.methods.pca import PCA as PCA
from bigembed.methods.spectral_clustering import SpectralClustering as SpectralClustering
from bigembed.methods.tsne import TSNE as TSNE
from bigembed.methods.umap import UMAP as UMAP
from bigembed.neighbors.build import build_neighbor_graph as build_neighbor_graph
from bigembed.neighbors.graph import NeighborGraph as NeighborGraph
from bigembed.paths.shortest_paths import geodesic_distances as geodesic_distances
from bigembed.paths.shortest_paths import shortest_path as shortest_path
from bigembed.quality.certify import certify as certify
from bigembed.steps.clip import Clip as Clip
from bigembed.steps.columns import Columns as Columns
from bigembed.steps.log1p import Log1p as Log1p
from bigembed.steps.missing import Missing as Missing
from bigembed.steps.normalize import Normalizer as Normalizer
from bigembed.steps.one_hot import OneHotEncoder as OneHotEncoder
from bigembed.steps.robust_standardize import RobustScaler as RobustScaler
from bigembed.steps.standardize import StandardScaler as StandardScaler
from bigembed.store.growing import append_rows as append_rows
from bigembed.store.inputs.graph_source import open_graph as open_graph
from bigembed.store.rows.opening import open_array as open_array

__version__: str
__all__: list[str]

def _homes() -> dict[str, str]: ...
