"""Where things are stored: paths, object stores, locks, temporary folders, documents, and what files claim."""
