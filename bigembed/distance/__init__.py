"""Distances and metrics of rows, by name; of dense and of sparse rows."""
