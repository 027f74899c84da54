"""Rows: what users hand over becomes a source that block tasks read, whatever its format."""
