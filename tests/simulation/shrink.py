"""Makes a failing run smaller: fewer faults (ddmin), and its end right behind the failure."""

from __future__ import annotations

from dataclasses import replace

from .faults import Fault
from .runs import Outcome, Run, execute, prepare


def shrink(run: Run, *, reruns_max: int = 400) -> tuple[Run, Outcome]:
    """A run with written-out options and faults that breaks the same promise. Raises ValueError if there is none."""
    simulation = prepare(run)
    first = execute(run)
    if first.violated is None:
        raise ValueError("nothing is violated in this run")
    left = [reruns_max]
    done = [fault for fault in simulation.faults if fault.at_ms <= first.virtual_ms]
    current = replace(run, options=simulation.options, faults=done)
    outcome = execute(current)
    if outcome.violated != first.violated:
        current, outcome = replace(current, faults=simulation.faults), first

    def fails(faults: list[Fault]) -> Outcome | None:
        left[0] -= 1
        tried = execute(replace(current, faults=faults))
        return tried if tried.violated == first.violated else None

    faults = list(current.faults or [])
    pieces = 2
    while faults and left[0] > 0:
        size = max(1, len(faults) // pieces)
        for start in range(0, len(faults), size):
            rest = faults[:start] + faults[start + size :]
            tried = fails(rest)
            if tried is not None:
                faults, outcome = rest, tried
                pieces = max(2, pieces - 1)
                break
            if left[0] <= 0:
                break
        else:
            if size == 1:
                break
            pieces = min(len(faults), pieces * 2)
    return replace(current, faults=faults), outcome
