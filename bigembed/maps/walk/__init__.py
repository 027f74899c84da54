"""Coordinates from the random walk on a neighbor graph: diffusion maps, Laplacian eigenmaps, spectral clustering."""
