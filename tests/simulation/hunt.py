"""Looks for the first seed that finds each planted bug: `python -m tests.simulation.hunt [--seeds 2000] [NAME …]`.

What it prints goes into `found_by` of the mutants, as a hint for the tests where to look first.
"""

from __future__ import annotations

import argparse
import sys

from .mutants import all_mutants
from .runs import Run, execute


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.hunt")
    parser.add_argument("names", nargs="*", help="mutants; all that are found by seeds, if none is named")
    parser.add_argument("--seeds", type=int, default=2_000, help="how many to try")
    options = parser.parse_args()
    mutants = all_mutants()
    names = options.names or [name for name, mutant in mutants.items() if isinstance(mutant.found_by, int)]
    missed = 0
    for name in names:
        found = _first_seed(name, mutants[name].world, mutants[name].events, options.seeds)
        missed += found is None
        print(f"{name:<28} {found or 'NOT FOUND'}", flush=True)
    return 1 if missed else 0


def _first_seed(name: str, world: str, events: int, seeds: int) -> str | None:
    events_before = 0
    for seed in range(seeds):
        outcome = execute(Run(world, seed, events=events, mutant=name))
        events_before += outcome.events
        if outcome.violated:
            return f"seed {seed}: {outcome.violated} after {events_before} events"
    return None


if __name__ == "__main__":
    sys.exit(main())
