"""Many embeddings of the same rows: what they share is computed once; their table, and a page of their maps."""
