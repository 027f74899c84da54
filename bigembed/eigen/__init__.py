"""Eigenpairs of block operators: two-level LOBPCG, thick-restart Lanczos, and a dense solver."""
