"""Nonnegative matrix factorization of rows."""
