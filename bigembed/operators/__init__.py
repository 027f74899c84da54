"""Matrix-free linear maps on block vectors."""
