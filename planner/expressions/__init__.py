"""Expressions: their types according to ksqlDB's rules, and the DuckDB SQL that computes them."""
