"""Three nodes, real clients, real faults, no anomaly: shortly here, and for long with fresh seeds in `make soak`."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from .__main__ import run_seed

SOAK_S = float(os.environ.get("MILLSTREAM_SOAK_CLUSTER_SECONDS", "1800"))
SEED = int(os.environ.get("MILLSTREAM_SOAK_CLUSTER_SEED", str(int(time.time()))))
SHORT_S = 7.0
LONG_S = 120.0


def test_a_cluster_under_faults_loses_and_repeats_nothing(tmp_path: Path) -> None:
    code, _, said = run_seed("millstream", 7, SHORT_S, 2_000, tmp_path / "run", brief=True)
    assert code == 0, said


@pytest.mark.soak
def test_a_cluster_under_faults_for_long_loses_and_repeats_nothing(tmp_path: Path) -> None:
    end, seed = time.monotonic() + SOAK_S, SEED
    while time.monotonic() < end:
        folder = tmp_path / f"seed{seed}"
        code, _, said = run_seed("millstream", seed, LONG_S, 2_000, folder)
        assert code == 0, f"seed {seed}, see {folder}: {said}"
        seed += 1
