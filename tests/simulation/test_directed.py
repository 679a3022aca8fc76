"""The scenarios that somebody thought out, on the code as it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .directed import all_directed

CASES = all_directed()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_directed_scenario_breaks_no_promise(case: Callable[[], None]) -> None:
    case()
