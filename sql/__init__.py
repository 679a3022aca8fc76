"""The written language: the grammar, statements as trees, types, windows, and the catalog of functions. Knows no
sources."""
