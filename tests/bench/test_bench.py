"""The benchmarks run. How fast anything is, no test asks."""

from __future__ import annotations

from forked import run_module
from repository import REPOSITORY


def test_a_quick_run_prints_one_table() -> None:
    done = run_module("bench", "--quick", "--rows", "2000", folder=REPOSITORY, timeout_s=50)
    assert done.returncode == 0, done.stderr
    table = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert len(table) > 10
    assert len({line.count("|") for line in table}) == 1
    for what in ("log: append", "JSON → filter → JSON", "columnar → filter", "append → visible result"):
        assert any(what in line for line in table), what
