"""The search in near cells: which ones a row probes, what it finds there, the recall that is to be expected."""
