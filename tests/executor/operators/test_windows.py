"""Which windows a row falls into, and how many are too many."""

from __future__ import annotations

import numpy as np
import pytest

from millstream.errors import InvalidStatement
from millstream.executor.operators.windows import assign
from millstream.planner.physical import WindowSpec
from millstream.testing import Sandbox

DAY_MS = 86_400_000


def test_a_row_is_in_every_hopping_window_that_is_open() -> None:
    rows, starts = assign(WindowSpec("HOPPING", 10, 5, grace_ms=0), np.array([12, 3]), np.array([12, 12]))
    assert list(zip(rows.tolist(), starts.tolist(), strict=True)) == [(0, 5), (0, 10)]


def test_a_batch_with_too_many_windows_asks_for_a_smaller_one() -> None:
    window = WindowSpec("HOPPING", DAY_MS, 1_000, grace_ms=0)
    times = np.full(200, 10 * DAY_MS)
    with pytest.raises(MemoryError):
        assign(window, times, times)
    assert len(assign(window, times[:100], times[:100])[0]) == 100 * 86_400


def test_a_window_that_would_hold_each_row_a_million_times_is_refused() -> None:
    with Sandbox() as sandbox:
        sandbox.create_topic("s")
        sandbox.execute("CREATE STREAM s (k STRING KEY) WITH (kafka_topic='s', value_format='JSON');")
        statement = "CREATE TABLE t AS SELECT k, COUNT(*) FROM s WINDOW HOPPING (SIZE 1 DAY, ADVANCE BY {}) GROUP BY k;"
        with pytest.raises(InvalidStatement) as caught:
            sandbox.execute(statement.format("1 MILLISECOND"))
        assert caught.value.hint
        assert caught.value.span
        sandbox.execute(statement.format("1 SECOND"))
