"""Rows of a pull query that are ended before the client has taken all of them."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from millstream.server.pg.pg_rows import BATCH_ROWS, FixedRows
from millstream.server.pg.sqlstates import PgRefused


def taken(rows: FixedRows) -> int:
    piece = asyncio.run(rows.take(BATCH_ROWS))
    return 0 if piece is None else piece.count


def test_an_answer_that_another_client_ends_is_not_taken_for_a_whole_one() -> None:
    rows = FixedRows([pa.array(range(2 * BATCH_ROWS))], 2 * BATCH_ROWS)
    assert taken(rows) == BATCH_ROWS
    rows.close()
    rows.close()
    with pytest.raises(PgRefused, match="was terminated"):
        taken(rows)


def test_an_answer_that_was_taken_whole_stays_so() -> None:
    rows = FixedRows([pa.array([1])], 1)
    assert [taken(rows), taken(rows)] == [1, 0]
    rows.close()
    assert taken(rows) == 0
