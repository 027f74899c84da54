"""The order of the rows: a survey, partitions, the cells inside them."""
