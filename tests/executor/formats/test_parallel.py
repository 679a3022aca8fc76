"""Decoding by several threads gives what one gives."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

from millstream.executor.formats.compiled.parallel import decode_in_parallel
from millstream.executor.formats.registry import decoder
from millstream.planner.schema import Column
from millstream.planner.specs import FormatSpec
from millstream.sql.types import BIGINT, STRING


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_several_threads_decode_what_one_does(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: threads)
    values: list[bytes | None] = [b'{"A":%d,"B":"x%d"}' % (i, i % 7) for i in range(70_001)]
    values[3] = values[40_000] = None
    values[5] = values[69_999] = b"{broken"
    data = pa.chunked_array([pa.array(values[:1_000], pa.binary()), pa.array(values[1_000:], pa.binary())])
    json = decoder(FormatSpec("JSON"), [Column("A", BIGINT), Column("B", STRING)])
    alone, together = json.decode(data), decode_in_parallel(json, data)
    assert together.columns == alone.columns
    assert together.null_rows == alone.null_rows
    assert together.errors == alone.errors
    assert [error.row for error in together.errors] == [5, 69_999]
