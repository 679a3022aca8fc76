"""Queries that are answered once, and statements that are planned like them."""
