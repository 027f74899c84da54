"""A folder with a page that shows every row of a map: tiles, points, neighbors, an index, opened by double-click."""
