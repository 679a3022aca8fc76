"""Random histories of a partition against a list of what it should hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from .log_model import run_model


@pytest.mark.parametrize("block", range(4))
def test_a_log_holds_what_a_list_would_hold(tmp_path: Path, block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        run_model(tmp_path / str(seed), seed, steps=60)


@pytest.mark.soak
@pytest.mark.parametrize("block", range(100))
def test_a_log_holds_what_a_list_would_hold_for_long(tmp_path: Path, block: int) -> None:
    for seed in range(1000 + block * 50, 1050 + block * 50):
        run_model(tmp_path / str(seed), seed, steps=200)
