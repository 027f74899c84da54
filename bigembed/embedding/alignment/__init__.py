"""Coordinates from local linear conditions: locally linear embedding and its variants."""
