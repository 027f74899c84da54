"""Classical scaling of distances, of all rows or of landmarks."""
