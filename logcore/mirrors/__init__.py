"""Copies topics of another log: the record batches as they are stored there, either with the same names and offsets, or
under new names. Nothing here depends on SQL, or on what keeps a mirror running."""
