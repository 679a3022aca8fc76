"""Gives rows a new key: for PARTITION BY, for GROUP BY, and for joins, so that equal keys are in one task."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..expressions.substitution import computed_from
from ..expressions.typed import Typed
from ..insight.lineage_rows import LineageRows
from ..logical import LogicalPlan, Named, Unary, read_by
from ..lowering import Lowering, sql_over
from ..schema import Schema
from ..specs import FormatSpec, KeyWindow, SqlExpression
from .step import Step, Text

_INTERNAL_FORMAT = FormatSpec("JSON", wrap_single=False)  # can encode every key; only the hash of the bytes matters


@dataclass(frozen=True, slots=True)
class Repartition(Unary):
    """A new key; values stay. Rows without a key are kept, unless `drop_null_key`.

    `partition_count`: the number of partitions; None: that of the first source.
    `key_format`: the key's bytes in this format decide the partition, so that rows meet those of a topic with such
    keys. `keeps_window`: the key does not change, including its window; the rows only move to other partitions.
    """

    key: tuple[Named, ...]
    drop_null_key: bool = False
    partition_count: int | None = None
    key_format: FormatSpec | None = None
    keeps_window: bool = False

    @property
    def schema(self) -> Schema:
        return Schema((*(named.column("KEY") for named in self.key), *self.input.schema.value))

    @property
    def key_window(self) -> KeyWindow | None:
        return self.input.key_window if self.keeps_window else None

    @property
    def only_adds(self) -> bool:
        return self.input.only_adds

    @property
    def scattered(self) -> bool:
        return False

    def columns_read(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (needed | read_by(named.expression for named in self.key),)

    def before(self, condition: Typed) -> Typed | None:
        return computed_from(condition, self.schema, {named.name: named.expression for named in self.key})

    def bounded(self, column: str, largest: int) -> LogicalPlan:
        return replace(self, input=self.input.bounded(column, largest))

    def lower(self, lowering: Lowering) -> Rekey:
        step = self.input.lower(lowering)
        key = tuple(sql_over(self.input.schema, named.expression) for named in self.key)
        return Rekey(
            lowering.id("rekey"),
            step,
            key,
            self.schema,
            self.key_format or _INTERNAL_FORMAT,
            self.partition_count or lowering.partition_count,
            self.drop_null_key,
        )


@dataclass(frozen=True, slots=True)
class Rekey(Step):
    """A new key, and so a new partition (murmur2 over the key's bytes in `key_format`, as in Kafka's clients).

    Rows whose whole key is NULL are dropped with `drop_null_key` (GROUP BY), else they go to partition 0.
    Value columns stay.
    """

    input: Step
    key: tuple[SqlExpression, ...]
    schema: Schema
    key_format: FormatSpec
    partition_count: int
    drop_null_key: bool = False

    @property
    def expressions(self) -> tuple[SqlExpression, ...]:
        return self.key

    @property
    def task_count(self) -> int:
        return self.partition_count

    @property
    def drops_rows_without_key(self) -> bool:
        return self.drop_null_key

    @property
    def rekeys(self) -> bool:
        return True

    @property
    def stateless(self) -> bool:
        return True

    @property
    def passes_stream_time(self) -> bool:
        return False

    def describe(self, text: Text = str) -> str:
        key = ", ".join(text(e.sql) for e in self.key) or "none"
        return f"REKEY {key} ({self.partition_count} partitions by {self.key_format.name}) | {self.schema}"

    def lineage(self, *below: LineageRows) -> LineageRows:
        (rows,) = below
        return replace(rows, values={**rows.values, **rows.keyed(self.key)})
