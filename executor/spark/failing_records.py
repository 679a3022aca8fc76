"""How a bucket handles a batch that fails. It finds the first record that makes the batch fail. If memory is too small
for the whole batch, it processes the records in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from ..batch import ChangeBatch
from ..operators.columns import Ints, ints
from ..queries.query import DATA_ERRORS

Inputs = Mapping[str, ChangeBatch]


def first_failing(inputs: Inputs, error: Exception, run: Callable[[Inputs], None]) -> tuple[int, Exception]:
    """The number (`_seq`) of the first record that makes the batch fail, and its error.

    In: `run` raises one of DATA_ERRORS if the given rows fail. `error`: the error of all rows together.
    """
    numbers = np.unique(np.concatenate([changes.rows["_seq"].to_numpy() for changes in inputs.values()]))
    if not len(numbers):
        raise error
    good, bad = 0, len(numbers)  # invariant: the first `good` records pass, the first `bad` records fail
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


def record_count(inputs: Inputs) -> int:
    """The number of records that have rows."""
    return len(_numbers(inputs))


def parts_of(inputs: Inputs, count: int) -> Iterator[Inputs]:
    """Splits the records into `count` parts, in order; rows of one record stay together. This is for a bucket that does
    not have the memory for its share of a batch that other buckets have done: the batch stays the same, in one
    transaction.

    Records without rows have also advanced stream time, at unknown places. So only the last part advances stream time.
    """
    if count == 1:
        yield inputs
        return
    numbers = _numbers(inputs)
    ends = [int(part[-1]) for part in np.array_split(numbers, count) if len(part)]
    begin = -1
    for end in ends:
        yield {name: _between(batch, begin, end, is_last=end == ends[-1]) for name, batch in inputs.items()}
        begin = end


def _numbers(inputs: Inputs) -> Ints:
    numbers = [ints(batch.rows, "_seq") for batch in inputs.values()]
    return np.unique(np.concatenate(numbers)) if numbers else np.empty(0, np.int64)


def _between(batch: ChangeBatch, begin: int, end: int, *, is_last: bool) -> ChangeBatch:
    """The rows with a `_seq` after `begin`, up to and including `end`."""
    first, after = np.searchsorted(ints(batch.rows, "_seq"), [begin, end], side="right").tolist()
    return ChangeBatch(batch.rows.slice(first, after - first), batch.stream_time_ms if is_last else {})
