"""How many cases a test has: some in a run of all tests, more in `make soak`."""

from __future__ import annotations

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
