"""The last resort against a test that hangs: pytest-timeout asks once and politely, this ends the process.

pytest-timeout raises an exception in the main thread. A test that then waits in its own clean-up, for a thread or a
server that will never answer, hangs for good, and with it the whole run. A while after that exception this module
writes the stacks of all threads to standard error and ends the process; pytest-xdist names the test and goes on
with another worker.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator
from contextlib import contextmanager

import pytest

CLEAN_UP_SECONDS = 90.0
_stderr = pytest.StashKey[int]()


def prepare(config: pytest.Config) -> None:
    """Remember standard error as it is while nothing is captured. Call it from `pytest_configure`."""
    config.stash[_stderr] = os.dup(2)


@contextmanager
def ended_if_it_hangs(item: pytest.Item, clean_up_seconds: float = CLEAN_UP_SECONDS) -> Generator[None]:
    """While a test runs, its set-up and clean-up included. A test without a time limit may take for ever."""
    seconds = time_limit(item)
    if seconds == 0:
        yield
        return
    faulthandler.dump_traceback_later(seconds + clean_up_seconds, file=item.config.stash[_stderr], exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def time_limit(item: pytest.Item) -> float:
    """How long the test may take, in seconds; 0 where nothing limits it."""
    marker = item.get_closest_marker("timeout")
    if marker is not None:
        return float(marker.args[0] if marker.args else marker.kwargs["timeout"])
    return float(item.config.getini("timeout") or 0)
