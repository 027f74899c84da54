"""PHATE: potential distances of a diffusion between landmarks, scaled to a map of all rows."""
