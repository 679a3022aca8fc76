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


def run_forked(program: str, **names: str) -> int:
    """Runs the text of a program, which finds these names. Gives its exit code, below zero the signal that ended it."""
    process = forking().Process(target=exec, args=(program, names), daemon=True)
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode
