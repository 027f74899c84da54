"""The linearized diffusion kernel: eigenpairs, principal components and nonnegative factors."""
