"""Two checkouts side by side: what is compared, and how the ratio is said."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from repository import REPOSITORY

from bench.checkouts.costs import PARTS, log_costs
from bench.checkouts.lines import WANTED, line_of

COSTS = REPOSITORY / "bench" / "checkouts" / "costs.py"


@pytest.mark.soak
def test_the_log_is_measured_by_the_python_of_its_checkout() -> None:
    done = subprocess.run([sys.executable, str(COSTS), "log"], check=True, capture_output=True, text=True, timeout=100)
    costs = json.loads(done.stdout)
    assert set(costs) <= set(WANTED)
    assert len(costs) == 4 and min(costs.values()) > 0
    assert PARTS["log"] is log_costs


def test_the_ratio_is_that_of_the_cheapest_turns() -> None:
    line = line_of("append one record", here=[3e-6, 2e-6, 9e-6], beside=[1e-6, 4e-6, 6e-6])
    assert line.cells == ("append one record: 4.0 µs → 3.0 µs", "", "", "2.00 × (0.50 to 3.00)", "≤ 1.11")


@pytest.mark.parametrize("what", [what for what in WANTED if what.endswith(("MB", "ms"))])
def test_memory_and_latency_are_no_seconds(what: str) -> None:
    assert "7.0 → 14.0" in line_of(what, here=[14.0], beside=[7.0]).what
