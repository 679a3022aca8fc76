"""The columns that an operator over partitions keeps of its input rows."""

from __future__ import annotations

from collections.abc import Sequence

from ....planner.schema import Schema
from ....sql.types import INTEGER, SqlType
from ..columns import batch_schema, key_types, value_types


class PartitionColumns:
    """In: the input's schema, its extra columns, and the columns that are read downstream (None: all).

    `input`: the schema of input batches. `key`: the task and the partition. `values`: the value columns that are read.
    """

    def __init__(self, schema: Schema, extra: Sequence[str], columns: Sequence[str] | None) -> None:
        self.input = batch_schema(schema, extra, columns)
        self.key: dict[str, SqlType] = {"_part": INTEGER}
        self.key |= key_types(schema)
        every = value_types(schema)
        self.values = {name: type_ for name, type_ in every.items() if columns is None or name in columns}
        self._whole = len(self.values) == len(every)

    def out(self, results: Sequence[str]) -> list[str] | None:
        """The columns of the output batches, including these results; None: all columns of their schema."""
        return None if self._whole else [*list(self.key)[1:], *self.values, *results]
