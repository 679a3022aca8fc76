"""The causes of rows: the records from which rows come. They define one order for all rows of a batch.

An operator gives each output row the `_seq` of the row that caused it. A `_seq` is a position in one bucket's batch. So
a row that leaves its bucket takes along what the position was computed from: the time that decides when its record's
turn is (`_order`), the record's topic and source (`_origin`, a number), partition and offset. With these columns, rows
of several buckets are sorted into the order in which a single process would have computed them.

One record may cause several rows. For example, an update of a table retracts a row in one bucket and adds a row in
another, and the retraction must come first. So rows also take along a path. For each subplan that the row has passed,
the path contains the number of the input and the position among the rows that the record caused there. If one record
has several rows in a bucket, the path of the first one applies to all rows that they cause.

Steps that give the net changes of a whole batch (`Step.nets_batches`) give them after all records: first the retracted
rows, then the added rows, from all buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..batch import ChangeBatch
from ..operators.columns import Ints, ints, number_within, with_columns
from ..sources.source_reader import RecordHeaders
from .pieces import ORDER, ORIGIN, RECORD_HEADERS, path_name

AFTER_ALL = np.iinfo(np.int64).max

Path = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Causes:
    """Arrays with one element per `_seq`; one more at the end is for the rows after all records. `path`: a matrix with
    one row per `_seq`."""

    order: Ints
    origin: Ints
    partition: Ints
    offset: Ints
    path: Path

    def __len__(self) -> int:
        return len(self.order) - 1


def causes_of(tables: Sequence[pa.Table | None], path_length: int) -> Causes:
    """The causes of a bucket's input rows. In: `tables`: the inputs of the bucket, each in the order of `_seq`, which
    counts from 0 over all inputs; None for an input without rows.

    `path_length`: the path length of the output rows of the bucket's subplan.
    """
    count = max((int(rows["_seq"][-1].as_py()) + 1 for rows in tables if rows is not None), default=0)
    order = np.full(count + 1, AFTER_ALL, np.int64)
    origin, partition, offset = (np.zeros(count + 1, np.int64) for _ in range(3))
    path = np.zeros((count + 1, path_length - 1), np.int32)
    for place in reversed(range(len(tables))):  # if several inputs have rows of a record, the first input applies
        rows = tables[place]
        if rows is not None:
            sequence, first = np.unique(ints(rows, "_seq"), return_index=True)
            order[sequence], origin[sequence] = ints(rows, ORDER)[first], ints(rows, ORIGIN)[first]
            partition[sequence], offset[sequence] = ints(rows, "_rowpartition")[first], ints(rows, "_offset")[first]
            path[sequence] = 0
            path[sequence, 0] = place
            for number, column in enumerate(path_columns(rows), start=1):
                path[sequence, number] = column[first]
    if count:  # windows that close after the last record belong to it
        origin[-1], partition[-1], offset[-1] = origin[-2], partition[-2], offset[-2]
    return Causes(order, origin, partition, offset, path)


def path_columns(rows: pa.Table) -> list[Ints]:
    """The path of each row so far."""
    names = [path_name(number) for number in range(rows.num_columns) if path_name(number) in rows.column_names]
    return [ints(rows, name) for name in names or ["_sub"]]


def behind_all(changes: ChangeBatch, path_length: int) -> pa.Table:
    """The rows of a subplan that gives net changes of batches, with the columns that order them in other buckets."""
    rows = changes.rows
    path = np.zeros((2, path_length - 1), np.int32)
    path[1, 0] = 1
    nowhere = np.zeros(2, np.int64)
    causes = Causes(np.full(2, AFTER_ALL, np.int64), nowhere, nowhere, nowhere, path)
    comes = pa.array((ints(rows, "_weight") > 0).astype(np.int64))
    return with_causes(ChangeBatch(with_columns(rows, {"_seq": comes})), causes, None)


def with_causes(changes: ChangeBatch, causes: Causes, headers: RecordHeaders | None) -> pa.Table:
    """The output rows of a subplan. The columns that order them in other buckets replace `_seq` and `_sub`."""
    rows = changes.rows
    sequence = ints(rows, "_seq")
    at = np.minimum(sequence, len(causes))
    columns: dict[str, pa.Array] = {
        "_rowpartition": pa.array(causes.partition[at].astype(np.int32)),
        "_offset": pa.array(causes.offset[at]),
        ORDER: pa.array(causes.order[at]),
        ORIGIN: pa.array(causes.origin[at].astype(np.int32)),
    }
    path = [*causes.path[at].T, number_within(sequence)]
    columns |= {path_name(number): pa.array(np.ascontiguousarray(column)) for number, column in enumerate(path)}
    if headers is not None and len(rows):
        columns[RECORD_HEADERS] = headers.of(pa.array(at))
    return with_columns(rows.drop_columns(["_seq", "_sub"]), columns)
