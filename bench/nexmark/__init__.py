"""The Nexmark workload: 23 queries over an auction house, each with the batch query that has the same answer.

What the streams and the queries mean is written in the shared folder (README of `nexmark`), whose generator makes the
events. The tests in `tests/nexmark` compare the answers, `python -m bench --only nexmark` the times.
"""
