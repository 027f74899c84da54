"""Classical scaling of distances, and coordinates of rows by their distances to others."""
