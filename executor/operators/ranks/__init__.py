"""Top-n over rows that are taken back: all rows of each partition, in their order."""
