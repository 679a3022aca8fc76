"""Spark's Python daemon with this package loaded, so that the worker processes it forks begin at once.

Spark has a daemon for each kind of worker, about seven; importing anew in each of their workers takes most of the time
that the first batch of a query takes. Nothing that is imported here starts a thread that a fork would miss.
"""

from __future__ import annotations

import importlib

from pyspark import daemon

_LOADED = ("pyspark.worker", *(f"millstream.executor.spark.{name}" for name in ("source_work", "stage_two")))

if __name__ == "__main__":
    for module in _LOADED:
        importlib.import_module(module)
    daemon.manager()
