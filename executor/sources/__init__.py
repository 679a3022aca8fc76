"""From the topics that a query reads to batches of changes, in one order."""
