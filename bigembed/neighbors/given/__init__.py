"""Graphs that are given, as edges or as distances: checked, brought into an order, and new rows of theirs."""
