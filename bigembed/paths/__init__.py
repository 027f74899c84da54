"""Shortest paths on a stored graph: from landmarks, between all rows, and along their way."""
