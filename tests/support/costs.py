"""What each test costs: CPU seconds of its process and of its child processes, and of theirs.

Those that outlive a test are looked at while they run: a broker or a browser costs each of its tests what it did
meanwhile.

On a shared machine only CPU seconds can be compared. A file given in TEST_COSTS gets one line of JSON for
each test; all workers of pytest-xdist append to it.

    TEST_COSTS=build/costs.jsonl make test
    python tests/support/costs.py build/costs.jsonl                # by file, the most expensive first
    python tests/support/costs.py build/costs.jsonl tests/server   # by test, below a folder or in a file
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

VARIABLE: Final = "TEST_COSTS"
_SHOWN: Final = 60


class Cost(NamedTuple):
    """Seconds of a test: CPU of the process that ran it, CPU of its children, and on the clock."""

    test: str
    own: float
    children: float
    wall: float

    @property
    def file(self) -> str:
        return self.test.partition("::")[0]


@contextmanager
def measured(test: str) -> Generator[None]:
    """Appends the cost of the block to the file in TEST_COSTS; does nothing where it is not set."""
    path = os.environ.get(VARIABLE)
    if not path:
        yield
        return
    children, own, began = _children_s(), time.process_time(), time.monotonic()
    try:
        yield
    finally:
        own = time.process_time() - own
        children = max(_children_s() - children, 0.0)  # less, where one was killed before its own children had ended
        cost = Cost(test, round(own, 2), round(children, 2), round(time.monotonic() - began, 2))
        with Path(path).open("a", encoding="utf-8") as lines:  # one write: the lines of processes do not mix
            lines.write(json.dumps(cost) + "\n")


def _children_s() -> float:
    """CPU seconds of all processes that this one has started, directly or not; elsewhere than on Linux, of those that
    have ended."""
    ended = os.times()
    return ended.children_user + ended.children_system + sum(map(_seconds_of, _children(os.getpid())))


def _seconds_of(process: int) -> float:
    """What it has used, those that it started and that have ended, and those that still run."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:  # it has gone
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") + sum(map(_seconds_of, _children(process)))


def _children(process: int) -> Sequence[int]:
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            with suppress(OSError):
                found += map(int, Path(f"/proc/{process}/task/{thread}/children").read_text(encoding="ascii").split())
    return found


def by_file(costs: Iterable[Cost]) -> Sequence[Cost]:
    """The sums of each file, the most expensive first."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for cost in costs:
        for place, seconds in enumerate(cost[1:]):
            sums[cost.file][place] += seconds
    return _sorted(Cost(file, *seconds) for file, seconds in sums.items())


def _sorted(costs: Iterable[Cost]) -> Sequence[Cost]:
    return sorted(costs, key=lambda cost: -(cost.own + cost.children))


def main(arguments: Sequence[str]) -> None:
    lines = Path(arguments[0]).read_text(encoding="utf-8").splitlines()
    costs = [Cost(*json.loads(line)) for line in lines]
    shown = [cost for cost in costs if cost.test.startswith(arguments[1])] if len(arguments) > 1 else costs
    rows = _sorted(shown) if len(arguments) > 1 else by_file(shown)
    total = Cost("all", *(sum(seconds) for seconds in zip(*(cost[1:] for cost in shown), strict=True)))
    for name, own, children, wall in [total, *rows[:_SHOWN]]:
        print(f"{own + children:8.1f} CPU s  {own:8.1f} own {children:8.1f} children {wall:8.1f} wall  {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
