"""Reads the topics of a query as batches of changes, in one defined order."""
