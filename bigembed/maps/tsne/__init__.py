"""t-SNE: attraction along the edges of a graph, and repulsion of all rows."""
