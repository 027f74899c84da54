"""UMAP: attraction along sampled edges of a graph, and repulsion of sampled rows."""
