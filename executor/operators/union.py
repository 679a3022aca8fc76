"""UNION ALL: the rows of two inputs, in the order in which they came."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ..batch import ChangeBatch
from .columns import conform, ints, take
from .stream_time import merged


def united(left: ChangeBatch, right: ChangeBatch, schema: pa.Schema) -> ChangeBatch:
    """The rows of both, ordered by `_seq`; their stream times are those of the tasks that they share."""
    times = merged(left.stream_time_ms, right.stream_time_ms)
    rows = [conform(batch.rows, schema) for batch in (left, right) if len(batch.rows)]
    if len(rows) < 2:
        return ChangeBatch(rows[0] if rows else schema.empty_table(), times, left.elapsed_ms)
    both = pa.concat_tables(rows)
    return ChangeBatch(take(both, np.argsort(ints(both, "_seq"), kind="stable")), times)
