"""Copies of topics of another log: record batches as they are stored there, at the same offsets. Nothing here knows
SQL, or how a mirror is kept running."""
