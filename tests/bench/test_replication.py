"""The benchmark of replication runs. How fast anything is, no test asks."""

from __future__ import annotations

import subprocess
import sys

import pytest
from repository import REPOSITORY

from bench.replication import fail_over_line


@pytest.mark.soak
def test_a_quick_run_measures_both_and_kills_leaders() -> None:
    command = [sys.executable, "-m", "bench", "--only", "replication", "--quick", "--rows", "20000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    for what in ("Millstream: 100 B, acks=all, replication 3", "Millstream: no acknowledgement after kill -9"):
        assert what in done.stdout, what


def test_the_line_of_fail_overs_compares_with_the_session() -> None:
    line = fail_over_line("a log", [0.5 + number / 100 for number in range(100)], session_ms=1_000)
    assert line.rate == "p50 995 ms" and line.cpu_rate == "p99 1490 ms"
    assert line.ratio == "p99 1.49 × session of 1000 ms"
