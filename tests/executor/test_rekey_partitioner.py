"""Rows of a new key lie where the bytes of their own key say, however often a key comes."""

from __future__ import annotations

from datetime import datetime
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pipelines import schema

from millstream.executor.partitioning import RekeyPartitioner
from millstream.planner.specs import FormatSpec
from millstream.planner.steps.repartition import Rekey
from millstream.planner.steps.step import NOTHING
from millstream.sql.types import BIGINT, DOUBLE, STRING, TIMESTAMP, SqlType

CHOICES: dict[SqlType, tuple[Any, ...]] = {
    BIGINT: (1, 2, -5, None),
    STRING: ("", "a", "é", None),
    TIMESTAMP: (datetime(2024, 1, 1), datetime(1969, 5, 5, 1, 2), None),
    DOUBLE: (0.0, -0.0, 1.5, None),
}


@pytest.mark.parametrize("types", [(BIGINT,), (BIGINT, STRING, TIMESTAMP), (STRING,), (DOUBLE,), (STRING, DOUBLE)])
@pytest.mark.parametrize("different", [False, True])
def test_each_row_lies_where_it_would_lie_alone(types: tuple[SqlType, ...], different: bool) -> None:
    rng = Random(repr(types))
    step = Rekey("r", NOTHING, (), schema(types, ()), FormatSpec("JSON"), 5)
    columns = {
        f"k{i}": pa.array([rng.choice(CHOICES[type_]) for _ in range(6_000)], type_.arrow)
        for i, type_ in enumerate(types)
    }
    if different and types[0] == BIGINT:
        columns["k0"] = pa.array(range(6_000), pa.int64())
    rows = pa.table({"_part": pa.array(np.zeros(6_000, np.int32)), **columns})
    partitioner = RekeyPartitioner()
    whole = partitioner(step, rows)
    alone = np.concatenate([partitioner(step, rows.slice(first, 100)) for first in range(0, 6_000, 100)])
    assert whole.tolist() == alone.tolist()
    assert len(set(whole.tolist())) > 1
