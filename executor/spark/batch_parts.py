"""A bucket's share of a batch in parts, where memory does not suffice for the whole. What a batch is was written down
before, and other buckets may have done theirs, so it is the same batch, in one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..batch import ChangeBatch
from ..operators.columns import ints

Inputs = Mapping[str, ChangeBatch]


def record_count(inputs: Inputs) -> int:
    """Of those that have rows."""
    return len(_numbers(inputs))


def parts_of(inputs: Inputs, count: int) -> Iterator[Inputs]:
    """So many stretches of the records, in their order; rows of one record stay together.

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


def _numbers(inputs: Inputs) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    numbers = [ints(batch.rows, "_seq") for batch in inputs.values()]
    return np.unique(np.concatenate(numbers)) if numbers else np.empty(0, np.int64)


def _between(batch: ChangeBatch, begin: int, end: int, *, is_last: bool) -> ChangeBatch:
    """The rows after `begin`, up to `end`."""
    first, after = np.searchsorted(ints(batch.rows, "_seq"), [begin, end], side="right").tolist()
    return ChangeBatch(batch.rows.slice(first, after - first), batch.stream_time_ms if is_last else {})
