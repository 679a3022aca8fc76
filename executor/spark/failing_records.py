"""Which record makes a bucket's batch fail: the first one with which the rows up to it fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from ..batch import ChangeBatch
from ..queries.query import DATA_ERRORS

Inputs = Mapping[str, ChangeBatch]


def first_failing(inputs: Inputs, error: Exception, run: Callable[[Inputs], None]) -> tuple[int, Exception]:
    """The number (`_seq`) of the first record with which the batch fails, and why.

    In: `run` raises one of DATA_ERRORS where the rows that it is given fail, as all of them do with `error`.
    """
    numbers = np.unique(np.concatenate([changes.rows["_seq"].to_numpy() for changes in inputs.values()]))
    if not len(numbers):
        raise error
    good, bad = 0, len(numbers)  # so many of the first records do, or do not, pass
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            run(_up_to(inputs, int(numbers[middle - 1])))
            good = middle
        except DATA_ERRORS as found:
            bad, error = middle, found
    return int(numbers[bad - 1]), error


def _up_to(inputs: Inputs, sequence: int) -> dict[str, ChangeBatch]:
    return {
        name: ChangeBatch(
            changes.rows.filter(pa.array(changes.rows["_seq"].to_numpy() <= sequence)), changes.stream_time_ms
        )
        for name, changes in inputs.items()
    }


def without(inputs: Inputs, sequence: int) -> dict[str, ChangeBatch]:
    return {
        name: ChangeBatch(
            changes.rows.filter(pa.array(changes.rows["_seq"].to_numpy() != sequence)), changes.stream_time_ms
        )
        for name, changes in inputs.items()
    }


def rows_with(inputs: Inputs, sequence: int) -> pa.Table:
    tables = [changes.rows.filter(pa.array(changes.rows["_seq"].to_numpy() == sequence)) for changes in inputs.values()]
    return next(table for table in tables if table.num_rows)
