"""Benchmarks that anybody can run: `make bench`, or `python -m bench`. Not installed."""
