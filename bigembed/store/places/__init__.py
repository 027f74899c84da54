"""Where things lie: paths, object stores, locks, temporary folders, documents, and what files claim of themselves."""
