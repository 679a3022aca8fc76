"""Keyed state: its file, its changelog, and the DuckDB connections that hold it."""
