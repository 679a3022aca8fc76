"""How many cases a test has: some in a run of all tests, more in `make soak`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from typing import Final

import pytest
from _pytest.mark.structures import ParameterSet

_TIMES: Final = int(os.environ.get("MILLSTREAM_DRAWN_TIMES", "1"))


def drawn(count: int) -> int:
    """In: in a run of all tests. MILLSTREAM_DRAWN_TIMES is what it is multiplied by."""
    return count * _TIMES


def sampled(cases: Iterable[object], every: int) -> Sequence[ParameterSet]:
    """One of `every` cases for a run of all tests, the others for `make soak`. For `pytest.mark.parametrize`."""
    return [pytest.param(case, marks=pytest.mark.soak if place % every else ()) for place, case in enumerate(cases)]


def checkered(*axes: Iterable[object]) -> Sequence[ParameterSet]:
    """All combinations of the axes' values for `make soak`; for a run of all tests every other one, so that each value
    is tried with some of each other axis. For `pytest.mark.parametrize`."""
    found: list[ParameterSet] = []
    for combination in itertools.product(*map(enumerate, axes)):
        places, values = zip(*combination, strict=True)
        found.append(pytest.param(*values, marks=pytest.mark.soak if sum(places) % 2 else ()))
    return found
