"""Kernels: from squared distances to sparse affinities."""
