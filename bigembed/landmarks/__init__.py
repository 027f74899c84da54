"""Few rows that stand for all: their choice, and the place of every row by them."""
