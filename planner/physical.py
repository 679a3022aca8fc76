"""The physical plan: topics, stores and steps of a query; frozen, versioned, serialisable.

Steps form a tree, sources at the leaves, one `Sink` at the root. Expressions are DuckDB SQL that the planner generated
over the columns of the step's input batch (see `executor/batch.py` for the columns); no user text is in them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..sql.types import SqlType
from .schema import Schema

PLAN_VERSION = 1

JoinKind = Literal["INNER", "LEFT", "RIGHT", "FULL"]

UNBOUNDED_MS = 1 << 60  # further apart than any two times, and sums of it fit 64 bits


@dataclass(frozen=True, slots=True)
class SqlExpression:
    """DuckDB SQL over a batch's columns, and the SQL type of its result.

    `udfs` names the Python functions it calls; `sql.functions.udf_by_name` finds them again when a plan is replayed.
    """

    sql: str
    type: SqlType
    udfs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """A schema of the registry, with everything that is needed to write records by it.

    `references`: (name, text) of all schemas that it imports, those first that others import. `message`: the full
    name of the PROTOBUF message; empty is the first one. `given`: the statement named the schema by its id.
    """

    id: int
    kind: Literal["AVRO", "JSON", "PROTOBUF"]
    text: str
    references: tuple[tuple[str, str], ...] = ()
    message: str = ""
    given: bool = False


@dataclass(frozen=True, slots=True)
class FormatSpec:
    """How one part (key or value) of a record becomes bytes.

    `wrap_single`: a single column is written as an object {"COLUMN": value} (True) or as the bare value (False).
    `schema`: what AVRO, JSON_SR and PROTOBUF records are written with; records that are read name their own.
    `nullable`: how PROTOBUF writes values that may be NULL: OPTIONAL, WRAPPER, or not at all.
    """

    name: str  # see planner/formats.py
    delimiter: str = ","
    wrap_single: bool = True
    schema: RecordSchema | None = None
    nullable: str = ""


@dataclass(frozen=True, slots=True)
class KeyWindow:
    """The window that is part of a record's key. Key bytes end with the window start as 8 bytes big-endian
    (TUMBLING, HOPPING), or with end and start, 8 bytes each (SESSION), as Kafka Streams writes them."""

    kind: Literal["TUMBLING", "HOPPING", "SESSION"]
    size_ms: int | None = None
    timezone: str | None = None  # whose days the windows are, as in `WindowSpec`


@dataclass(frozen=True, slots=True)
class Step:
    """Base of all steps; `id` is unique in the plan and names the step's stores."""

    id: str


@dataclass(frozen=True, slots=True)
class Source(Step):
    """Reads a topic. Out: changes with the columns of `schema`.

    For a table with `materialized`, each record gives the old row at weight -1 (if there was one) and the new one
    at +1, from a store; without it, just +1, or -1 (value columns NULL) for a tombstone.
    `timestamp`: rowtime, BIGINT ms, computed over the row's columns, instead of the record's own; a row for which
    it is NULL or negative is an error row.
    """

    topic: str
    kind: Literal["STREAM", "TABLE"]
    schema: Schema
    key_format: FormatSpec
    value_format: FormatSpec
    key_window: KeyWindow | None = None
    timestamp: SqlExpression | None = None
    materialized: bool = False
    partition_count: int = 1
    columns: tuple[str, ...] | None = None  # physical names that somebody needs; None is all
    name: str = ""  # of the stream or table, for people
    ttl_ms: int | None = None  # of a table: its rows go when their rowtime lies so far behind stream time


@dataclass(frozen=True, slots=True)
class Expire(Step):
    """Deletes the rows of a table that were not updated for `ttl_ms`.

    In: a table's changes. Out: the same, and at -1 each row whose rowtime lies so far behind the stream time of its
    task. A row that is too old when it comes deletes the one before it.
    """

    input: Step
    ttl_ms: int
    schema: Schema


@dataclass(frozen=True, slots=True)
class Filter(Step):
    """Keeps the rows for which `predicate` is true. Streams: others vanish. Tables: a +1 row that fails becomes a
    deletion (-1) where `retract_failed` (an input without old rows), else it vanishes."""

    input: Step
    predicate: SqlExpression
    retract_failed: bool = False


@dataclass(frozen=True, slots=True)
class Project(Step):
    """New value columns (`v0`…), and new key columns where `key` is not None, else the key is kept.

    A stream's row whose value is null (`_null`) stays so: only its key and time go on.
    """

    input: Step
    values: tuple[SqlExpression, ...]
    key: tuple[SqlExpression, ...] | None
    schema: Schema


