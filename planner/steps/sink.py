"""Writes a topic: the root of every persistent query."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..insight.lineage_rows import LineageRows
from ..schema import Schema
from ..specs import FormatSpec, KeyWindow, Kind, SqlExpression
from .step import Step, Text


@dataclass(frozen=True, slots=True)
class Sink(Step):
    """Encodes rows and writes them to `topic`. A row's partition is murmur2 of the key bytes; a row with a null key
    goes to the partition of its task. `timestamp` replaces the rowtime; a row where it is NULL or negative is an error
    row.

    For a table, a (row, key) that has a -1 and no +1 in the same input row becomes a tombstone.
    `computed_key`: the query computed the key; then a key of several columns is never null as a whole, even if each of
    its columns is NULL.
    """

    input: Step
    name: str
    kind: Kind
    topic: str
    schema: Schema
    key_format: FormatSpec
    value_format: FormatSpec
    partition_count: int
    key_window: KeyWindow | None = None
    timestamp: SqlExpression | None = None
    computed_key: bool = False

    @property
    def expressions(self) -> tuple[SqlExpression, ...]:
        return () if self.timestamp is None else (self.timestamp,)

    @property
    def last_conditions(self) -> tuple[SqlExpression, ...]:
        return self.input.last_conditions

    def deleting_failed(self) -> Step:
        return replace(self, input=self.input.deleting_failed())

    @property
    def gives(self) -> Kind:
        return self.kind

    def describe(self, text: Text = str) -> str:
        formats = f"key {self.key_format.name}, value {self.value_format.name}"
        return (
            f"SINK {self.kind} {self.name} → topic {self.topic} ({self.partition_count} partitions, {formats}) "
            f"| {self.schema}"
        )

    def lineage(self, *below: LineageRows) -> LineageRows:
        return below[0]
