"""This checkout beside another one: what a log, a server and a small engine cost in each, in one run.

`python -m bench --only checkouts --beside PATH`.
"""
