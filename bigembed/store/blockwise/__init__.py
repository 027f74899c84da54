"""What lies by blocks: what they leave for each other, their vectors, the blocks of a matrix."""
