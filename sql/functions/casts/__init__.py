"""CAST: what it is in DuckDB, in Python where DuckDB cannot, and what fails."""
