"""Fresh seeds of the world `quorum`: every promise is kept, and the faults are not too tame."""

from __future__ import annotations

import pytest

from .fresh import SeedRuns

RUNS = SeedRuns("quorum")


@pytest.mark.timeout(300)  # 4 s on an idle machine
@pytest.mark.parametrize("group", RUNS.groups)
def test_all_promises_are_kept_whatever_happens(group: int) -> None:
    RUNS.run_group(group)


@pytest.mark.timeout(600)  # 120 seeds more at most
def test_what_must_happen_sometimes_happens() -> None:
    assert RUNS.run_until_all_happened() == []
