"""Fresh seeds of the world `cluster`: every promise is kept, and the faults are not too tame."""

from __future__ import annotations

import pytest

from .fresh import SeedRuns
from .runs import Run, execute

RUNS = SeedRuns("cluster", seeds=170, per_test=10)


@pytest.mark.timeout(300)  # 5 s on an idle machine
@pytest.mark.parametrize("group", RUNS.groups)
def test_all_promises_are_kept_whatever_happens(group: int) -> None:
    RUNS.run_group(group)


def test_what_must_happen_sometimes_happened() -> None:
    if RUNS.seeds_done < 150:
        pytest.skip(f"only {RUNS.seeds_done} seeds were run: run the whole file")
    assert RUNS.never_happened() == []


@pytest.mark.xfail(strict=True, reason="not mended yet: I16, a committed transaction is not seen")
def test_a_committed_transaction_is_seen_after_the_faults_of_this_seed() -> None:
    outcome = execute(Run("cluster", 500624643347, events=20_000))
    assert outcome.violated is None, outcome.report
