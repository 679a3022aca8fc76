"""The scalar, aggregate and table functions of the dialect: signatures, what they mean in DuckDB, examples."""
