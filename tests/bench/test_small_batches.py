"""The measurement of small batches runs. What they cost, no test asks."""

from __future__ import annotations

import pytest
from drawn import sampled

from bench.small_batches import SHAPES, Shape, measure


@pytest.mark.parametrize("shape", sampled(SHAPES, 3), ids=lambda shape: shape.name)
def test_each_query_gives_a_result_for_each_record(shape: Shape) -> None:
    found = measure(shape, records=3, rounds=1)
    assert found.append_ms > 0
