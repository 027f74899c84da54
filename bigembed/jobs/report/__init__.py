"""The page of a run: what stands in it, and its pictures."""
