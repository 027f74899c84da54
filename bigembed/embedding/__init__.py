"""From eigenvectors, distances and factors to coordinates: what methods are composed of."""
