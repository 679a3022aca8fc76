"""Fresh seeds of the world `control`: every promise is kept, and the faults are not too tame."""

from __future__ import annotations

import pytest

from .fresh import SeedRuns
from .runs import Run, execute

RUNS = SeedRuns("control", eventful=(18,))


@pytest.mark.timeout(300)  # 4 s on an idle machine
@pytest.mark.parametrize("group", RUNS.groups)
def test_all_promises_are_kept_whatever_happens(group: int) -> None:
    RUNS.run_group(group)


@pytest.mark.timeout(600)  # 120 seeds more at most
def test_what_must_happen_sometimes_happens() -> None:
    assert RUNS.run_until_all_happened() == []


def test_a_node_whose_own_snapshot_is_due_when_the_leaders_comes_takes_that_one() -> None:
    """It had the log up to the snapshot's index, so it committed those entries then, and its own snapshot of the same
    index was due: it ended with a failed assertion."""
    outcome = execute(Run("control", 931000628, events=20_000))
    assert outcome.violated is None, outcome.report
