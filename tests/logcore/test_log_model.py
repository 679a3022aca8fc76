"""Random histories of a log against lists of what it should hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from .log_model import run_model
from .soak import count_of


@pytest.mark.parametrize("block", range(2))
def test_a_log_holds_what_a_list_would_hold(memory_folder: Path, block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        run_model(memory_folder / str(seed), seed, steps=60)


@pytest.mark.soak
@pytest.mark.parametrize("block", range(10))
def test_a_log_holds_what_a_list_would_hold_for_long(memory_folder: Path, block: int) -> None:
    runs = count_of("MODEL_RUNS", 5000) // 10
    for seed in range(1000 + block * runs, 1000 + (block + 1) * runs):
        run_model(memory_folder / str(seed), seed, steps=count_of("MODEL_STEPS", 200))
