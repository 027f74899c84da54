"""Figures that judge a map: how far each coordinate can be trusted, and what it is carried by."""
