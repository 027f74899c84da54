"""Locally linear embedding and its variants: coordinates from local linear conditions."""
