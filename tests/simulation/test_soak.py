"""Thousands of fresh seeds (`make soak`); MILLSTREAM_SIMULATION_SEEDS says how many per world."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .fresh import first_seed
from .worlds import WORLDS

SEEDS = int(os.environ.get("MILLSTREAM_SIMULATION_SEEDS", "2000"))


@pytest.mark.soak
@pytest.mark.parametrize("world", WORLDS)
def test_thousands_of_seeds_break_no_promise(world: str) -> None:
    first = first_seed() + 1_000_000  # not those of the fast tests
    command = [sys.executable, "-m", "tests.simulation", "--world", world, "--seeds", f"{first}:{first + SEEDS}"]
    done = subprocess.run(
        [*command, "--jobs", str(os.cpu_count() or 1)],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
