"""Linear algebra on blocks of vectors, matrix-free: operators, eigensolvers, moments."""