@dataclass(frozen=True, slots=True)
class Rekey(Step):
    """A new key, and with it a new partition (murmur2 over the key as `key_format` encodes it, as Kafka's clients do).

    Rows whose key is NULL as a whole: dropped where `drop_null_key` (GROUP BY), else partition 0.
    Value columns stay; `values` replaces them where it is not None.
    """

    input: Step
    key: tuple[SqlExpression, ...]
    schema: Schema
    key_format: FormatSpec
    partition_count: int
    drop_null_key: bool = False


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate: its entry's name in the catalog, arguments over the input's columns, and result type.

    `constants` are the literal initial arguments (k of TOPK, ignoreNulls), as Python values. Only rows for which
    `filter` is true count, with `distinct` only the first of equal arguments.
    """

    function: str
    arguments: tuple[SqlExpression, ...]
    constants: tuple[str | int | bool | float | None, ...]
    type: SqlType
    filter: SqlExpression | None = None
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """`retention_ms` matters to `emit` FINAL only: None emits every window when it closes. With it, as in ksqlDB (where
    it is size + grace unless the user gives more), a window that starts more than that before the newest one when the
    record comes that closes it is lost, and only records that reach the aggregate move its stream time."""

    kind: Literal["TUMBLING", "HOPPING", "SESSION"]
    size_ms: int  # the gap of a session
    advance_ms: int | None = None  # HOPPING
    grace_ms: int = 86_400_000
    retention_ms: int | None = None
    timezone: str | None = None  # size and advance are whole days, which begin and end there

    @property
    def of_keys(self) -> KeyWindow:
        """How keys hold the window."""
        return KeyWindow(self.kind, None if self.kind == "SESSION" else self.size_ms, self.timezone)


@dataclass(frozen=True, slots=True)
class Aggregate(Step):
    """Folds the rows of each key (and window) into one.

    In:    rows with the grouping key in `k0`…; a stream's +1 rows, or a table's changes (`retracts`).
    Out:   `k0`… as they came, `_ws`/`_we` where windowed, and a value column per call, in order. Each input row gives
           the old result at -1 (only where `emit_old`) and the new one at +1. SESSION: a merged session's old rows
           go at -1 always. `emit` FINAL: one +1 row per window when it closes (stream time ≥ end + grace), and
           nothing before.
    `ttl_ms`: a group whose largest rowtime lies so far behind stream time goes at -1, and begins anew.
    Rows older than the window's end plus grace are dropped. Rows whose value is null (`_null`) or with a NULL key part
    are ignored.
    """

    input: Step
    calls: tuple[AggregateCall, ...]
    schema: Schema
    window: WindowSpec | None = None
    retracts: bool = False
    emit_old: bool = False
    emit: Literal["CHANGES", "FINAL"] = "CHANGES"
    ttl_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SortKey:
    """An expression of ORDER BY in OVER."""

    expression: SqlExpression
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class OverCall:
    """A function OVER the rows of its partition: its name, and `frame` as generated SQL, empty for the default one.

    `breaks_ties`: rows that the order does not tell apart come in the order of their arrival.
    """

    function: str
    arguments: tuple[SqlExpression, ...]
    order: tuple[SortKey, ...]
    type: SqlType
    frame: str = ""
    filter: SqlExpression | None = None
    distinct: bool = False
    breaks_ties: bool = True


@dataclass(frozen=True, slots=True)
class Over(Step):
    """Functions OVER partitions: those are the keys of the input.

    In:    a stream's rows, or a table's changes with their old rows; then `identity` tells its rows apart.
    Out:   the input's key and values, a value per call, and for a stream a number that tells its rows apart. What a
           batch changes in the results goes at -1 and +1, all of a partition under one `_seq`; of a table, whose rows
           may move between partitions, all of the batch.
    `bound`: only rows for which that call gives at most so much matter; of a stream no others are kept.
    """

    input: Step
    calls: tuple[OverCall, ...]
    schema: Schema
    identity: tuple[SqlExpression, ...] = ()
    bound: tuple[int, int] | None = None  # the call's position, the largest result


@dataclass(frozen=True, slots=True)
class StreamTableJoin(Step):
    """Each stream row meets the table's row of the same key as it was at that moment.

    Out: the left key; value columns = the left side's, then the right side's key, then its value columns.
    INNER drops rows without a match, LEFT pads them with NULL. Stream rows with a null value are dropped.
    """

    left: Step
    right: Step
    kind: Literal["INNER", "LEFT"]
    schema: Schema
    left_schema: Schema
    right_schema: Schema


@dataclass(frozen=True, slots=True)
class StreamStreamJoin(Step):
    """Each row of one stream meets the other's rows of its key that lie close enough in time.

    A left row at t meets right rows in [t - before, t + after]; the result's time is the later one. Rows of an outer
    side without a partner are padded with NULL: with `grace_ms` once no partner can come any more (stream time is
    beyond the end of their window plus grace), else at once, even if a partner comes later. UNBOUNDED_MS before and
    after: however far apart, and rows are kept for good.
    Out: the key of both sides, the left value columns, the right ones. Rows with a null key or value are dropped.
    """

    left: Step
    right: Step
    kind: JoinKind
    before_ms: int
    after_ms: int
    grace_ms: int | None
    schema: Schema
    left_schema: Schema
    right_schema: Schema


@dataclass(frozen=True, slots=True)
class TableTableJoin(Step):
    """The rows of two tables with the same primary key; a change of either side changes the result.

    In: changes of both sides, with or without old rows. Out: as of StreamStreamJoin. A result that ends goes at -1;
    `emit_old`: also the one that a new result replaces.
    """

    left: Step
    right: Step
    kind: JoinKind
    schema: Schema
    left_schema: Schema
    right_schema: Schema
    emit_old: bool = False


@dataclass(frozen=True, slots=True)
class ForeignKeyJoin(Step):
    """Each row of the left table with the right table's row that its foreign key names.

    In: the left table's changes with their old rows, under the foreign key and in the right table's tasks; `left_key`
    are  value columns that hold its primary key. Out: the foreign key as key, the left value columns, the right.
    A row that goes, or that loses its partner in an INNER join, goes at -1; `emit_old`: also the one that is replaced.
    """

    left: Step
    right: Step
    kind: Literal["INNER", "LEFT"]
    left_key: tuple[int, ...]
    schema: Schema
    left_schema: Schema
    right_schema: Schema
    emit_old: bool = False


@dataclass(frozen=True, slots=True)
class RowJoin(Step):
    """Pairs of rows of tables or streams that lie under the same key, which tells the rows of neither side apart.

    In: a stream's rows, or a table's changes with their old rows; `left_key`, `right_key` are the value columns that
    tell a side's rows apart. Out: the common key, the left value columns, the right ones; a pair that ends goes at -1.
    `outer`: left rows without a partner are given too, with NULLs.
    """

    left: Step
    right: Step
    left_key: tuple[int, ...]
    right_key: tuple[int, ...]
    schema: Schema
    left_schema: Schema
    right_schema: Schema
    outer: bool = False


Join = StreamTableJoin | StreamStreamJoin | TableTableJoin | ForeignKeyJoin | RowJoin


@dataclass(frozen=True, slots=True)
class Union(Step):
    """The rows of both inputs, which have the same columns, in the order of `_seq`; each stays in its task."""

    left: Step
    right: Step
    schema: Schema


@dataclass(frozen=True, slots=True)
class Explode(Step):
    """Table functions: one row per element; several are zipped, the shorter ones padded with NULL.

    `arrays` are expressions of ARRAY types; out: the input's value columns followed by one column each.
    """

    input: Step
    arrays: tuple[SqlExpression, ...]
    schema: Schema


@dataclass(frozen=True, slots=True)
class Sink(Step):
    """Encodes rows and writes them to `topic`. A row's partition is murmur2 of the key bytes; null keys go to the
    partition the row is in. `timestamp` replaces the rowtime; a row where it is NULL or negative is an error row.

    For a table, a (row, key) that has a -1 and no +1 in the same input row becomes a tombstone.
    `computed_key`: the query made the key itself; then a key of several columns is never null as a whole, not even when
    each of them is NULL.
    """

    input: Step
    name: str
    kind: Literal["STREAM", "TABLE"]
    topic: str
    schema: Schema
    key_format: FormatSpec
    value_format: FormatSpec
    partition_count: int
    key_window: KeyWindow | None = None
    timestamp: SqlExpression | None = None
    computed_key: bool = False


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """What the command topic keeps and an executor runs."""

    query_id: str
    root: Step  # a Sink, or for a push query the step whose rows go to the client
    properties: dict[str, str] = field(default_factory=dict)
    version: int = PLAN_VERSION

    def sources(self) -> tuple[Source, ...]:
        """The sources, left to right."""
        return tuple(step for step in walk(self.root) if isinstance(step, Source))


def inputs_of(step: Step) -> tuple[Step, ...]:
    match step:
        case StreamTableJoin() | StreamStreamJoin() | TableTableJoin() | ForeignKeyJoin() | RowJoin() | Union():
            return step.left, step.right
        case Source():
            return ()
        case Filter() | Project() | Rekey() | Aggregate() | Over() | Explode() | Expire() | Sink():
            return (step.input,)
        case _:
            raise AssertionError(f"unknown step {type(step).__name__}")


def walk(step: Step) -> list[Step]:
    """All steps below and including `step`, inputs before the steps that read them."""
    return [s for child in inputs_of(step) for s in walk(child)] + [step]


def schema_of(step: Step) -> Schema:
    """The columns of the step's output."""
    return schema_of(step.input) if isinstance(step, Filter) else step.schema  # type: ignore[attr-defined]
