"""Processes that tests kill, forked from one that has imported and compiled what they need: two seconds less each.

All tests of this process fork from the same one, which `multiprocessing` starts for the first of them.
"""

from __future__ import annotations

import multiprocessing
from functools import cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest


@cache
def forking() -> ForkServerContext:
    """Where processes are made."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["before_forks"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))  # it imports before it is told sys.path
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        forkserver.ensure_running()
    return context
