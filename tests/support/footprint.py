"""What a process takes of the machine, and whether it grows. Linux only: it reads /proc."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median

import pytest

PROC = Path("/proc")
needs_proc = pytest.mark.skipif(not (PROC / "self" / "status").exists(), reason="needs /proc to look at a process")


@dataclass(frozen=True, slots=True)
class Footprint:
    memory_mb: float
    threads: int
    files: int

    @staticmethod
    def of(process: int) -> Footprint:
        lines = (PROC / str(process) / "status").read_text(encoding="ascii").splitlines()
        status = dict(line.split(":", 1) for line in lines)
        files = len(os.listdir(PROC / str(process) / "fd"))
        return Footprint(int(status["VmRSS"].split()[0]) / 1024, int(status["Threads"]), files)


def slope(values: Sequence[float]) -> float:
    """Growth from one value to the next: the median over all pairs (Theil and Sen), which a few peaks do not move."""
    pairs = combinations(enumerate(values), 2)
    return median((later - earlier) / (at - before) for (before, earlier), (at, later) in pairs)
