"""From the logical to the physical plan: names become positions in batches, expressions become DuckDB text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from ..sql.functions.over_functions import OVER_FUNCTIONS
from ..sql.types import Array
from . import logical, physical
from .logical import LogicalPlan
from .physical import FormatSpec, SqlExpression, Step
from .schema import PSEUDO, Schema
from .typed import Typed, to_sql

_REPARTITION_FORMAT = FormatSpec("JSON", wrap_single=False)  # can hold every key; only its hash matters


@dataclass(frozen=True, slots=True)
class Lowering:
    """`partition_count`: over how many partitions rows spread when their key changes, where the plan does not say;
    `always`: where it does, too, unless they have to meet the rows of a topic."""

    partition_count: int
    always: bool = False

    def lower(self, plan: LogicalPlan) -> Step:
        """The steps of `plan`; expressions in them read the columns of their input batch."""
        return _Lowerer(self.partition_count, self.always).lower(plan)


def physical_names(schema: Schema):
    """A function from logical to physical names for rows of `schema`."""

    def name(logical_name: str) -> str:
        column = schema.find(logical_name)
        if column is not None:
            return schema.physical_name(column)
        return PSEUDO[logical_name][0] if logical_name in PSEUDO else logical_name

    return name


def is_key_column(sql: str) -> bool:
    """Whether generated SQL is just a column that a deleted row still has: of the key, or a bound of its window."""
    return sql in ("_ws", "_we") or (sql[:1] == "k" and sql[1:].isdigit())


class _Lowerer:
    def __init__(self, partition_count: int, always: bool) -> None:
        self._partition_count = partition_count
        self._always = always
        self._numbers: Counter[str] = Counter()

    def _id(self, what: str) -> str:
        self._numbers[what] += 1
        return f"{what}-{self._numbers[what]}"

    def lower(self, plan: LogicalPlan) -> Step:
        match plan:
            case logical.Scan():
                return self._source(plan)
            case logical.Filter():
                step = self.lower(plan.input)
                return physical.Filter(self._id("filter"), step, _sql(plan.predicate, plan.input))
            case logical.Project():
                return self._project(plan)
            case logical.Repartition():
                return self._rekey(plan)
            case logical.Aggregate():
                return self._aggregate(plan)
            case logical.Over():
                return self._over(plan)
            case logical.Explode():
                step = self.lower(plan.input)
                arrays = tuple(_array(named.expression, plan.input) for named in plan.arrays)
                return physical.Explode(self._id("explode"), step, arrays, plan.schema)
            case logical.StreamTableJoin():
                left, right = self.lower(plan.left), self.lower(plan.right)
                return physical.StreamTableJoin(
                    self._id("join"), left, right, plan.join, plan.schema, plan.left.schema, plan.right.schema
                )
            case logical.StreamStreamJoin() | logical.TableTableJoin() | logical.ForeignKeyJoin() | logical.RowJoin():
                return self._join(plan)
            case logical.Union():
                return physical.Union(self._id("union"), self.lower(plan.left), self.lower(plan.right), plan.schema)
            case _:
                raise AssertionError(f"unknown node {type(plan).__name__}")

    def _source(self, plan: logical.Scan) -> physical.Source:
        source = plan.source
        names = physical_names(source.schema)
        needed = None if plan.needed is None else tuple(names(c.name) for c in source.schema if c.name in plan.needed)
        return physical.Source(
            self._id("source"),
            topic=source.topic,
            kind=source.kind,
            schema=source.schema,
            key_format=source.key_format,
            value_format=source.value_format,
            key_window=source.key_window,
            timestamp=None if plan.timestamp is None else to_sql(plan.timestamp, names),
            materialized=plan.with_old_rows,
            partition_count=source.partition_count,
            columns=needed,
            name=source.name,
            ttl_ms=source.ttl_ms if source.created_by is None else None,  # else the query writes tombstones
        )

    def _project(self, plan: logical.Project) -> physical.Project:
        step = self.lower(plan.input)
        values = tuple(_sql(named.expression, plan.input) for named in plan.values)
        key = None if plan.key is None else tuple(_sql(named.expression, plan.input) for named in plan.key)
        own = tuple(f"k{i}" for i in range(len(plan.input.schema.key)))
        if key is not None and tuple(expression.sql for expression in key) == own:
            key = None
        return physical.Project(self._id("project"), step, values, key, plan.schema)

    def _rekey(self, plan: logical.Repartition) -> physical.Rekey:
        step = self.lower(plan.input)
        key = tuple(_sql(named.expression, plan.input) for named in plan.key)
        aligned = plan.key_format is not None and plan.partition_count is not None
        count = plan.partition_count if aligned or not self._always else None
        key_format = plan.key_format or _REPARTITION_FORMAT
        return physical.Rekey(
            self._id("rekey"), step, key, plan.schema, key_format, count or self._partition_count, plan.drop_null_key
        )

    def _join(
        self, plan: logical.StreamStreamJoin | logical.TableTableJoin | logical.ForeignKeyJoin | logical.RowJoin
    ) -> Step:
        left, right = self.lower(plan.left), self.lower(plan.right)
        id_, schemas = self._id("join"), (plan.schema, plan.left.schema, plan.right.schema)
        match plan:
            case logical.StreamStreamJoin():
                times = (plan.before_ms, plan.after_ms, plan.grace_ms)
                return physical.StreamStreamJoin(id_, left, right, plan.join, *times, *schemas)
            case logical.TableTableJoin():
                return physical.TableTableJoin(id_, left, right, plan.join, *schemas, plan.emit_old)
            case logical.ForeignKeyJoin():
                assert plan.join in ("INNER", "LEFT")
                left_key = _positions(plan.left, plan.left_key)
                return physical.ForeignKeyJoin(id_, left, right, plan.join, left_key, *schemas, plan.emit_old)
            case logical.RowJoin():
                keys = (_positions(plan.left, plan.left_key), _positions(plan.right, plan.right_key))
                return physical.RowJoin(id_, left, right, *keys, *schemas, outer=plan.join == "LEFT")

    def _aggregate(self, plan: logical.Aggregate) -> physical.Aggregate:
        step = self.lower(plan.input)
        calls = tuple(
            physical.AggregateCall(
                call.function,
                tuple(_sql(argument, plan.input) for argument in call.arguments),
                call.constants,
                call.column.type,
                None if call.filter is None else _sql(call.filter, plan.input),
                call.distinct,
            )
            for call in plan.calls
        )
        retracts = plan.input.kind == "TABLE"
        return physical.Aggregate(
            self._id("aggregate"), step, calls, plan.schema, plan.window, retracts, plan.emit_old, plan.emit
        )

    def _over(self, plan: logical.Over) -> physical.Over:
        step = self.lower(plan.input)
        calls = tuple(
            physical.OverCall(
                call.function,
                tuple(_sql(argument, plan.input) for argument in call.arguments),
                tuple(
                    physical.SortKey(_sql(key.expression, plan.input), key.descending, key.nulls_first)
                    for key in call.order
                ),
                call.column.type,
                call.frame,
                None if call.filter is None else _sql(call.filter, plan.input),
                call.distinct,
                OVER_FUNCTIONS[call.function].breaks_ties or bool(call.frame),
            )
            for call in plan.calls
        )
        identity = tuple(_sql(typed, plan.input) for typed in plan.identity)
        bound = None
        if plan.bound is not None:
            name, largest = plan.bound
            bound = next(i for i, call in enumerate(plan.calls) if call.name == name), largest
        return physical.Over(self._id("over"), step, calls, plan.schema, identity, bound)


def _positions(plan: LogicalPlan, names: tuple[str, ...]) -> tuple[int, ...]:
    values = [c.name for c in plan.schema.value]
    return tuple(values.index(name) for name in names)


def _array(typed: Typed, read: LogicalPlan) -> SqlExpression:
    """The array whose elements have the type that analysis gave."""
    return replace(_sql(typed, read), type=Array(typed.type))


def _sql(typed: Typed, read: LogicalPlan) -> SqlExpression:
    return to_sql(typed, physical_names(read.schema))
