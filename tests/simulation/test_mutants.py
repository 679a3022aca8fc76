"""Planted bugs are found, and the table of them in the documentation is true."""

from __future__ import annotations

import pytest
from drawn import sampled

from .directed import all_directed
from .mutant_table import table_in_docs, table_of
from .mutants import all_mutants
from .mutants.base import Mutant
from .runs import Run, execute, load_scenario

MUTANTS = all_mutants()
SEEDS_MAX = 60  # the seed that found it first may not do so after a change of what is drawn; others then must


@pytest.mark.parametrize("mutant", sampled(MUTANTS.values(), 3), ids=MUTANTS)
@pytest.mark.timeout(300)  # a second each on an idle machine
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    if isinstance(mutant.found_by, int):
        assert any(_is_violated(mutant, seed) for seed in (mutant.found_by, *range(SEEDS_MAX)))
    elif mutant.found_by in all_directed():
        with mutant.planted(), pytest.raises(Exception):  # noqa: B017 - a promise that is broken, or an answer that no caller expects
            all_directed()[mutant.found_by]()
    else:
        run = load_scenario(mutant.found_by)
        run.mutant = mutant.name
        assert execute(run).violated is not None


def test_the_table_in_the_documentation_is_true() -> None:
    assert table_in_docs() == table_of(MUTANTS.values()), "python -m tests.simulation.mutant_table writes it anew"


def _is_violated(mutant: Mutant, seed: int) -> bool:
    return execute(Run(mutant.world, seed, events=mutant.events, mutant=mutant.name)).violated is not None
