"""Fresh seeds of the world `cluster`: every promise is kept, and the faults are not too tame."""

from __future__ import annotations

import pytest

from .fresh import SeedRuns
from .runs import Run, execute

RUNS = SeedRuns("cluster", eventful=(35, 21, 95))


@pytest.mark.timeout(300)  # 5 s on an idle machine
@pytest.mark.parametrize("group", RUNS.groups)
def test_all_promises_are_kept_whatever_happens(group: int) -> None:
    RUNS.run_group(group)


@pytest.mark.timeout(600)  # 120 seeds more at most
def test_what_must_happen_sometimes_happens() -> None:
    assert RUNS.run_until_all_happened() == []


def test_what_is_asked_about_a_transaction_while_it_is_decided_is_answered_with_that_decision() -> None:
    """I16: an unclean leader asked about it then, was told to abort it, and aborted what was committed elsewhere."""
    outcome = execute(Run("cluster", 500624643347, events=20_000))
    assert outcome.violated is None, outcome.report


def test_a_node_that_learns_at_once_that_it_left_a_partition_and_returned_is_not_in_sync_with_an_empty_log() -> None:
    """I8: it fetched as what it had been, removed that log then, and was in sync with what it had removed."""
    outcome = execute(Run("cluster", 7001693, events=20_000))
    assert outcome.violated is None, outcome.report
