"""Isomap: coordinates from shortest paths on a neighbor graph."""
