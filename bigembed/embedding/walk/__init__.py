"""Coordinates from the random walk on a neighbor graph, or from rows to landmarks and back."""
