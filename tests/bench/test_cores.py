"""The parts `cores` and `idle` of the benchmarks."""

from __future__ import annotations

import os

import pytest
from forked import run_module
from repository import REPOSITORY

from bench.cores import serial_share, speedup_of

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")


@pytest.mark.parametrize(("speedup", "share"), [(2.0, 0.0), (1.0, 1.0), (1.8, 1 / 9), (2.1, 0.0), (0.9, 1.0)])
def test_the_serial_share_is_that_of_amdahl(speedup: float, share: float) -> None:
    assert serial_share(speedup, 2) == pytest.approx(share)
    if 1 <= speedup <= 2:
        assert speedup_of(share, 2) == pytest.approx(speedup)


def test_both_parts_print_their_tables() -> None:
    parts = ("--only", "cores", "--only", "idle")
    done = run_module("bench", "--quick", "--rows", "2000", *parts, folder=REPOSITORY, timeout_s=170)
    assert done.returncode == 0, done.stderr
    assert "stream-table join" in done.stdout or "not measured" in done.stdout
    assert "4 idle queries: threads of the process" in done.stdout
