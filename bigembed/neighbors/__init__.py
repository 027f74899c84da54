"""From points to the neighbor graph: partitions, cells, probes, exact search inside them."""
