"""The comparison as lines of a table: both checkouts in turn, each in processes of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..report import Line
from .costs import PARTS
from .served import server_costs

HERE: Final = Path(__file__).resolve().parents[2]
WANTED: Final[Mapping[str, float]] = {
    "append one record": 1.11,
    "append 1,000 records": 1.11,
    "fetch 100,000 records": 1.11,
    "transaction over 3 partitions": 1.11,
    "opening 10,000 partitions": 1.5,
    "millstream.connect() and one stream": 1.2,
    "a Sandbox test": 1.2,
    "empty server: private memory, MB": 1.1,
    "Kafka port: produce, a record": 1.11,
    "Kafka port: fetch, a record": 1.11,
    "Kafka port: a request with one record": 1.11,
    "append → result at 100 rows/s: p50, ms": 1.1,
}
"""The most that this checkout may take, as a multiple of the other one's."""


@dataclass(frozen=True, slots=True)
class CheckoutsOptions:
    """`beside`: another checkout of Millstream, with its environment in `.venv`."""

    beside: Path
    rounds: int


def checkouts_lines(options: CheckoutsOptions) -> list[Line]:
    """Raises `subprocess.CalledProcessError`, `RuntimeError` where one of the checkouts does not run."""
    here: dict[str, list[float]] = {}
    beside: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for folder, found in ((options.beside, beside), (HERE, here)):
            for what, cost in _costs(folder).items():
                found.setdefault(what, []).append(cost)
    return [line_of(what, here[what], beside[what]) for what in WANTED]


def line_of(what: str, here: list[float], beside: list[float]) -> Line:
    """The ratio is that of the cheapest of each: what disturbs a run makes it dearer. Run by run it says how far from
    one another they were."""
    each = sorted(one / other for one, other in zip(here, beside, strict=True))
    costs = f"{_text(what, statistics.median(beside))} → {_text(what, statistics.median(here))}"
    ratio = f"{min(here) / min(beside):.2f} × ({each[0]:.2f} to {each[-1]:.2f})"
    return Line(f"{what}: {costs}", ratio=ratio, wanted=f"≤ {WANTED[what]}")


def _text(what: str, cost: float) -> str:
    """Seconds as microseconds, unless it is something else."""
    return f"{cost:,.1f}" if what.endswith(("MB", "ms")) else f"{cost * 1e6:,.1f} µs"


def _costs(folder: Path) -> dict[str, float]:
    """What each part costs in this checkout."""
    python = str(folder / ".venv" / "bin" / "python")
    costs: dict[str, float] = {}
    for part in PARTS:
        sys.stderr.write(f"bench: {part} of {folder.name} …\n")
        command = [python, str(Path(__file__).with_name("costs.py")), part]
        done = subprocess.run(command, check=True, cwd=folder, stdout=subprocess.PIPE, text=True)
        costs |= json.loads(done.stdout)
    sys.stderr.write(f"bench: server of {folder.name} …\n")
    return costs | server_costs(python, str(folder))
