"""Few rows that stand for all: their choice, shortest paths from them, and the place of every row by its distances."""
