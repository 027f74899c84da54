"""Maps: a folder for each family of methods, and what several of them share."""
