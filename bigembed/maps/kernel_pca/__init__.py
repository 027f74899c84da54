"""Kernel PCA: principal components in the feature space of a kernel."""
