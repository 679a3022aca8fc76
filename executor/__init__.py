"""Runs plans: operators, formats, keyed state, and the lifecycle of queries on DuckDB and on Spark."""
