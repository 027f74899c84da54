"""The linearized diffusion kernel: eigenpairs and nonnegative factors of all pairs of rows."""
