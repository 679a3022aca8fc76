"""Law: a query that is killed in the middle of any batch and started again writes what it would have written anyway.

A killed runtime is not closed: the next one gets a copy of its state files as they are at that moment, an older copy,
or none at all, and has to fence it.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from drawn import drawn
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from laws.budget import Budget
from laws.queries import random_case
from laws.running import World, compacting, drain, same, world

from millstream.executor.queries.query import QueryRuntime
from millstream.logcore.failpoints import FailpointHit, arm
from millstream.planner.physical import PhysicalPlan

SEEDS = st.integers(0, 2**32)
BUDGET = Budget(seconds=8)
PLACES = (
    "query.fenced",
    "query.replaying",
    "query.processed",
    "query.appended",
    "query.before_store_commit",
    "query.store_commit",
    "query.store_committed",
    "txn.begin",
    "txn.data_written",
    "txn.before_prepare",
    "txn.committed",
)


def check(seed: int) -> None:
    case = random_case(seed, reckless=True)
    rng = Random(seed + 1)
    with world(case, rng) as it, compacting(rng):
        for plan in it.plans:
            whole = it.runtime(plan)
            drain(whole)
            whole.close()
            broken = it.variant(plan, "broken")
            _run_with_kills(it, broken, rng)
            assert same(case, it, plan, broken), case.text
            assert it.errors_logged(broken) == it.errors_logged(plan), case.text


def _run_with_kills(it: World, plan: PhysicalPlan, rng: Random) -> None:
    states = _States(it.directory / plan.query_id, rng)
    with _unclosed() as zombies:
        for _ in range(rng.randint(1, 6)):
            arm(f"{rng.choice(PLACES)}:{rng.randint(1, 4)}:raise")
            try:
                runtime = it.runtime(plan, states.current)
                zombies.append(runtime)
                for _ in range(rng.randint(0, 4)):
                    runtime.step(rng.choice((1, 200, 1 << 20)))
            except FailpointHit:
                pass
            finally:
                arm("")
            states.crash()
        last = it.runtime(plan, states.current)
        zombies.append(last)
        drain(last, rng.choice((1, 1 << 20)))


@contextmanager
def _unclosed() -> Generator[list[QueryRuntime]]:
    """Runtimes that are closed only when all is over."""
    runtimes: list[QueryRuntime] = []
    try:
        yield runtimes
    finally:
        for runtime in runtimes:
            runtime.close()


class _States:
    """The state directories of a query, one per life."""

    def __init__(self, directory: Path, rng: Random) -> None:
        self._directory = directory
        self._rng = rng
        self._lives = 0
        self._older: Path | None = None
        self.current: Path | None = directory / "0"

    def crash(self) -> None:
        """What is left on the disk for the next life."""
        last = self.current
        self._lives += 1
        fate = self._rng.choice(("kept", "kept", "kept", "older", "deleted", "memory"))
        source = self._older if fate == "older" else last
        self.current = None if fate == "memory" else self._directory / str(self._lives)
        if self.current is not None and fate != "deleted" and source is not None and source.exists():
            shutil.copytree(source, self.current)
        if last is not None and last.exists() and self._rng.random() < 0.5:
            self._older = last.with_name(f"{last.name}-older")
            shutil.copytree(last, self._older)


@settings(max_examples=drawn(30), derandomize=True, phases=[Phase.generate])
@given(seed=SEEDS)
def test_killing_and_restarting_changes_nothing(seed: int) -> None:
    BUDGET.run(check, seed)


@pytest.mark.soak
@settings(max_examples=20_000, phases=[Phase.generate])
@given(seed=SEEDS)
def test_killing_and_restarting_changes_nothing_in_many_queries(seed: int) -> None:
    check(seed)
