"""Coordinates from shortest paths on a neighbor graph."""
