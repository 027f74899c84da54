"""Files of other libraries: a reader for each format, what recognizes it, and tables that are written."""
