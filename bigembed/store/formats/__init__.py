"""Files of other libraries: a reader for each format, what recognizes it, copies into our arrays; tables written."""
