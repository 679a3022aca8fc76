"""Spark's Python daemon with this package loaded, so that the worker processes it forks begin at once.

Importing anew in each worker takes most of the time that the first batch takes. Nothing that is imported here starts a
thread that a fork would miss.
"""

from __future__ import annotations

import importlib

from pyspark import daemon

_LOADED = ("pyspark.worker", "millstream.executor.spark.job_stages")

if __name__ == "__main__":
    for module in _LOADED:
        importlib.import_module(module)
    daemon.manager()
