"""Nonnegative factors of the rows."""
