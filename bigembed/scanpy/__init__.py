"""Maps, graphs and orders of an AnnData: scanpy's functions with bigembed under them, and the same keys.

What they write is what scanpy's own functions write, so that its plots and tools go on from there. X may be in memory,
backed by a file, or a Dask array; what is written (a graph, coordinates) is in memory, as scanpy wants it.
"""

from bigembed.scanpy.maps import diffmap, dpt, tsne, umap
from bigembed.scanpy.preprocessing import neighbors, pca

__all__ = ["diffmap", "dpt", "neighbors", "pca", "tsne", "umap"]
