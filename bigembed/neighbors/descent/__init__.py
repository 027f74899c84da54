"""NN-descent: rounds over all blocks, and new rows that walk along the lists."""
