"""Linear maps of rows: means and scatters, principal and discriminant directions."""
