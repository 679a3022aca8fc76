"""The benchmarks run. How fast anything is, no test asks."""

from __future__ import annotations

import subprocess
import sys

from repository import REPOSITORY


def test_a_quick_run_prints_one_table() -> None:
    command = [sys.executable, "-m", "bench", "--quick", "--rows", "2000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    table = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert len(table) > 10
    assert len({line.count("|") for line in table}) == 1
    for what in ("log: append", "JSON → filter → JSON", "columnar → filter", "append → visible result"):
        assert any(what in line for line in table), what
