"""The command line of the simulator; README.md shows how it is used."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from .runs import Outcome, Run, execute, load_scenario, save_scenario
from .shrink import shrink
from .worlds import WORLDS


def main() -> int:
    options = _arguments()
    if options.scenario:
        run = load_scenario(options.scenario)
        run.mutant = options.mutant
        return _one(run, printing=options.trace, shrink_to=options.shrink)
    if options.seeds:
        first, _, last = options.seeds.partition(":")
        return _many(options, range(int(first), int(last)))
    run = Run(options.world, options.seed, events=options.events, mutant=options.mutant)
    return _one(run, printing=options.trace, shrink_to=options.shrink)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--world", choices=sorted(WORLDS), default="quorum")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", help="FIRST:END, the end not included")
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--mutant", help="the name of a planted bug")
    parser.add_argument("--scenario", help="a file, or a name in tests/simulation/scenarios")
    parser.add_argument("--shrink", type=Path, help="write a smaller failing run to this file")
    parser.add_argument("--trace", action="store_true", help="print every event")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--go-on", action="store_true", help="run all seeds, whatever fails")
    return parser.parse_args()


def _one(run: Run, *, printing: bool, shrink_to: Path | None) -> int:
    outcome = execute(run, printing=printing)
    print(outcome.report or "all promises kept")
    print(f"{outcome.events} events, {outcome.virtual_ms} ms virtual, trace {outcome.trace_hash}")
    print(dict(sorted(outcome.counters.items())))
    if shrink_to is not None:
        small, _ = shrink(run)
        save_scenario(small, shrink_to)
        print(f"{len(small.faults or [])} faults are left; written to {shrink_to}")
    return 1 if outcome.violated else 0


def _many(options: argparse.Namespace, seeds: range) -> int:
    began, used = time.monotonic(), time.process_time()
    counters: Counter[str] = Counter()
    events = virtual_ms = count = 0
    failed: list[tuple[int, str]] = []
    run = partial(_seed, options.world, options.events, options.mutant)
    with ProcessPoolExecutor(options.jobs) as pool:
        for outcome in map(run, seeds) if options.jobs == 1 else pool.map(run, seeds, chunksize=8):
            counters.update(outcome.counters)
            events, virtual_ms, count = events + outcome.events, virtual_ms + outcome.virtual_ms, count + 1
            if outcome.violated:
                failed.append((outcome.run.seed, outcome.violated))
                if not options.go_on:
                    print(outcome.report)
                    pool.shutdown(cancel_futures=True)
                    break
    took = time.monotonic() - began
    print(dict(sorted(counters.items())))
    print(
        f"{count} seeds, {events} events, {virtual_ms / 3_600_000:.2f} virtual hours, {took:.1f} s"
        f" ({events / took:.0f} events/s; {time.process_time() - used:.1f} s CPU in this process)"
    )
    print(f"violations: {failed or 'none'}")
    return 1 if failed else 0


def _seed(world: str, events: int, mutant: str | None, seed: int) -> Outcome:
    return execute(Run(world, seed, events=events, mutant=mutant))


if __name__ == "__main__":
    sys.exit(main())
