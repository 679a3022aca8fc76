"""Expressions: their types by ksqlDB's rules, and the DuckDB SQL that computes them."""
