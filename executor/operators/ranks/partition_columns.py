"""What an operator over partitions keeps of the rows that it gets."""

from __future__ import annotations

from collections.abc import Sequence

from ....planner.schema import Schema
from ....sql.types import INTEGER, SqlType
from ..columns import batch_schema, key_names, value_names


class PartitionColumns:
    """In: the input's schema, extra columns, and which of its columns somebody reads (None: all).

    `input`: of the batches that come. `key`: the task and the partition. `values`: those that somebody reads.
    """

    def __init__(self, schema: Schema, extra: Sequence[str], columns: Sequence[str] | None) -> None:
        self.input = batch_schema(schema, extra, columns)
        self.key: dict[str, SqlType] = {"_part": INTEGER}
        self.key |= dict(zip(key_names(schema), (column.type for column in schema.key), strict=True))
        every = dict(zip(value_names(schema), (column.type for column in schema.value), strict=True))
        self.values = {name: type_ for name, type_ in every.items() if columns is None or name in columns}
        self._whole = len(self.values) == len(every)

    def out(self, results: Sequence[str]) -> list[str] | None:
        """The columns of the batches that go out, with these results; None: all that their schema has."""
        return None if self._whole else [*list(self.key)[1:], *self.values, *results]
