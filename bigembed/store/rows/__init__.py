"""Rows as block tasks read them: one source for dense and sparse, stored and derived rows, and passes over them."""
