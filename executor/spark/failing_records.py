"""What a bucket does with a batch that fails: it finds the first record with which the rows up to it fail; and it goes
through the records in parts, where memory does not suffice for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from ..batch import ChangeBatch
from ..operators.columns import Ints, ints
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


def record_count(inputs: Inputs) -> int:
    """Of those that have rows."""
    return len(_numbers(inputs))


def parts_of(inputs: Inputs, count: int) -> Iterator[Inputs]:
    """So many stretches of the records, in their order; rows of one record stay together. For a bucket without room for
    its share of a batch that others have done: it is the same batch, in one transaction.

    Records that left no rows have moved stream time as well, nobody knows where: that is done behind the last part.
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
    """The rows after `begin`, up to `end`."""
    first, after = np.searchsorted(ints(batch.rows, "_seq"), [begin, end], side="right").tolist()
    return ChangeBatch(batch.rows.slice(first, after - first), batch.stream_time_ms if is_last else {})
