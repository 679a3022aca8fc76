"""The Nexmark benchmark runs. How fast anything is, no test asks."""

from __future__ import annotations

from pathlib import Path

import pytest
from forked import run_module
from repository import REPOSITORY


def run(shared: Path, *options: str) -> str:
    parts = ("--only", "nexmark", *options)
    done = run_module("bench", *parts, folder=REPOSITORY, timeout_s=55, MILLSTREAM_SHARED=str(shared))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.soak
def test_each_query_is_measured_over_json_and_columns(shared: Path) -> None:
    printed = run(shared, "--events", "2000", "--query", "q2", "--query", "q17")
    lines = [line for line in printed.splitlines() if line.startswith("| q")]
    assert len(lines) == 4
    assert all("of DuckDB's batch query" in line for line in lines), printed


def test_a_query_that_takes_too_long_is_stopped(shared: Path) -> None:
    assert run(shared, "--events", "20000", "--query", "q4", "--cap", "0").count("stopped after 0 s at") == 2
