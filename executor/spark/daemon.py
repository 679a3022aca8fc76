"""Spark's Python daemon with this package already imported, so that the worker processes it forks can start at once.

Importing the package in each worker would take most of the time of the first batch. None of the imported modules starts
a thread; a forked process would not have it.
"""

from __future__ import annotations

import importlib

from pyspark import daemon

_LOADED = ("pyspark.worker", "millstream.executor.spark.job_stages")

if __name__ == "__main__":
    for module in _LOADED:
        importlib.import_module(module)
    daemon.manager()
