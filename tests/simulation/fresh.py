"""Seeds that nobody has run before: they follow from the commit, so that a failure in CI is repeated anywhere."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from functools import cache
from hashlib import blake2b
from pathlib import Path

from .runs import Run, execute
from .worlds import world_named


@cache
def first_seed() -> int:
    """Of this commit; MILLSTREAM_SIMULATION_SEED says another one. Where there is no git, always the same."""
    said = os.environ.get("MILLSTREAM_SIMULATION_SEED")
    if said is not None:
        return int(said)
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = ""
    return int.from_bytes(blake2b(commit.encode(), digest_size=5).digest(), "big")


class SeedRuns:
    """Runs of one world, and what happened in all of them together."""

    def __init__(self, world: str, *, seeds: int, per_test: int, events: int = 20_000) -> None:
        self.world = world
        self.groups = range(seeds // per_test)
        self.seeds_done = 0
        self.counters: Counter[str] = Counter()
        self._per_test = per_test
        self._events = events

    def run_group(self, group: int) -> None:
        """Raises AssertionError with the report of the first run that broke a promise."""
        for offset in range(self._per_test):
            seed = first_seed() + group * self._per_test + offset
            outcome = execute(Run(self.world, seed, events=self._events))
            assert outcome.violated is None, outcome.report
            self.counters.update(outcome.counters)
            self.seeds_done += 1

    def never_happened(self) -> list[str]:
        """What must happen sometimes and did not: then the faults are too tame, or too harsh, to find anything."""
        return [name for name in world_named(self.world).must_happen if not self.counters[name]]
