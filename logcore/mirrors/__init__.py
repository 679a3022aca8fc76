"""Copies topics of another log: the record batches as they are stored there, at the same offsets. Nothing here knows
SQL, or what keeps a mirror running."""
