"""Linear maps of rows: principal components and discriminants."""
