"""What users hand over: rows of any kind, their labels, graphs."""
