"""Figures that judge a map: how far each coordinate, and the whole, show the rows; whatever made them."""
