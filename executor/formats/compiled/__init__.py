"""Compiled loops over the bytes of records, by numba."""
