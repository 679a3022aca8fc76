"""Loops over the bytes of records, compiled by numba."""
