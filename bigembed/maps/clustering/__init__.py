"""Clusters after the map: of coordinates by HDBSCAN or k-means, of a graph by Leiden; how stable they are."""
