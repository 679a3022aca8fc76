"""Plans continuous queries: CREATE … AS SELECT, INSERT INTO … SELECT, and push queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal as PythonDecimal

from sqlglot import exp

from millstream.errors import InvalidProperty, InvalidStatement, UnknownSource, did_you_mean

from ...sql import coercion
from ...sql.ast import CreateAsSelect, InsertInto, Query
from ...sql.identifiers import quote_identifier
from ...sql.settings.property_table import EXECUTOR
from ...sql.types import Decimal, SqlType, is_numeric
from ..declarations.record_schemas import SchemaTarget, check_given_schemas, with_schemas
from ..declarations.sources import check_name_is_free, check_timestamp_column, default_formats
from ..declarations.timestamps import rowtime_expression
from ..declarations.topics import topic_config, topic_of_statement
from ..declarations.with_properties import check_known, check_ttl, format_specs, read_properties
from ..expressions.call_words import with_units
from ..expressions.conversions import coerced
from ..expressions.scope import Scope, ScopeSource
from ..expressions.typed import Typed
from ..formats import FORMATS, can_hold, check_storable
from ..limits import within_depth
from ..logical import LogicalPlan, Named
from ..lowering import Lowering, is_key_column, sql_over
from ..optimize import optimize
from ..physical import PhysicalPlan
from ..planning import NewTopic, PlannedPush, PlannedQuery, PlanningContext
from ..schema import Column, Schema
from ..source_info import SourceInfo
from ..specs import FormatSpec
from ..steps.aggregate import LogicalAggregate
from ..steps.expire import with_ttl
from ..steps.project import LogicalProject
from ..steps.sink import Sink
from ..steps.step import walk
from .analysis import analyze
from .origin import keeps_place
from .relation import Analyzed, PlannedRelation, Target


@within_depth
def plan_query(statement: CreateAsSelect | InsertInto, context: PlanningContext) -> PlannedQuery:
    """The plan of a persistent query, and the source and topic that have to be created first.

    Raises `StatementError`s of all kinds; it changes nothing.
    """
    statement = with_units(statement)
    if isinstance(statement, CreateAsSelect):
        return _create_as(statement, context)
    return _insert_into(statement, context)


@within_depth
def plan_push(query: Query, context: PlanningContext) -> PlannedPush:
    """The plan of a query whose changes go to a client."""
    query = with_units(query)
    analyzed = analyze(query, context, target="CLIENT")
    plan = optimize(analyzed.plan)
    columns = tuple(Column(c.name, c.type) for c in plan.schema.value)
    physical, names = lower_for_client(analyzed, plan, context)
    return PlannedPush(physical, Schema(columns), names, query.limit, _shown_key(query, plan, names))


def _shown_key(query: Query, plan: LogicalPlan, names: tuple[str, ...]) -> tuple[int, ...] | None:
    """The positions of the rows' key for a client; None unless the whole key is selected. An aggregate over all rows
    needs no key."""
    grouped = bool(query.group_by) or query.distinct
    of_everything = not grouped and isinstance(plan, LogicalProject) and isinstance(plan.input, LogicalAggregate)
    parts = set() if of_everything else {f"k{i}" for i in range(len(plan.schema.key))}
    if plan.key_window is not None:
        parts.add("_ws")
    return tuple(i for i, name in enumerate(names) if is_key_column(name)) if parts <= set(names) else None


def lower_for_client(
    analyzed: Analyzed, plan: LogicalPlan, context: PlanningContext
) -> tuple[PhysicalPlan, tuple[str, ...]]:
    """The physical plan of an analyzed query without a sink, and the physical names of its columns in the rows."""
    root = plan.lower(_lowering(analyzed))
    names = tuple(root.result_column(i) for i in range(len(plan.schema.value)))
    return PhysicalPlan(context.query_id, root.without_repeats(), dict(context.properties)), names


def _lowering(analyzed: Analyzed) -> Lowering:
    """Repartitions use the partition count of the first source."""
    return Lowering(analyzed.relation.sources[0][1].partition_count)


# ------------------------------------------------------------------ CREATE … AS


def _create_as(statement: CreateAsSelect, context: PlanningContext) -> PlannedQuery:
    if not statement.if_not_exists:
        check_name_is_free(
            statement.kind, statement.name, context, or_replace=statement.or_replace, span=statement.span
        )
    properties = read_properties(statement.properties, create=False)
    check_ttl(statement.kind, properties.ttl_ms)
    target: Target = statement.kind
    analyzed = analyze(statement.query, context, target=target, target_name=statement.name)
    plan = optimize(analyzed.plan)
    if plan.kind == "TABLE" and plan.key_window is not None and keeps_place(plan):
        raise InvalidStatement(
            "KSQL does not support persistent queries on windowed tables.", span=statement.query.span
        )
    _check_kind(statement, plan)
    schema = plan.schema
    first = analyzed.relation.sources[0][1]
    if not schema.key and statement.properties.get("KEY_FORMAT") not in (None, "NONE", "none"):
        raise InvalidStatement("Key format specified for stream without key columns.", span=statement.span)
    key_format, value_format, key_features, value_features = format_specs(
        properties,
        _inherited(analyzed.relation, plan, context),
        schema.key,
        schema.value,
        context.settings.wraps_single_values,
    )
    _check_has_value(schema, value_format, statement)
    check_storable(value_format.name, columnar_topics=context.columnar_topics)
    check_timestamp_column(properties.timestamp_column, properties.timestamp_format, schema)
    topic = topic_of_statement(statement, context.settings)
    written = SchemaTarget(statement.name, topic, schema, key_format, value_format)
    check_given_schemas(written, properties, context.registry, statement.span)
    existing = context.topics.get(topic)
    if existing is not None and properties.partition_count not in (None, existing):
        raise InvalidProperty(
            f"A Kafka topic with the name '{topic}' already exists, with different partition/replica configuration "
            f"than required. PARTITIONS={properties.partition_count} does not match {existing}."
        )
    partitions = existing or properties.partition_count or first.partition_count
    schemas = with_schemas(written, properties, context.registry, renew=True)
    source = SourceInfo(
        name=statement.name,
        kind=statement.kind,
        topic=topic,
        schema=schema,
        key_format=schemas.key_format,
        value_format=schemas.value_format,
        key_window=plan.key_window,
        timestamp_column=properties.timestamp_column,
        timestamp_format=properties.timestamp_format,
        partition_count=partitions,
        created_by=context.query_id,
        statement=statement.text,
        key_features=key_features,
        value_features=value_features,
        ttl_ms=properties.ttl_ms,
    )
    physical = _with_sink(plan, source, analyzed, context, executor=properties.executor)
    config = topic_config(statement.kind, properties, windowed=plan.key_window is not None)
    new_topic = None if existing is not None else NewTopic(topic, partitions, config, properties.replicas or 0)
    return PlannedQuery(
        physical, analyzed.sources, statement.name, source, new_topic, schemas.versions, properties.backfill
    )


def _check_kind(statement: CreateAsSelect, plan: LogicalPlan) -> None:
    if plan.kind != statement.kind:
        raise InvalidStatement(
            f"Invalid result type. Your SELECT query produces a {plan.kind}. "
            f"Please use CREATE {plan.kind} AS SELECT statement instead.",
            span=statement.span,
        )


def _check_has_value(schema: Schema, value_format: FormatSpec, statement: CreateAsSelect) -> None:
    """Raises `InvalidStatement` for a table that consists of key columns only, as with DISTINCT, if the format cannot
    encode a value without columns other than as a tombstone."""
    if not schema.value and not FORMATS[value_format.name].holds_no_columns:
        raise InvalidStatement(
            f"all columns of {statement.name} are key columns, and {value_format.name} has no value without columns",
            span=statement.span,
            hint="Add WITH (VALUE_FORMAT='JSON').",
        )


def _inherited(relation: PlannedRelation, plan: LogicalPlan, context: PlanningContext) -> dict[str, FormatSpec]:
    """The formats of the first source. If its key format is NONE, a new key gets the default key format. A statement
    that ksqlDB does not support may have a key that the source's format cannot encode (several columns, or NULL): then
    the key format is JSON."""
    first, schema = relation.sources[0][1], plan.schema
    key = first.key_format
    if schema.key and key.name == "NONE":
        key = default_formats(context)["key"]
    if not schema.key and key.name != "NONE":
        key = replace(key, name="NONE") if first.schema.key else key
    may_be_null = plan.kind == "TABLE" and plan.key_may_be_null
    if relation.beyond and not can_hold(key.name, schema.key, may_be_null=may_be_null):
        key = FormatSpec("JSON", wrap_single=False)
    return {"key": key, "value": first.value_format}


def _with_sink(
    plan: LogicalPlan, target: SourceInfo, analyzed: Analyzed, context: PlanningContext, *, executor: str | None
) -> PhysicalPlan:
    step = plan.lower(_lowering(analyzed))
    if target.ttl_ms is not None and target.kind == "TABLE":
        step = with_ttl(step, target.ttl_ms)
    step = step.without_repeats()
    scope = Scope((ScopeSource(target.name, {c.name: (c.name, c.type) for c in plan.schema}),), context.catalog.types)
    rowtime = rowtime_expression(plan.schema, target.timestamp_column, target.timestamp_format, scope)
    sink = Sink(
        "sink",
        step,
        name=target.name,
        kind=target.kind,
        topic=target.topic,
        schema=plan.schema,
        key_format=target.key_format,
        value_format=target.value_format,
        partition_count=target.partition_count,
        key_window=plan.key_window,
        timestamp=None if rowtime is None else sql_over(plan.schema, rowtime),
        computed_key=any(below.rekeys for below in walk(step)),
    )
    properties = dict(context.properties)
    if executor is not None:
        properties[EXECUTOR.name] = EXECUTOR.check(executor)
    return PhysicalPlan(context.query_id, sink, properties)


# ------------------------------------------------------------------ INSERT INTO


def _insert_into(statement: InsertInto, context: PlanningContext) -> PlannedQuery:
    check_known(statement.properties, ("QUERY_ID",))
    if statement.target not in context.catalog.sources:
        raise UnknownSource(
            f"Source `{statement.target}` does not exist.",
            span=statement.span,
            hint=did_you_mean(statement.target, context.catalog.sources),
        )
    target = context.catalog.source(statement.target, statement.span)
    if target.read_only:
        raise InvalidStatement(
            f"Cannot insert into read-only {target.kind.lower()}: {target.name}", span=statement.span
        )
    if target.kind == "TABLE":
        raise InvalidStatement(
            f"INSERT INTO can only be used to insert into a stream. {target.name} is a table.", span=statement.span
        )
    if any(column.role == "HEADERS" for column in target.schema):
        raise InvalidStatement(
            f"Cannot insert into {target.name} because it has header columns",
            span=statement.span,
            hint="Declare a second stream over the same topic, without the header columns, and insert into that.",
        )
    analyzed = analyze(statement.query, context, target="INSERT", target_name=target.name)
    plan = optimize(analyzed.plan)
    if plan.kind != "STREAM":
        raise InvalidStatement("INSERT INTO takes a query that gives a stream, not a table.", span=statement.span)
    plan = _fitted(plan, target, statement)
    physical = _with_sink(plan, target, analyzed, context, executor=None)
    return PlannedQuery(physical, analyzed.sources, target.name, None, None)


def _fitted(plan: LogicalPlan, target: SourceInfo, statement: InsertInto) -> LogicalPlan:
    """The plan with the target's column types. Numbers may widen, and number literals may become DECIMALs that can
    represent them. Raises `InvalidStatement` if the columns do not match."""
    result = [c for c in plan.schema if c.role == "KEY"] + list(plan.schema.value)
    wanted = [*target.schema.key, *(c for c in target.schema.value if c.role == "VALUE")]
    numbers = {n.name: decimal for n in _named(plan) if (decimal := _written_decimal(n.expression)) is not None}
    fits = len(result) == len(wanted) and all(
        a.name == b.name and a.role == b.role and _fits(a.type, b.type, numbers.get(a.name))
        for a, b in zip(result, wanted, strict=True)
    )
    if not fits or plan.key_window != target.key_window:
        raise InvalidStatement(
            "Incompatible schema between results and sink.\n"
            f"Result schema is {', '.join(map(str, result))}\nSink schema is {', '.join(map(str, wanted))}",
            span=statement.span,
            hint=_fitting_hint(result, wanted),
        )
    if [c.type for c in result] == [c.type for c in wanted]:
        return plan
    assert isinstance(plan, LogicalProject), "a query's plan ends in its projection"
    types = {c.name: c.type for c in wanted}
    values = tuple(Named(n.name, coerced(n.expression, types[n.name])) for n in plan.values)
    key = None if plan.key is None else tuple(Named(n.name, coerced(n.expression, types[n.name])) for n in plan.key)
    return replace(plan, values=values, key=key)


def _fitting_hint(result: Sequence[Column], wanted: Sequence[Column]) -> str | None:
    """A hint with the first thing to change in the query."""
    selected, sunk = {c.name: c for c in result}, {c.name: c for c in wanted}
    missing = [c for c in wanted if c.name not in selected]
    extra = [c for c in result if c.name not in sunk]
    if missing:
        nothing = ", ".join(f"CAST(NULL AS {c.type}) AS {quote_identifier(c.name)}" for c in missing)
        renamed = f", or give {quote_identifier(extra[0].name)} its name with AS" if extra else ""
        return f"Select all columns of the sink: {nothing} where there is no value{renamed}."
    if extra:
        return f"The sink has no column {quote_identifier(extra[0].name)}: leave it out."
    other = next((c for c in result if not _fits(c.type, sunk[c.name].type, None)), None)
    if other is not None:
        return f"CAST {quote_identifier(other.name)} to {sunk[other.name].type}."
    if {c.name for c in result if c.role == "KEY"} != {c.name for c in wanted if c.role == "KEY"}:
        return "Give the rows the sink's key with PARTITION BY."
    return "Select the columns in the sink's order."


def _named(plan: LogicalPlan) -> tuple[Named, ...]:
    return (*plan.values, *(plan.key or ())) if isinstance(plan, LogicalProject) else ()


def _written_decimal(expression: Typed) -> Decimal | None:
    """The DECIMAL type that a number literal needs; None for any other expression."""
    tree = expression.tree
    while isinstance(tree, exp.Cast | exp.Paren | exp.Neg):
        tree = tree.this
    if not (isinstance(tree, exp.Literal) and is_numeric(expression.type)):
        return None
    return None if tree.is_string else coercion.decimal_of(PythonDecimal(tree.this))


def _fits(source: SqlType, target: SqlType, written: Decimal | None) -> bool:
    if written is not None and isinstance(target, Decimal):
        return coercion.can_coerce(written, target)
    return coercion.can_coerce(source, target)
