"""Reads a topic: the leaves of every plan."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..expressions.readable import column_names
from ..expressions.typed import Typed
from ..insight.lineage_rows import Influence, LineageField, LineageRows, Value
from ..logical import LogicalPlan, names_of
from ..lowering import Lowering, physical_names, sql_over
from ..schema import Schema
from ..source_info import SourceInfo
from ..specs import ADDED, FormatSpec, KeyWindow, Kind, SqlExpression
from .step import Step, Text, walk


@dataclass(frozen=True, slots=True)
class Scan(LogicalPlan):
    """The rows of a stream or table. `needed`: the columns that are read; None while unknown. `with_old_rows`: a
    table's changes include the row that they replace."""

    source: SourceInfo
    timestamp: Typed | None = None
    needed: frozenset[str] | None = None
    with_old_rows: bool = False

    @property
    def schema(self) -> Schema:
        return self.source.schema

    @property
    def kind(self) -> Kind:
        return self.source.kind

    @property
    def key_window(self) -> KeyWindow | None:
        return self.source.key_window

    def giving_old_rows(self, wanted: bool) -> Scan:
        return replace(self, with_old_rows=wanted and self.kind == "TABLE")

    def giving(self, needed: frozenset[str]) -> Scan:
        own = needed | (self.timestamp.columns() if self.timestamp else frozenset())
        return replace(self, needed=names_of(self.schema) & own)

    def columns_read(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return ()

    def lower(self, lowering: Lowering) -> Source:
        source, needed = self.source, self.needed
        name = physical_names(source.schema)
        return Source(
            lowering.id("source"),
            topic=source.topic,
            kind=source.kind,
            schema=source.schema,
            key_format=source.key_format,
            value_format=source.value_format,
            key_window=source.key_window,
            timestamp=None if self.timestamp is None else sql_over(source.schema, self.timestamp),
            materialized=self.with_old_rows,
            partition_count=source.partition_count,
            columns=None if needed is None else tuple(name(c.name) for c in source.schema if c.name in needed),
            name=source.name,
            ttl_ms=source.ttl_ms if source.created_by is None else None,  # a creating query writes tombstones itself
        )


@dataclass(frozen=True, slots=True)
class Source(Step):
    """Reads a topic. Out: changes with the columns of `schema`.

    For a table with `materialized`, each record emits the old row at weight -1 (from a store, if there was one) and the
    new one at +1; without it, just +1, or -1 (value columns NULL) for a tombstone.
    `timestamp`: the rowtime, BIGINT ms, computed from the row's columns, instead of the record's own; a row for which
    it is NULL or negative is an error row.
    """

    topic: str
    kind: Kind
    schema: Schema
    key_format: FormatSpec
    value_format: FormatSpec
    key_window: KeyWindow | None = None
    timestamp: SqlExpression | None = None
    materialized: bool = False
    partition_count: int = 1
    columns: tuple[str, ...] | None = None  # the physical names that are needed; None: all
    name: str = ""  # of the stream or table, for messages
    ttl_ms: int | None = None  # for a table: its rows expire when their rowtime is this far behind stream time
    renewal: int = field(default=0, metadata=ADDED)  # `store_number`

    @property
    def expressions(self) -> tuple[SqlExpression, ...]:
        return () if self.timestamp is None else (self.timestamp,)

    @property
    def gives(self) -> Kind:
        return self.kind

    @property
    def window_of_keys(self) -> KeyWindow | None:
        return self.key_window

    @property
    def task_count(self) -> int:
        return self.partition_count

    @property
    def stateless(self) -> bool:
        return not self.stateful

    @property
    def stateful(self) -> bool:
        return self.materialized or self.ttl_ms is not None

    @property
    def state_identity(self) -> Step | None:
        """Formats are compared without their schema: each record names its own, and the registry has checked that they
        are compatible."""
        if not self.stateful:
            return None
        formats = {name: replace(getattr(self, name), schema=None) for name in ("key_format", "value_format")}
        return replace(self, columns=None, renewal=0, **formats)

    @property
    def store_number(self) -> int:
        return self.renewal

    def continues(self, before: Step) -> bool:
        """Also if the table got new value columns: they are NULL in the previous rows."""
        if not isinstance(before, Source):
            return False
        old, new = before.schema, self.schema
        grown = old.key == new.key and old.value == new.value[: len(old.value)]
        return grown and before.state_identity == replace(self, schema=old).state_identity

    def in_place_of(self, before: Step, number: int) -> Step:
        if not isinstance(before, Source):
            return self
        known = set(map(before.schema.physical_name, before.schema.value))  # columns added since are NULL in its rows
        lacking = (self.kept_columns - before.kept_columns) & known
        renewed = self.filled_by and (lacking or not before.materialized)
        return replace(self, renewal=number if renewed else before.store_number)

    @property
    def kept_columns(self) -> frozenset[str]:
        """The physical names of the value columns that it stores if it has state."""
        names = frozenset(map(self.schema.physical_name, self.schema.value))
        return names if self.columns is None else names & {*self.columns}

    @property
    def filled_by(self) -> tuple[Step, ...]:
        return (self,) if self.materialized and self.repeatable else ()

    @property
    def repeatable(self) -> bool:
        """A stream may have been read from any offset on; which rows of a table expire depends on all that were read
        before them."""
        return self.kind == "TABLE" and self.ttl_ms is None

    @property
    def asks_stream_time(self) -> bool:
        return self.ttl_ms is not None

    @property
    def passes_stream_time(self) -> bool:
        return False

    def describe(self, text: Text = str) -> str:
        old = ", with old rows" if self.materialized else ""
        ttl = "" if self.ttl_ms is None else f", TTL {self.ttl_ms} ms"
        formats = f"key {self.key_format.name}, value {self.value_format.name}"
        return f"SOURCE {self.kind} {self.name} ← topic {self.topic} ({formats}{old}{ttl}) | {self.schema}"

    def lineage(self, *below: LineageRows) -> LineageRows:
        rows = LineageRows({physical: self._own(column) for physical, column in column_names(self.schema).items()})
        if self.timestamp is None:
            return rows
        return LineageRows({**rows.values, "_ts": rows.computed(self.timestamp)})

    def _own(self, column: str) -> Value:
        field = LineageField(self.name or self.topic, column)
        return Value(str(field), (Influence(field, "DIRECT", "IDENTITY", str(field)),))


def sources_below(step: Step) -> tuple[Source, ...]:
    """The sources below and including `step`, left to right."""
    return tuple(each for each in walk(step) if isinstance(each, Source))
